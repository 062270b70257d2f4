"""What consumer groups cost: a target, a member in memory, a heartbeat; and a broker full of members, beside Kafka.

Times of single functions are CPU time of this process: those wait for nothing.
"""

import asyncio
import json
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench._brokers import ROOT, BadRun, RawFigures, Samples, cpu_seconds, raw_load, resident_bytes, topic_on
from bench._targets import Running, Target, peer, running, subject
from bench.harness import Absolute, Case, Comparison, Report
from dray.disk import LocalDisk
from dray.groups.assignors import Assignor, Subscriber, assign_range, assign_uniform
from dray.groups.targets import slices, subscribers
from dray.log import envelope
from dray.log.port import Position
from dray.machine.groups.beats import Beat, TopicRow
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.group import Moment
from dray.machine.groups.names import MemberId
from dray.machine.names import SessionId, TopicId
from dray.machine.sessions import KeepAlive
from dray.machine.step import Step
from dray.node.directory import DataDirectory
from dray.node.inspection import inspect
from tools.peers.process import run as run_program
from tools.peers.process import stop

MEMBERS = 1_000
PARTITIONS = 10_000
ROUNDS = 3
TOGETHER, SHARED = 50, 200
"""Members and partitions of a group that comes together."""
QUIET_S = 30.0
WRITTEN = "dray: log entries a minute but keep-alives"
COMMITTERS, COMMITTED, COMMIT_S = 64, 16, 4.0
COORDINATOR_S = 60.0
PROTOCOLS = {"classic": "classic", "consumer": "KIP-848"}


