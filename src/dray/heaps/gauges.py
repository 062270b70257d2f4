"""Heaps as metrics: what each broker knows of every heap, at most 15 s old."""

from contextlib import suppress
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps import telemetry
from dray.heaps.stats import HeapStats, Statistics
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.messages import Totals
from dray.machine.names import StreamId
from dray.replica.errors import NotLoaded
from dray.replica.replica import Replica
from dray.telemetry import logger

EVERY_S: Final = 15.0
MAX_HEAPS: Final = 1_000
"""Heaps that are told apart, by name; the others are not told."""
MAX_PARTITIONS: Final = 64
"""Partitions of one heap that are told apart."""
_NOW: Final = (
    telemetry.READY, telemetry.DELAYED, telemetry.LEASED, telemetry.DEAD, telemetry.OLDEST, telemetry.PAYLOAD_BYTES,
    telemetry.INLINE_BYTES, telemetry.DEDUP_ENTRIES, telemetry.UNTOLD,
)  # fmt: skip
_SO_FAR: Final = (
    ("enqueued", telemetry.ENQUEUED), ("duplicates", telemetry.DUPLICATES), ("granted", telemetry.GRANTED),
    ("acked", telemetry.ACKED), ("failed", telemetry.RETRIES), ("died", telemetry.DIED),
    ("dropped", telemetry.DROPPED), ("expired", telemetry.EXPIRED),
)  # fmt: skip


class HeapGauges:
    """Keeps the metrics of heaps up to date."""

    def __init__(self, *, catalog: Replica, stats: Statistics, clock: Clock) -> None:
        self._catalog = catalog
        self._stats = stats
        self._clock = clock
        self._told: dict[str, tuple[StreamId, Totals, int]] = {}
        """By name: the shard, its totals as they were told last, and how many partitions were told apart."""

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                await self.step()
            except DrayError as error:
                logger().warning(telemetry.UPKEEP_FAILED, error=str(error))
            await self._clock.sleep(EVERY_S)

    async def step(self) -> None:
        """Look at every heap once."""
        heaps = list(self._catalog.machine.heap_catalog.visible())[:MAX_HEAPS]
        for name in set(self._told) - {heap.name for heap in heaps}:
            self._forget(name)
        for heap in heaps:
            try:
                stats = await self._stats.seen(heap)
            except NotLoaded:  # whoever leads its domain tells
                if heap.name in self._told:
                    self._forget(heap.name)
                continue
            except DrayError:  # it is being deleted, or its domain is not known here yet
                continue
            self._tell(heap, stats)

    def _tell(self, heap: Heap, stats: HeapStats) -> None:
        backlog = stats.backlog
        known = self._told.get(heap.name)
        if known is not None and known[0] != heap.shard:
            self._forget(heap.name)
            known = None
        before = Totals() if known is None else known[1]
        values = (
            backlog.ready, backlog.delayed, backlog.leased, backlog.dead, stats.oldest_ready_s, backlog.payload_bytes,
            stats.inline_bytes, stats.dedup_entries, stats.untold,
        )  # fmt: skip
        for gauge, value in zip(_NOW, values, strict=True):
            gauge.labels(heap.name).set(value)
        for name, counter in _SO_FAR:
            counter.labels(heap.name).inc(max(0, getattr(stats.totals, name) - getattr(before, name)))
        partitions = 0 if len(stats.partitions) < 2 else min(len(stats.partitions), MAX_PARTITIONS)
        for number in list(stats.partitions)[:partitions]:
            one = stats.partitions[number]
            telemetry.BACKLOG.labels(heap.name, str(number)).set(one.ready + one.delayed)
        self._told[heap.name] = heap.shard, stats.totals, partitions

    def _forget(self, name: str) -> None:
        shard, _, partitions = self._told.pop(name)
        with suppress(KeyError):  # by another service of this process
            for gauge in _NOW:
                gauge.remove(name)
            for _, counter in _SO_FAR:
                counter.remove(name)
            for number in range(partitions):
                telemetry.BACKLOG.remove(name, str(number))
        self._stats.forget(shard)
