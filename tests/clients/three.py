"""Three brokers on one log server, each a process of its own: any of the three may be stopped, killed, paused."""

import asyncio
import itertools
import signal
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient

from dray.disk import LocalDisk
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.machine import Machine
from dray.node.directory import DataDirectory
from dray.node.inspection import current_machine, inspect
from dray.routing.leaders import rendezvous
from tests.cli.test_serving import STOP_S, Serving, serving
from tests.durability.cluster import Meta
from tests.durability.daemon import free_port

from .grouped import PATIENCE_S

IDS = (1, 2, 3)
TTL_S = 3
QUICK = ("--set", f"session.ttl={TTL_S}s", "--set", "session.keepalive=1s")


class Three:
    """Three brokers on the log of nobody's."""

    def __init__(self, stack: ExitStack, home: Path, *settings: str) -> None:
        self._stack = stack
        self._home = home
        self._settings = [part for setting in settings for part in ("--set", setting)]
        self._ports: dict[int, int] = {}
        self.brokers: dict[int, Serving] = {}
        self._meta = Meta(home / "meta", domains=1)
        self._meta.start()
        stack.callback(self._meta.stop, signal.SIGKILL)
        for broker_id in IDS:
            self.start(broker_id)

    def start(self, broker_id: int) -> None:
        """It serves what its directory has, on the port that it had before."""
        port = self._ports.setdefault(broker_id, free_port())
        joins = ("--log", "unix:meta/meta.sock", "--set", f"broker.id={broker_id}")
        listen = ("--kafka", f"127.0.0.1:{port}", "--http", "127.0.0.1:0", "--grpc", "")
        arguments = ("dev", *listen, *QUICK, *self._settings, "--data", str(broker_id), *joins)
        self.brokers[broker_id] = self._stack.enter_context(serving(*arguments, directory=self._home))

    @property
    def bootstrap(self) -> str:
        return ",".join(one.kafka for one in self.brokers.values())

    def stop(self, broker_id: int) -> None:
        assert self.brokers.pop(broker_id).stop() == 0

    def kill(self, broker_id: int) -> None:
        process = self.brokers.pop(broker_id).process
        process.send_signal(signal.SIGKILL)
        process.wait(STOP_S)

    def pause(self, broker_id: int) -> None:
        self.brokers[broker_id].process.send_signal(signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        self.brokers[broker_id].process.send_signal(signal.SIGCONT)

    def state(self) -> Machine:
        async def look() -> Machine:
            async with inspect(DataDirectory(self._meta.data), 0, LocalDisk()) as inspected:
                return await current_machine(inspected)

        return asyncio.run(look())

    def coordinator(self, group: str) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        [found] = admin.describe_consumer_groups([group]).values()
        told = found.result(PATIENCE_S).coordinator
        return f"{told.host}:{told.port}"


_numbers = itertools.count()


def kept_by(*order: int) -> str:
    """A new group that these brokers look after, one when those before it are gone."""
    names = (f"readers-{n}" for n in _numbers)

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