def topics(count: int) -> dict[TopicId, int]:
    return {TopicId(number.to_bytes(16, "big")): PARTITIONS // count for number in range(1, count + 1)}


def everyone(sizes: dict[TopicId, int]) -> list[Subscriber]:
    return [Subscriber(id=f"member-{number:05}", topics=frozenset(sizes)) for number in range(MEMBERS)]


def halves(sizes: dict[TopicId, int]) -> list[Subscriber]:
    """Everyone subscribes another half of the topics."""
    dice, known = random.Random(1), sorted(sizes)
    return [replace(one, topics=frozenset(dice.sample(known, len(known) // 2))) for one in everyone(sizes)]


def assigning(assign: Assignor, sizes: dict[TopicId, int], members: Sequence[Subscriber]) -> Callable[[], float]:
    def run() -> float:
        return min(_cpu_ms(lambda: assign(members, sizes)) for _ in range(ROUNDS))

    return run


def joining(sizes: dict[TopicId, int]) -> Callable[[], float]:
    """One more joins a group that has its target."""

    def run() -> float:
        members = everyone(sizes)
        target = assign_uniform(members, sizes)
        settled = [replace(one, target=target[one.id]) for one in members]
        more = [*settled, Subscriber(id="newcomer", topics=frozenset(sizes))]
        return min(_cpu_ms(lambda: assign_uniform(more, sizes)) for _ in range(ROUNDS))

    return run


def _cpu_ms(work: Callable[[], object]) -> float:
    begun = time.process_time_ns()
    work()
    return (time.process_time_ns() - begun) / 1e6


class Crowd:
    """A group of a thousand members that have what they are to have."""

    def __init__(self, count: int) -> None:
        self.group = ConsumerGroup("g")
        self.rows = tuple(
            TopicRow(name=f"topic-{topic.hex()}", topic_id=topic, partitions=size)
            for topic, size in topics(count).items()
        )
        for number in range(MEMBERS):
            names = tuple(f"topic-{row.topic_id.hex()}" for row in self.rows)  # texts of its own, as from a log
            self.beat(number, 0, names=names, topics=self.rows, rebalance_ms=60_000)
        group = self.group
        target = assign_uniform(subscribers(group), group.topics.sizes())
        for command in slices("g", group.epoch, {}, target):
            group.set_target(self.moment(), command)
        for number in range(MEMBERS):
            self.beat(number, 1)

    def moment(self) -> Moment:
        return Moment(step=Step(1, SessionId(1)), time_ms=1, live={SessionId(1)})

    def beat(self, number: int, epoch: int, **more) -> None:
        member = MemberId(f"0f5d3e72-1b1c-4f0c-9b51-{number:012}")
        command = Beat(
            group="g", member=member, epoch=epoch, owned=(), client_id="client", client_host="/127.0.0.1", **more
        )
        self.group.beat(self.moment(), command)


def bytes_a_member(count: int) -> Callable[[], float]:
    def run() -> float:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            crowd = Crowd(count)
            assert len(crowd.group.members) == MEMBERS
            assert sum(mask.bit_count() for mask in crowd.group.owned.values()) == PARTITIONS
            return (tracemalloc.get_traced_memory()[0] - before) / MEMBERS
        finally:
            tracemalloc.stop()

    return run


def beat_us() -> float:
    """A heartbeat that changes nothing but its home, in `apply`."""
    crowd = Crowd(10)

    def all_beat() -> None:
        for number in range(MEMBERS):
            crowd.beat(number, crowd.group.epoch)

    return min(_cpu_ms(all_beat) for _ in range(ROUNDS)) * 1_000 / MEMBERS


def cases() -> list[Case]:
    mark, unit = 35.0, "ms CPU"
    found: list[Case] = []
    for count in (1, 10, 100, 1_000):
        sizes = topics(count)
        what = f"1,000 members x 10,000 partitions in {count:,} topics"
        for name, assign in (("uniform", assign_uniform), ("range", assign_range)):
            run = assigning(assign, sizes, everyone(sizes))
            found.append(Absolute(f"groups: {name}, {what}", run, mark, unit, at_most=True))
        found.append(Absolute(f"groups: one joins, {what}", joining(sizes), mark, unit, at_most=True))
    for count in (10, 100):
        sizes = topics(count)
        run = assigning(assign_uniform, sizes, halves(sizes))
        name = f"groups: uniform, other subscriptions, {count} topics"
        found.append(Absolute(name, run, mark, unit, at_most=True))
    for count in (1, 10, 100):
        name = f"groups: a consumer member of 1,000, {count} topics of 10,000 partitions"
        found.append(Absolute(name, bytes_a_member(count), 3_000, "bytes", at_most=True))
    found.append(Absolute("groups: apply of a heartbeat", beat_us, 100, "us CPU", at_most=True))
    return found + broker_cases()


class Figures:
    """What a report has measured, for a mark that follows it."""

    taken: dict[str, float]

    def of(self, figures: dict[str, float]) -> dict[str, float]:
        self.taken = figures
        return figures


def broker_cases() -> list[Case]:
    commits, watched = Samples(), {protocol: Figures() for protocol in PROTOCOLS}
    found: list[Case] = [
        Comparison(
            f"{TOGETHER} members over {SHARED} partitions until stable, {name}",
            subject=lambda protocol=protocol: 1 / seconds_together(subject(), protocol),
            peer=lambda protocol=protocol: 1 / seconds_together(peer(), protocol),
            mark=1.0, unit="1/s", note="librdkafka, all started at once",
        )
        for protocol, name in PROTOCOLS.items()
    ]  # fmt: skip
    for protocol, name in PROTOCOLS.items():
        what = f"{MEMBERS:,} stable members, {name}"
        found.append(Report(what, run=lambda protocol=protocol: watched[protocol].of(quiet(protocol))))
        found.append(Absolute(
            f"{what}: log entries but keep-alives", run=lambda protocol=protocol: watched[protocol].taken[WRITTEN],
            mark=0.0, unit="a minute", at_most=True,
        ))  # fmt: skip
    found += [
        Absolute(
            "OffsetCommits", run=lambda: committing(subject(), "dray", commits), mark=3_000, unit="commits/s",
            note=f"{COMMITTERS} in flight, local files",
        ),
        Report("OffsetCommits beside Kafka", run=lambda: beside_kafka(commits)),
    ]  # fmt: skip
    return found


def seconds_together(target: Target, protocol: str) -> float:
    """From the start of all members until each has its even part."""
    broker = running(target)
    with topic_on(broker, SHARED) as topic:
        command = [sys.executable, "-m", "bench._members", "together", broker.address, topic, protocol]
        said = run_program([*command, f"--members={TOGETHER}", f"--partitions={SHARED}"], directory=ROOT)
    return float(json.loads(said)["seconds"])


def quiet(protocol: str) -> dict[str, float]:
    """What a broker does while a thousand members beat and nothing else happens."""
    figures: dict[str, float] = {}
    for side, target in (("dray", subject()), ("kafka", peer())):
        with target.start() as broker, topic_on(broker, 100) as topic:
            _await_coordinator(broker, topic)
            resident = resident_bytes(broker.pid)
            with _settled(broker, topic, protocol) as seconds:
                before = _entries(broker)
                cpu, begun = cpu_seconds(broker.pid), time.monotonic()
                time.sleep(QUIET_S)
                minutes = (time.monotonic() - begun) / 60
                figures[f"{side}: s until all were in"] = seconds
                figures[f"{side}: CPU ms a member and minute"] = (
                    (cpu_seconds(broker.pid) - cpu) * 1_000 / MEMBERS / minutes
                )
                figures[f"{side}: RSS KiB a member, connection included"] = (
                    (resident_bytes(broker.pid) - resident) / 1024 / MEMBERS
                )
                if before is not None:
                    figures[WRITTEN] = _written(broker, before) / minutes
    return figures


@contextmanager
def _settled(broker: Running, topic: str, protocol: str) -> Iterator[float]:
    command = [sys.executable, "-m", "bench._members", "settled", broker.address, topic, protocol]
    process = subprocess.Popen(
        [*command, f"--members={MEMBERS}"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = json.loads(process.stdout.readline() or b"{}")
        if said.get("settled") != MEMBERS:
            raise BadRun(f"the members say {said}")
        yield float(said["seconds"])
        process.stdin.close()
        said = json.loads(process.stdout.readline() or b"{}")
        if not said.get("stayed"):
            raise BadRun("the group moved while it was watched")
    finally:
        stop(process)


def _entries(broker: Running) -> int | None:
    """Where the log of a Dray ends."""
    return None if broker.directory is None else asyncio.run(_tail(broker.directory))


async def _tail(directory: Path) -> int:
    async with inspect(DataDirectory(directory), 0, LocalDisk()) as inspected:
        return await inspected.log.tail()


def _written(broker: Running, since: int) -> int:
    """The entries since a position that are more than signs of life."""

    async def count() -> int:
        assert broker.directory is not None
        async with inspect(DataDirectory(broker.directory), 0, LocalDisk()) as inspected:
            end, found = await inspected.log.tail(), 0
            if end <= since:
                return 0
            async for position, entry in inspected.log.follow(Position(since)):
                commands = envelope.decode_commands(entry, envelope.decode_head(entry).count)
                found += any(number != KeepAlive.number for number, _ in commands)
                if position >= end:
                    break
            return found

    return asyncio.run(count())


def committing(target: Target, side: str, samples: Samples) -> float:
    broker = running(target)
    with topic_on(broker, COMMITTED) as topic:
        _await_coordinator(broker, topic)
        figures = _commit(broker, topic, COMMIT_S)
    samples.add(f"{side}: commits/s", figures.requests_per_s)
    samples.add(f"{side}: broker CPU us/commit", figures.broker_us_per_request)
    samples.add(f"{side}: p50 ms", figures.p50_ms)
    samples.add(f"{side}: p99 ms", figures.p99_ms)
    return figures.requests_per_s


def _commit(broker: Running, topic: str, seconds: float) -> RawFigures:
    return raw_load(
        broker, "commit", topic, partitions=COMMITTED, connections=COMMITTERS, inflight=1, seconds=seconds
    )  # fmt: skip


def _await_coordinator(broker: Running, topic: str) -> None:
    """Kafka makes the topic of its offsets when somebody first asks for a coordinator, and takes a while for it."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "bench-0"})
    end = time.monotonic() + COORDINATOR_S
    try:
        while True:
            try:
                consumer.committed([TopicPartition(topic, 0)], timeout=COORDINATOR_S)
                _commit(broker, topic, 0.2)
                return
            except (BadRun, KafkaException):
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)
    finally:
        consumer.close()


def beside_kafka(samples: Samples) -> dict[str, float]:
    """The two take turns."""
    samples.taken.clear()
    for _ in range(1 + ROUNDS):
        committing(subject(), "dray", samples)
        committing(peer(), "kafka", samples)
    return samples.medians()
