"""Groups on three brokers: one is stopped, one is killed, and nobody loses its place."""

import asyncio
import itertools
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from dray.disk import LocalDisk
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.machine import Machine
from dray.node.directory import DataDirectory
from dray.node.inspection import current_machine, inspect
from dray.routing.leaders import rendezvous
from tests.cli.test_serving import ANY, STOP_S, Serving, serving

from .grouped import PATIENCE_S, Member, eventually, fill, make_topic, share
from .watching import watched

pytestmark = pytest.mark.slow

TOPIC, PARTITIONS, EACH = "orders", 6, 20
QUICK = ("--set", "session.ttl=3s", "--set", "session.keepalive=1s", "--set", "groups.consumer_heartbeat=500ms")
KINDS = ["confluent-patient", "confluent-consumer"]


class Three:
    """The owner of a log, and two brokers that have joined it."""

    def __init__(self, stack: ExitStack, home: Path) -> None:
        self._data = home / "a"
        self.brokers: dict[int, Serving] = {}
        for broker_id, data in enumerate("abc", start=1):
            joins = () if data == "a" else ("--log", "unix:a/meta.sock")
            arguments = ("dev", *ANY, *QUICK, "--data", data, *joins)
            self.brokers[broker_id] = stack.enter_context(serving(*arguments, directory=home))

    @property
    def bootstrap(self) -> str:
        return ",".join(one.kafka for one in self.brokers.values())

    def stop(self, broker_id: int) -> None:
        assert self.brokers.pop(broker_id).stop() == 0

    def kill(self, broker_id: int) -> None:
        process = self.brokers.pop(broker_id).process
        process.send_signal(signal.SIGKILL)
        process.wait(STOP_S)

    def state(self) -> Machine:
        async def look() -> Machine:
            async with inspect(DataDirectory(self._data), 0, LocalDisk()) as inspected:
                return await current_machine(inspected)

        return asyncio.run(look())

    def coordinator(self, group: str) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        [found] = admin.describe_consumer_groups([group]).values()
        told = found.result(PATIENCE_S).coordinator
        return f"{told.host}:{told.port}"


def kept_by(*order: int) -> str:
    """A group that these brokers look after, one when those before it are gone."""
    names = (f"readers-{n}" for n in itertools.count())

    def keepers(name: str) -> list[int]:
        left, found = set(order), []
        while left:
            found.append(rendezvous(f"group {name}", sorted(left), default=0))
            left.remove(found[-1])
        return found

    return next(name for name in names if keepers(name) == list(order))


def of_group(machine: Machine, name: str) -> ClassicGroup | ConsumerGroup:
    group = machine.groups.find(name)
    assert isinstance(group, ClassicGroup | ConsumerGroup)
    return group


def place(machine: Machine, name: str) -> tuple[int, list[str]]:
    """The generation or epoch of a group, and who is in it."""
    group = of_group(machine, name)
    return group.generation if isinstance(group, ClassicGroup) else group.epoch, sorted(group.members)


def are_at_home(machine: Machine, name: str) -> bool:
    return all(member.home in machine.sessions.live for member in of_group(machine, name).members.values())


def sees_all(members: Sequence[Member], each: int) -> None:
    wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(each)}
    eventually(
        f"{len(wanted)} records are delivered", lambda: wanted <= {seen for member in members for seen in member.seen}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_outlives_the_brokers_that_keep_it(tmp_path: Path, kind: str) -> None:
    """R-169, R-184, R-190: a broker that is stopped costs no rebalance, one that is killed no record."""
    with ExitStack() as stack:
        three = Three(stack, tmp_path)
        group = kept_by(3, 2, 1)
        make_topic(three.bootstrap, TOPIC, PARTITIONS)
        fill(three.bootstrap, TOPIC, PARTITIONS, EACH)
        members = [
            stack.enter_context(Member(kind, broker.kafka, TOPIC, group)) for broker in three.brokers.values()
        ]  # fmt: skip
        commits = stack.enter_context(watched(three.bootstrap, TOPIC, PARTITIONS, group))
        share(members, PARTITIONS)
        sees_all(members, EACH)
        assert three.coordinator(group) == three.brokers[3].kafka

        eventually("all is committed", lambda: commits.have_come_to(EACH))
        before, changes = place(three.state(), group), [member.changes for member in members]
        three.stop(3)
        eventually("the members have other homes", lambda: are_at_home(three.state(), group))
        fill(three.bootstrap, TOPIC, PARTITIONS, EACH)
        sees_all(members, 2 * EACH)
        assert place(three.state(), group) == before
        assert [member.changes for member in members] == changes, "nobody was told to do anything else"
        assert three.coordinator(group) == three.brokers[2].kafka

        fill(three.bootstrap, TOPIC, PARTITIONS, EACH)
        middle = sum(len(member.seen) for member in members)
        eventually("they are at work", lambda: sum(len(member.seen) for member in members) > middle)
        three.kill(2)
        fill(three.bootstrap, TOPIC, PARTITIONS, EACH)
        sees_all(members, 4 * EACH)
        share(members, PARTITIONS)
        eventually("the members have other homes", lambda: are_at_home(three.state(), group))
        eventually("all is committed", lambda: commits.have_come_to(4 * EACH))
        assert three.coordinator(group) == three.brokers[1].kafka

        reads = [read for member in members for read in member.reads]
        assert len(reads) == len(set(reads)), "what a member has committed is not read again"
