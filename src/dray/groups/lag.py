"""How far groups are behind, as metrics.

Every broker has the committed offsets and the ends of the domains that it
follows, so this asks nobody: it looks into memory now and then. Each group is
told by its keeper alone, the broker that clients are sent to, so that sums
over brokers are right. What is told of a group that went, moved to another
keeper or lost a topic is taken back at the next look.

Invariants
    GL1  However many partitions are told, the loop is left to others in between.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from prometheus_client import Gauge

from dray.clock import Clock
from dray.groups import telemetry
from dray.groups.placement import BrokerOrder
from dray.pace import Pace
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.topics.service import TopicService

EVERY_S: Final = 10.0
MOST: Final = 20_000
"""Partitions of groups that are told; each is a few lines for whoever scrapes."""
LABEL_LETTERS: Final = 249
"""Of a group in a label; Kafka takes ids of 32 KiB."""


@dataclass(frozen=True, slots=True, order=True)
class GroupPartition:
    """A partition that a group has read."""

    group: str
    topic: str
    partition: str

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.group, self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a group has come in a partition."""

    committed: int
    lag: int


_NOTHING: Final = Progress(committed=0, lag=0)
_STEPS: Final = 20
"""What a change of gauges costs, next to a step of reckoning."""


class LagWatch:
    """Tells the lag of the groups that this broker keeps."""

    def __init__(self, *, domains: Domains, topics: TopicService, routing: BrokerOrder, clock: Clock) -> None:
        self._domains = domains
        self._topics = topics
        self._routing = routing
        self._clock = clock
        self._partitions = _Gauges[tuple[str, str, str]](
            lags=(telemetry.LAG, telemetry.KAFKA_LAG), committed=telemetry.KAFKA_OFFSET
        )
        self._topic_sums = _Gauges[tuple[str, str]](
            lags=(telemetry.KAFKA_LAG_SUM,), committed=telemetry.KAFKA_OFFSET_SUM
        )

    async def run(self) -> None:
        """Look and tell, for ever; at the end nothing is told any more."""
        try:
            while True:
                await self.look()
                await self._clock.sleep(EVERY_S)
        finally:
            await self._tell({}, 0)

    async def look(self) -> None:
        """One look at every group."""
        found: dict[GroupPartition, Progress] = {}
        left_out = 0
        pace = Pace()
        for _, replica in self._domains:
            for group in replica.machine.offsets.groups() if replica.is_loaded else ():
                if pace.is_due():
                    await asyncio.sleep(0)
                if not replica.is_loaded:
                    break  # it went meanwhile
                if self._routing.rank(group) > 0:
                    continue
                for place, progress in self._of_group(replica, group):
                    if len(found) < MOST:
                        found[place] = progress
                    else:
                        left_out += 1
                    if pace.is_due():
                        await asyncio.sleep(0)
        await self._tell(found, left_out)

    def _of_group(self, replica: Replica, group: str) -> Iterator[tuple[GroupPartition, Progress]]:
        # A copy of the rows: commits go on between two steps.
        for topic_id, number, committed in list(replica.machine.offsets.of_group(group)):
            topic = self._topics.peek_id(topic_id)
            if topic is None or number >= topic.visible or not self._domains.has(topic.streams[number]):
                continue
            stream = self._domains.of(topic.streams[number]).machine.streams.find(topic.streams[number])
            if stream is not None:
                # What retention took cannot be read any more: nobody is behind by that.
                lag = max(0, stream.end - max(committed.offset, stream.start))
                place = GroupPartition(group[:LABEL_LETTERS], topic.name, str(number))
                yield place, Progress(committed=committed.offset, lag=lag)

    async def _tell(self, found: Mapping[GroupPartition, Progress], left_out: int) -> None:
        """Only what changed, in slices: the metrics library looks up each label, and there are thousands (GL1)."""
        sums: dict[tuple[str, str], Progress] = {}
        pace = Pace()
        for place, progress in found.items():
            before = sums.get((place.group, place.topic), _NOTHING)
            sums[place.group, place.topic] = Progress(
                committed=before.committed + progress.committed, lag=before.lag + progress.lag
            )
            if pace.is_due():
                await asyncio.sleep(0)
        await self._partitions.tell({place.labels: progress for place, progress in found.items()})
        await self._topic_sums.tell(sums)
        telemetry.LAG_LEFT_OUT.set(left_out)


_Labels = TypeVar("_Labels", bound=tuple[str, ...])


class _Gauges(Generic[_Labels]):
    """Gauges of lags and of committed offsets that have the same labels, and what they tell.

    They are the process's, and a process has one broker that keeps a group.
    """

    def __init__(self, *, lags: Sequence[Gauge], committed: Gauge) -> None:
        self._lags = lags
        self._committed = committed
        self._told: dict[_Labels, Progress] = {}

    async def tell(self, found: Mapping[_Labels, Progress]) -> None:
        pace = Pace()
        for labels, progress in found.items():
            changed = self._told.get(labels) != progress
            if changed:
                self._told[labels] = progress
                for gauge in self._lags:
                    gauge.labels(*labels).set(progress.lag)
                self._committed.labels(*labels).set(progress.committed)
            if pace.is_due(_STEPS if changed else 1):
                await asyncio.sleep(0)
        for labels in self._told.keys() - found.keys():
            del self._told[labels]
            for gauge in (*self._lags, self._committed):
                gauge.remove(*labels)
            if pace.is_due(_STEPS):
                await asyncio.sleep(0)
