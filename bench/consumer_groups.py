"""What consumer groups cost: a target, a member in memory, a heartbeat in the machine.

Times are CPU time of this process: nothing here waits.
"""

import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.harness import Absolute, Case
from dray.groups.assignors import Assignor, Subscriber, assign_range, assign_uniform
from dray.groups.targets import slices, subscribers
from dray.machine.groups.beats import Beat, TopicRow
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.group import Moment
from dray.machine.groups.names import MemberId
from dray.machine.names import SessionId, TopicId
from dray.machine.step import Step

MEMBERS = 1_000
PARTITIONS = 10_000
ROUNDS = 3


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
    return found
