"""ListOffsets, as a service: the ends of a stream, and offsets by time.

Times are those of records, which need not rise with the offsets. A row's
greatest timestamp says whether its batch can matter, so the index leads to
the one batch that holds the answer; only a batch that the log start cuts in
two may be read in vain.

Invariants
    F12  Every answer here is given after a sync that began when the question
         was here (R-132).
    F13  By time: the lowest offset, at or above the log start, whose record
         is not older; the same as reading every record would find (R-133).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from dray.errors import Corrupt, NotFound
from dray.fetch import telemetry
from dray.fetch.errors import DamagedObject
from dray.fetch.plan import Run
from dray.fetch.service import FetchService
from dray.machine.index import IndexRow
from dray.machine.names import StreamId
from dray.machine.stream import Stream
from dray.objects.paths import ObjectKind
from dray.offload import Offload
from dray.records import BatchView, InvalidBatch, first_at_or_after, newest, one_batch, records_of
from dray.replica.freshness import Freshness
from dray.telemetry import logger


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A record, by its place and time."""

    offset: int
    timestamp_ms: int


Search: TypeAlias = Callable[[BatchView], tuple[int, int] | None]


class OffsetLookup:
    """What handlers ask about offsets.

    All of it raises `StreamGone`, after a sync, and what is of kind UNAVAILABLE
    or CORRUPT, as a fetch does.
    """

    def __init__(self, fetch: FetchService, offload: Offload) -> None:
        self._fetch = fetch
        self._planner = fetch.planner
        self._offload = offload

    async def latest(self, stream: StreamId, fresh: Freshness | None = None) -> int:
        """Where the next record will be."""
        return (await self._fresh(stream, fresh or Freshness())).end

    async def earliest(self, stream: StreamId, fresh: Freshness | None = None) -> int:
        """The log start."""
        return (await self._fresh(stream, fresh or Freshness())).start

    async def end_of_epoch(self, stream: StreamId, epoch: int, fresh: Freshness | None = None) -> int | None:
        """Where a leader epoch ended, or the end if it is the present one; None: there is no such epoch."""
        found = await self._fresh(stream, fresh or Freshness())
        machine = self._planner.replica_of(stream).machine
        if not 0 <= epoch <= machine.head.generation:
            return None
        known = machine.generations.end_of(stream, epoch) if epoch < machine.head.generation else None
        return found.end if known is None else min(known, found.end)

    async def at_time(self, stream: StreamId, timestamp_ms: int, fresh: Freshness | None = None) -> Found | None:
        """The first record that is not older than a time (F13)."""
        return await self._twice(lambda known: self._at_time(stream, timestamp_ms, known), fresh)

    async def newest(self, stream: StreamId, fresh: Freshness | None = None) -> Found | None:
        """The first record with the greatest timestamp; None if there is none, or none has a timestamp."""
        return await self._twice(lambda known: self._newest(stream, known), fresh)

    async def _at_time(self, stream: StreamId, timestamp_ms: int, fresh: Freshness) -> Found | None:
        found = await self._fresh(stream, fresh)
        index, start = found.index, found.start
        first = index.find(start)
        number = None if first is None else index.find_time(timestamp_ms, first)
        # Everything is taken from the index before the first read: it may move while we wait.
        candidates: list[tuple[IndexRow, Run]] = []
        while number is not None and not (candidates and candidates[-1][0].start >= start):
            row = index.row(number)
            candidates.append((row, self._planner.run_at(stream, row)))
            number = index.find_time(timestamp_ms, number + 1)
        for row, run in candidates:
            answer = await self._first_since(row, run, start, timestamp_ms)
            if answer is not None:
                return answer
        return None

    async def _newest(self, stream: StreamId, fresh: Freshness) -> Found | None:
        found = await self._fresh(stream, fresh)
        index, start = found.index, found.start
        first = index.find(start)
        if first is None:
            return None
        row = index.row(first)
        cut = (row, self._planner.run_at(stream, row)) if row.start < start else None
        number = index.find_latest_time(first if cut is None else first + 1)
        whole = None
        if number is not None:
            row = index.row(number)
            whole = (row, self._planner.run_at(stream, row))
        best = None if cut is None else await self._newest_of(*cut, start)
        if whole is not None and whole[0].max_timestamp_ms > (-1 if best is None else best.timestamp_ms):
            best = await self._newest_of(*whole, start)
        return None if best is None or best.timestamp_ms < 0 else best

    async def _fresh(self, stream: StreamId, fresh: Freshness) -> Stream:
        """The stream as it is after a sync, which all questions of one request share (F12)."""
        replica = self._planner.replica_of(stream)
        await fresh.of(replica)
        self._fetch.check_serving(replica)
        return self._planner.open_stream(stream)

    async def _first_since(self, row: IndexRow, run: Run, start: int, timestamp_ms: int) -> Found | None:
        """The first record of a row that is not older, and not below the log start."""
        if run.place.kind is not ObjectKind.PARQUET:
            return await self._ask(row, run, _since(row, start, timestamp_ms))
        return await self._in_file(run, self._fetch.files.first_since(run, max(start, row.start), timestamp_ms))

    async def _newest_of(self, row: IndexRow, run: Run, start: int) -> Found | None:
        """The first record of a row with its greatest timestamp, not below the log start."""
        if run.place.kind is not ObjectKind.PARQUET:
            return await self._ask(row, run, _greatest(row, start))
        return await self._in_file(run, self._fetch.files.greatest(run, max(start, row.start)))

    async def _in_file(self, run: Run, search: Awaitable[tuple[int, int] | None]) -> Found | None:
        """A row that is a file tells by itself which of its records that is."""
        try:
            found = await search
        except (Corrupt, NotFound) as error:
            self._fetch.sources.forget(run.place)
            raise DamagedObject("a file cannot be read", name=run.place.path, offset=run.offset) from error
        return None if found is None else Found(offset=found[0], timestamp_ms=found[1])

    async def _ask(self, row: IndexRow, run: Run, search: Search) -> Found | None:
        """Read one batch and search it, away from the loop."""
        (read,) = await self._fetch.sources.read([run])
        if isinstance(read.error, Corrupt | NotFound):
            self._fetch.sources.forget(run.place)
            raise DamagedObject("a batch cannot be read", name=run.place.path, offset=row.start) from read.error
        if read.error is not None:
            raise read.error
        try:
            found = await self._offload.run(search, one_batch(read.views[0]))
        except InvalidBatch as error:
            raise DamagedObject("a stored batch cannot be read", name=run.place.path, offset=row.start) from error
        return None if found is None else Found(offset=found[0], timestamp_ms=found[1])

    async def _twice(
        self, attempt: Callable[[Freshness], Awaitable[Found | None]], fresh: Freshness | None
    ) -> Found | None:
        """A batch that cannot be read is looked up again after another sync, once (F11)."""
        try:
            return await attempt(fresh or Freshness())
        except DamagedObject:
            pass
        try:
            return await attempt(Freshness())
        except DamagedObject as error:
            logger().error(telemetry.DAMAGED, error=str(error), **error.facts)
            raise


def _since(row: IndexRow, start: int, timestamp_ms: int) -> Search:
    """The first record of a batch that is not older, and not below the log start."""
    if row.start >= start:
        return lambda batch: first_at_or_after(batch, timestamp_ms, row.start)
    return lambda batch: next(
        (
            (r.offset, r.timestamp)
            for r in records_of(batch, row.start)
            if r.offset >= start and r.timestamp >= timestamp_ms
        ),
        None,
    )


def _greatest(row: IndexRow, start: int) -> Search:
    """The first record of a batch with its greatest timestamp, not below the log start."""
    if row.start >= start:
        return lambda batch: newest(batch, row.start)
    return lambda batch: max(
        ((r.offset, r.timestamp) for r in records_of(batch, row.start) if r.offset >= start),
        key=lambda found: found[1],
        default=None,
    )
