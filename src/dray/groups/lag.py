"""How far groups are behind, as metrics.

Every broker has the committed offsets and the ends of the domains that it
follows, so this asks nobody: it looks into memory now and then. Each group is
told by its keeper alone, the broker that clients are sent to, so that sums
over brokers are right. What is told of a group that went, moved to another
keeper or lost a topic is taken back at the next look.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

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


class LagWatch:
    """Tells the lag of the groups that this broker keeps."""

    def __init__(self, *, domains: Domains, topics: TopicService, routing: BrokerOrder, clock: Clock) -> None:
        self._domains = domains
        self._topics = topics
        self._routing = routing
        self._clock = clock
        self._told: set[GroupPartition] = set()
        self._sums: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Look and tell, for ever; at the end nothing is told any more."""
        try:
            while True:
                await self.look()
                await self._clock.sleep(EVERY_S)
        finally:
            self._tell({}, 0)

    async def look(self) -> None:
        """One look at every group."""
        found: dict[GroupPartition, Progress] = {}
        left_out = 0
        pace = Pace()
        for _, replica in self._domains:
            for group in replica.machine.offsets.groups():
                if pace.is_due():
                    await asyncio.sleep(0)
                if self._routing.rank(group) > 0:
                    continue
                for place, progress in self._of_group(replica, group):
                    if len(found) < MOST:
                        found[place] = progress
                    else:
                        left_out += 1
                    if pace.is_due():
                        await asyncio.sleep(0)
        self._tell(found, left_out)

    def _of_group(self, replica: Replica, group: str) -> Iterator[tuple[GroupPartition, Progress]]:
        # A copy of the rows: commits go on between two steps.
        for topic_id, number, committed in list(replica.machine.offsets.of_group(group)):
            topic = self._topics.peek_id(topic_id)
            if topic is None or number >= topic.visible:
                continue
            stream = self._domains.of(topic.streams[number]).machine.streams.find(topic.streams[number])
            if stream is not None:
                # What retention took cannot be read any more: nobody is behind by that.
                lag = max(0, stream.end - max(committed.offset, stream.start))
                place = GroupPartition(group[:LABEL_LETTERS], topic.name, str(number))
                yield place, Progress(committed=committed.offset, lag=lag)

    def _tell(self, found: Mapping[GroupPartition, Progress], left_out: int) -> None:
        sums: dict[tuple[str, str], Progress] = {}
        for place, progress in found.items():
            telemetry.LAG.labels(*place.labels).set(progress.lag)
            telemetry.KAFKA_LAG.labels(*place.labels).set(progress.lag)
            telemetry.KAFKA_OFFSET.labels(*place.labels).set(progress.committed)
            before = sums.get((place.group, place.topic), Progress(committed=0, lag=0))
            sums[place.group, place.topic] = Progress(
                committed=before.committed + progress.committed, lag=before.lag + progress.lag
            )
        for names, total in sums.items():
            telemetry.KAFKA_LAG_SUM.labels(*names).set(total.lag)
            telemetry.KAFKA_OFFSET_SUM.labels(*names).set(total.committed)
        for place in self._told - found.keys():
            for gauge in (telemetry.LAG, telemetry.KAFKA_LAG, telemetry.KAFKA_OFFSET):
                gauge.remove(*place.labels)
        for names in self._sums - sums.keys():
            for gauge in (telemetry.KAFKA_LAG_SUM, telemetry.KAFKA_OFFSET_SUM):
                gauge.remove(*names)
        self._told, self._sums = set(found), set(sums)
        telemetry.LAG_LEFT_OUT.set(left_out)
