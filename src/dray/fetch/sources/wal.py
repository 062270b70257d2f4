"""Batches out of WAL objects: from memory if they are there, else by as few reads as possible.

An object that was just written is about to be asked for by every stream in
it, so it is read whole; an older one in ranges of just the batches needed,
neighbours joined where the gap is small. Who asks for bytes that somebody is
reading already shares that read, and a read goes on when those who asked for
it are gone: others may have joined.

Invariants
    F4  What is given out for a row is a batch of the row's length whose CRC
        is right; anything else is an error, never other bytes.
    F5  A read asks for no byte but needed batches, the lengths between
        neighbours, and gaps of at most `join_gap_bytes` in all; except for
        whole young objects and what is read ahead.
    F6  Bytes that are being read are not asked for again.
    F7  At most `gets_in_flight` reads run for consumers, and a quarter of
        that ahead of them; no more than `readahead_limit` bytes are being
        read ahead.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dray.clock import Clock
from dray.errors import Corrupt, DrayError, Unavailable
from dray.fetch import telemetry
from dray.fetch.cache import ObjectCache, Piece, fetched_piece
from dray.fetch.errors import BadStoredBatch, ReadTimeout, Unreadable
from dray.fetch.plan import Place, Run
from dray.fetch.settings import FetchSettings
from dray.fetch.sources.source import RunRead
from dray.machine.index import LENGTH_BYTES
from dray.objects.port import NoSuchObject, Objects
from dray.pace import Pace
from dray.records import InvalidBatch, one_batch

WHOLE_SHARE: Final = 16
"""An object is read whole only if this many of its size fit into the cache."""


class _Flight(NamedTuple):
    start: int
    end: int
    task: "asyncio.Task[Piece | DrayError]"


class _Wanted(NamedTuple):
    """A run on its way: what memory had of it, and the reads that bring the rest."""

    run: Run
    pieces: list[Piece | None]
    flights: list[_Flight]


class WalSource:
    """Reads batches as they were received: a row is a range of its object."""

    def __init__(self, objects: Objects, cache: ObjectCache, clock: Clock, settings: FetchSettings) -> None:
        self._objects = objects
        self._cache = cache
        self._clock = clock
        self._settings = settings
        self._deadline_s = settings.read_deadline.total_seconds()
        self._slots = asyncio.Semaphore(settings.gets_in_flight)
        self._ahead_slots = asyncio.Semaphore(max(1, settings.gets_in_flight // 4))
        self._ahead_bytes = 0
        self._flights: dict[str, list[_Flight]] = {}
        self.readahead_limit = min(settings.readahead_bytes * 8, int(settings.cache_bytes) // 4)

    async def read(self, runs: Sequence[Run]) -> list[RunRead]:
        """The batches of each run; what fails, fails for its run alone."""
        wanted, pace = [], Pace()
        for run in runs:
            wanted.append(_Wanted(run, self._in_memory(run), []))
            if pace.is_due(1 + len(run.rows)):
                await asyncio.sleep(0)
        missing = [want for want in wanted if None in want.pieces]
        telemetry.HITS.inc(len(wanted) - len(missing))
        if missing:
            telemetry.MISSES.inc(len(missing))
            self._start(missing)
            await asyncio.wait({flight.task for want in missing for flight in want.flights})
        reads = []
        for want in wanted:
            reads.append(_cut(want))
            if pace.is_due(1 + len(want.run.rows)):
                await asyncio.sleep(0)
        return reads

    def read_ahead(self, runs: Sequence[Run]) -> None:
        """Begin to read what is not in memory; nobody waits for it, and it may be left undone (F7)."""
        for run in runs:
            gaps = [
                row_range for row_range, piece in zip(_ranges(run), self._in_memory(run), strict=True) if piece is None
            ]
            for start, end in self._spans(run.place, gaps):
                if self._ahead_bytes + end - start > self.readahead_limit:
                    return
                if self._flying(run.place.path, start, end) is None:
                    self._fly(run.place.path, start, end, ahead=True)

    def forget(self, place: Place) -> None:
        """Read an object anew from here on."""
        self._cache.forget(place.path)

    async def close(self) -> None:
        """End all reads."""
        tasks = [flight.task for flights in self._flights.values() for flight in flights]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _in_memory(self, run: Run) -> list[Piece | None]:
        """For each row the piece that has it."""
        path, found, pieces = run.place.path, None, []
        for row in run.rows:
            end = row.position + row.size
            if found is None or not found.start <= row.position or end > found.end:
                found = self._cache.find(path, row.position)
                if found is not None and end > found.end:
                    found = None
            pieces.append(found)
        return pieces

    def _start(self, missing: Sequence[_Wanted]) -> None:
        """Share the reads that are on their way, and begin those that are not: one pass for each object."""
        gaps: dict[Place, list[tuple[int, int]]] = {}
        for want in missing:
            for (start, end), piece in zip(_ranges(want.run), want.pieces, strict=True):
                if piece is None and self._flying(want.run.place.path, start, end) is None:  # F6
                    gaps.setdefault(want.run.place, []).append((start, end))
        for place, ranges in gaps.items():
            for start, end in self._spans(place, ranges):
                self._fly(place.path, start, end, ahead=False)
        for want in missing:
            for (start, end), piece in zip(_ranges(want.run), want.pieces, strict=True):
                flight = self._flying(want.run.place.path, start, end) if piece is None else None
                if flight is not None and flight not in want.flights:
                    want.flights.append(flight)

    def _spans(self, place: Place, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """What to read so that the ranges are in it (F5)."""
        if ranges and self._is_young(place):
            return [(0, place.size)]
        spans: list[tuple[int, int]] = []
        spare = 0
        for start, end in sorted(ranges):
            gap = start - spans[-1][1] - LENGTH_BYTES if spans else 0
            if spans and gap <= spare:
                spare -= max(0, gap)
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            else:
                spare = int(self._settings.join_gap_bytes)
                spans.append((start, end))
        return spans

    def _is_young(self, place: Place) -> bool:
        age_ms = self._clock.wall_ms() - place.created_ms
        return (
            age_ms < self._settings.young.total_seconds() * 1000 and place.size * WHOLE_SHARE <= self._cache.limit_bytes
        )

    def _flying(self, path: str, start: int, end: int) -> _Flight | None:
        for flight in self._flights.get(path, ()):
            if flight.start <= start and end <= flight.end:
                return flight
        return None

    def _fly(self, path: str, start: int, end: int, *, ahead: bool) -> None:
        task = asyncio.create_task(self._get(path, start, end, ahead=ahead))
        flight = _Flight(start, end, task)
        self._flights.setdefault(path, []).append(flight)
        size = end - start if ahead else 0
        self._ahead_bytes += size  # F7

        def land(_: "asyncio.Task[Piece | DrayError]") -> None:
            self._ahead_bytes -= size
            flights = self._flights[path]
            flights.remove(flight)
            if not flights:
                del self._flights[path]

        task.add_done_callback(land)

    async def _get(self, path: str, start: int, end: int, *, ahead: bool) -> Piece | DrayError:
        kind = "ahead" if ahead else "needed"
        try:
            async with asyncio.timeout(self._deadline_s), self._ahead_slots if ahead else self._slots:  # F7
                content = await self._objects.get(path, start, end)
        except TimeoutError:
            return ReadTimeout("the store did not answer in time", name=path, seconds=self._deadline_s)
        except (Corrupt, Unavailable, NoSuchObject) as error:
            return error
        except DrayError as error:
            refused = Unreadable("the store refused a read: check its credentials and rights", name=path)
            refused.__cause__ = error
            return refused
        finally:
            telemetry.GETS.labels(kind).inc()
        telemetry.GET_BYTES.labels(kind).inc(len(content))
        piece = fetched_piece(path, start, content)
        self._cache.keep(piece)
        return piece


def _ranges(run: Run) -> Iterator[tuple[int, int]]:
    return ((row.position, row.position + row.size) for row in run.rows)


def _cut(want: _Wanted) -> RunRead:
    """The views of a run, checked (F4)."""
    views: list[memoryview] = []
    own = True
    for row, held in zip(want.run.rows, want.pieces, strict=True):
        start, end = row.position, row.position + row.size
        piece = held or _landed(want, start, end)
        if isinstance(piece, DrayError):
            return RunRead(want.run.rows, views, piece, False)
        view = piece.cut(start, end)
        if view is None or not (piece.trusted or _is_batch(view)):
            return RunRead(want.run.rows, views, _bad(want.run.place, start, row.start), False)
        own = own and piece.trusted
        views.append(view)
    return RunRead(want.run.rows, views, None, own)


def _landed(want: _Wanted, start: int, end: int) -> Piece | DrayError:
    for flight in want.flights:
        if flight.start <= start and end <= flight.end:
            return Unavailable("the broker is stopping") if flight.task.cancelled() else flight.task.result()
    raise AssertionError("no read was begun for a batch")


def _is_batch(view: memoryview) -> bool:
    """Does a batch fill these bytes, as it was written?"""
    try:
        return one_batch(view).crc_is_right
    except InvalidBatch:
        return False


def _bad(place: Place, position: int, offset: int) -> BadStoredBatch:
    return BadStoredBatch("no such batch lies here", name=place.path, position=position, offset=offset)
