"""Settling offsets: durable in the log of the group's domain, or not at all.

Invariants
    CO1  What is covered already is answered without an entry of the log
         (W-02, W-22).
    CO2  An ack is answered as done only once it is applied here; memory
         changes by that alone (W-24, W-25).
    CO3  Offsets beyond the end of their stream are not settled: they do not
         exist yet. That is said after a sync.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from dray.consume import telemetry
from dray.consume.errors import AckFailed, AckUnknown, BadAck, GroupHasMembers, NoRoom, TooScattered
from dray.errors import Unavailable, Unknown
from dray.groups.offsets import check_group
from dray.groups.placement import domain_of_group
from dray.machine.acks import MAX_RANGES, Acked, AckOffsets, Acks, Span, merge
from dray.machine.groups.codes import Denied
from dray.machine.names import StreamId, domain_of
from dray.machine.stream import Stream
from dray.machine.topics import Topic
from dray.machine.verdict import Refused, Why
from dray.replica.domains import Domains
from dray.replica.freshness import Freshness
from dray.replica.replica import Replica
from dray.topics.errors import UnknownPartition
from dray.topics.service import TopicService

BUDGET_BYTES: Final = 256 << 20


class AckService:
    """The settled offsets of groups."""

    def __init__(self, domains: Domains, topics: TopicService, budget_bytes: int = BUDGET_BYTES) -> None:
        self._domains = domains
        self._topics = topics
        self._budget_bytes = budget_bytes

    def replica(self, group: str) -> Replica:
        """The replica that keeps a group."""
        return self._domains[self._domain(group)]

    def _domain(self, group: str) -> int:
        check_group(group)
        return domain_of_group(group, self._domains.catalog.machine.head.group_domains)

    async def ready(self, group: str, streams: Iterable[StreamId]) -> None:
        """Return when one can look at a group and at these streams; `NotLoaded` if that takes too long (DL3)."""
        if not self._domains.is_whole:
            for domain in sorted({self._domain(group), *map(domain_of, streams)}):
                await self._domains.ready(domain)

    async def find(self, group: str, topic: Topic, partition: int, fresh: Freshness) -> Topic:
        """The topic, as it is known when it has a partition of this number, whose stream is known here, too.

        `UnknownPartition` only after a sync of the catalog, and of the domain in which the partition lives (TS1).
        """
        known = await self._topics.find_partition(topic, partition, fresh)
        await self.ready(group, (known.streams[partition],))
        replica = self._domains.of(known.streams[partition])
        if replica.machine.streams.find(known.streams[partition]) is None:
            await fresh.of(replica)
        self.stream(known, partition)
        return known

    def stream(self, topic: Topic, partition: int) -> Stream:
        """The stream of a partition that was found before; `UnknownPartition`: it is gone since."""
        number = topic.streams[partition]
        found = self._domains.of(number).machine.streams.find(number)
        if found is None or found.closed:
            raise UnknownPartition("no such partition", topic=topic.name, partition=partition)
        return found

    def position(self, group: str, topic: Topic, partition: int) -> tuple[int, Acks]:
        """From where a group reads, and what is settled above it; from memory."""
        kept = self.replica(group).machine.offsets
        found, stream = kept.find(group, topic.id, partition), self.stream(topic, partition)
        floor = stream.start if found is None else max(found.offset, stream.start)
        return floor, kept.acks(group, topic.id, partition)

    async def ack(
        self, group: str, topic: Topic, partition: int, spans: Sequence[Span], fresh: Freshness | None = None
    ) -> int:
        """Settle offsets; the offset below which all are settled. `fresh`: what was synced for the same request.

        Raises:
            BadAck, UnknownPartition, GroupHasMembers, TooScattered, NoRoom: nothing was settled.
            AckFailed: nothing was; try again.
            AckUnknown: it may have been; try again.
        """
        _, wanted = merge(-1, [], spans)
        if len(wanted) > MAX_RANGES:
            raise BadAck("too many ranges at once", most=MAX_RANGES)
        fresh = fresh or Freshness()
        topic = await self.find(group, topic, partition, fresh)
        await self._check_end(topic, partition, wanted, fresh)
        floor, known = self.position(group, topic, partition)
        if all(end <= floor or known.covers_all((max(start, floor), end)) for start, end in wanted):  # CO1
            telemetry.SETTLED.labels("covered").inc()
            return floor
        acked = await self._propose(group, topic, partition, wanted, ())
        telemetry.SETTLED.labels("acked").inc()
        return acked.next

    async def fail(self, group: str, topic: Topic, partition: int, offsets: Sequence[int]) -> dict[int, int]:
        """Offsets failed once more: how often each has, 0: it is settled. Raises as `ack`."""
        fresh = Freshness()
        topic = await self.find(group, topic, partition, fresh)
        await self._check_end(topic, partition, [(offset, offset + 1) for offset in offsets], fresh)
        attempts: dict[int, int] = {}
        for first in range(0, len(offsets), MAX_RANGES):
            part = tuple(offsets[first : first + MAX_RANGES])
            acked = await self._propose(group, topic, partition, (), part)
            attempts |= dict(zip(part, acked.attempts, strict=True))
        telemetry.SETTLED.labels("failed").inc()
        return attempts

    async def _check_end(self, topic: Topic, partition: int, spans: Sequence[Span], fresh: Freshness) -> None:
        highest = max((end for _, end in spans), default=0)
        if highest <= self.stream(topic, partition).end:
            return
        await fresh.of(self._domains.of(topic.streams[partition]))  # CO3
        end = self.stream(topic, partition).end
        if highest > end:
            raise BadAck("an offset is beyond the end of its partition", partition=partition, end=end)

    async def _propose(
        self, group: str, topic: Topic, partition: int, spans: Sequence[Span], failed: tuple[int, ...]
    ) -> Acked:
        replica = self.replica(group)
        if sum(one.machine.offsets.bytes for _, one in self._domains) > self._budget_bytes:
            raise NoRoom("the offsets of all groups have used up their budget")
        command = AckOffsets(
            group=group, topic_id=topic.id, partition=partition, start=self.stream(topic, partition).start,
            ranges=tuple(spans), failed=failed,
        )  # fmt: skip
        try:
            (verdict,) = await replica.propose(command)
        except Unknown as error:
            raise AckUnknown("nobody knows whether it was settled") from error
        except Unavailable as error:
            raise AckFailed("nothing was settled: try again") from error
        match verdict:
            case Acked():
                return verdict  # CO2
            case Denied(code=code):
                raise GroupHasMembers("the group has members, which commit its offsets", group=group, code=code.name)
            case Refused(why=Why.LIMIT):
                raise TooScattered("too many ranges are settled above an offset that is not", most=MAX_RANGES)
            case Refused(why=Why.MALFORMED, reason=reason):
                raise BadAck(reason)
            case _:
                raise AckFailed("the machine refused: try again", verdict=verdict)
