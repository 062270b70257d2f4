"""How a heap does: how many messages wait, how old, and what happened so far.

Counts by state and totals are those of the machine, after a sync. What only
the rows know (ages, bytes, partitions, priorities) is counted over them in
slices off the apply path, and is at most 15 s old.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from dray.clock import Clock
from dray.errors import NotFound
from dray.heaps.present import present
from dray.heaps.search import SLICE, shard_of
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import Mode
from dray.machine.heaps.kernel import census
from dray.machine.heaps.messages import Totals
from dray.machine.heaps.rows import DEAD, DELAYED, LEASED, READY, SIZE
from dray.machine.names import StreamId
from dray.replica.domains import Domains

FRESH_NS: Final = 15_000_000_000
MAX_PRIORITIES: Final = 1_000
"""Priorities that are told apart, the best ones."""


@dataclass(slots=True)
class HeapBacklog:
    """What waits in one partition, or in all of them."""

    ready: int = 0
    delayed: int = 0
    leased: int = 0
    dead: int = 0
    payload_bytes: int = 0
    """Of bodies, with what they hold besides the payload."""
    oldest_ready_ms: int = 0
    """When the oldest ready message was enqueued; 0: there is none."""

    def add(self, ready: int, delayed: int, leased: int, dead: int, payload_bytes: int, oldest_ready_ms: int) -> None:
        self.ready += ready
        self.delayed += delayed
        self.leased += leased
        self.dead += dead
        self.payload_bytes += payload_bytes
        if oldest_ready_ms:
            self.oldest_ready_ms = min(self.oldest_ready_ms or oldest_ready_ms, oldest_ready_ms)


@dataclass(slots=True)
class RowCensus:
    """What the rows of a shard said when they were looked at last."""

    whole: HeapBacklog = field(default_factory=HeapBacklog)
    partitions: dict[int, HeapBacklog] = field(default_factory=dict)
    priorities: "Counter[int]" = field(default_factory=Counter)
    """Of ready messages."""
    at_ns: int = 0

    def add(self, part: bytes) -> None:
        partitions, priorities = census(part)  # what is prepared is not counted (BA2)
        for number, *counted in partitions:
            self.partitions.setdefault(number, HeapBacklog()).add(*counted)
            self.whole.add(*counted)
        for priority, count in priorities:
            self.priorities[priority] += count


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapStats:
    """One heap."""

    heap: Heap
    backlog: HeapBacklog
    """Counts are of now; bytes and the oldest at most 15 s old."""
    oldest_ready_s: float
    totals: Totals
    inline_bytes: int
    dedup_entries: int
    untold: int
    """Events that are not in the topic of its history."""
    partitions: dict[int, HeapBacklog]
    """Every partition that takes messages or still has some; at most 15 s old."""
    ready_by_priority: dict[int, int]
    """The best thousand, best first; at most 15 s old."""


class Statistics:
    """Counts the messages of heaps."""

    def __init__(self, *, domains: Domains, clock: Clock) -> None:
        self._domains = domains
        self._clock = clock
        self._known: dict[StreamId, RowCensus] = {}
        self._looking: dict[StreamId, asyncio.Lock] = {}

    async def of(self, heap: Heap) -> HeapStats:
        """Raises `UnknownHeap`, `Unavailable`."""
        replica = self._domains.of(heap.shard)
        await replica.sync()
        return await self.seen(heap)

    async def seen(self, heap: Heap) -> HeapStats:
        """As `of`, without a sync: what this broker knows."""
        replica = self._domains.of(heap.shard)
        census = await self._census(heap)
        shard = shard_of(replica, heap)
        counts, now_ms = shard.messages.rows.counts, present(replica, self._clock).now_ms
        oldest_ms = census.whole.oldest_ready_ms if counts[READY] else 0
        backlog = HeapBacklog(
            counts[READY], counts[DELAYED], counts[LEASED], counts[DEAD], census.whole.payload_bytes, oldest_ms
        )
        sign = -1 if shard.messages.mode is Mode.MAX else 1
        best = sorted(census.priorities, key=lambda priority: sign * priority)[:MAX_PRIORITIES]
        partitions = {number: HeapBacklog() for number in range(shard.partitions)} | census.partitions
        return HeapStats(
            heap=heap, backlog=backlog, oldest_ready_s=max(0, now_ms - oldest_ms) / 1_000 if oldest_ms else 0.0,
            totals=Totals(*shard.messages.totals.values()), inline_bytes=shard.messages.inline_bytes,
            dedup_entries=shard.dedup.count,
            untold=0 if shard.messages.history is None else len(shard.messages.history.events),
            partitions=dict(sorted(partitions.items())),
            ready_by_priority={priority: census.priorities[priority] for priority in best},
        )  # fmt: skip

    async def _census(self, heap: Heap) -> RowCensus:
        """One look at a time; who comes meanwhile takes what it finds."""
        async with self._looking.setdefault(heap.shard, asyncio.Lock()):
            known = self._known.get(heap.shard)
            if known is not None and self._clock.boot_ns() - known.at_ns < FRESH_NS and not self._is_small(heap):
                return known
            census = RowCensus(at_ns=self._clock.boot_ns())
            try:
                await self._count(heap, census)
            except NotFound:
                self.forget(heap.shard)
                raise
            self._known[heap.shard] = census
            return census

    def _is_small(self, heap: Heap) -> bool:
        """One slice is cheaper than an answer that is old."""
        return shard_of(self._domains.of(heap.shard), heap).messages.rows.slots <= SLICE

    async def _count(self, heap: Heap, census: RowCensus) -> None:
        replica, start = self._domains.of(heap.shard), 0
        while start < (rows := shard_of(replica, heap).messages.rows).slots:
            census.add(bytes(memoryview(rows.data)[start * SIZE : (start + SLICE) * SIZE]))
            start += SLICE
            if start < rows.slots:
                await asyncio.sleep(0)

    def forget(self, shard: StreamId) -> None:
        """A heap is gone."""
        self._known.pop(shard, None)
        self._looking.pop(shard, None)
