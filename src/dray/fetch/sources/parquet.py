"""Batches out of Parquet files: rebuilt from the rows of the row groups that are needed, and no others.

The end of a file is read once and remembered; a group is read as one range,
and its rows stay in memory for a while, because a consumer takes them a
megabyte at a time. A consumer that comes towards the end of a group finds the
next one being read.

pyarrow is loaded by the first read, in a thread, like everything that works on
rows: a broker whose topics have no files never has it.

Invariants
    F30  Of a file only its end and the row groups that hold wanted offsets are
         read, each once at a time however many ask for it (R-123).
    F31  The rows that are kept in memory take at most `cold_cache_bytes`, or
         one group; nothing of a file is worked on by the loop itself.
    F32  A batch is given out only if its rows were read whole from a file that
         is undamaged as far as it can tell; a file that ends before an offset
         that the index finds in it is an error, never a gap.
"""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dray.errors import Corrupt, DrayError, NotFound, Unavailable
from dray.fetch import telemetry
from dray.fetch.errors import BadStoredBatch, ReadTimeout, Unreadable
from dray.fetch.plan import Place, Run
from dray.fetch.settings import FetchSettings
from dray.fetch.sources.source import RunRead
from dray.machine.index import IndexRow
from dray.objects.port import Objects
from dray.offload import Offload
from dray.parquet.footer import footer_bytes
from dray.parquet.mapping import map_libraries

if TYPE_CHECKING:
    from dray.parquet.read import Footer, GroupRows, Rebuilt

FOOTERS: Final = 512
"""Files whose ends are remembered."""
TAIL_BYTES: Final = 64 << 10
"""What is read of a file's end at first: most footers are in it."""

RowParts: TypeAlias = "list[GroupRows]"


class _GroupKey(NamedTuple):
    path: str
    number: int


class ParquetSource:
    """Reads batches that are rows of files."""

    readahead_limit: int = 0
    """It reads ahead by itself: who asks for a group's second half is about to ask for the next one."""

    def __init__(self, objects: Objects, offload: Offload, settings: FetchSettings) -> None:
        self._objects = objects
        self._offload = offload
        self._deadline_s = settings.read_deadline.total_seconds()
        self._limit_bytes = int(settings.cold_cache_bytes)
        self._slots = asyncio.Semaphore(settings.gets_in_flight)
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self._groups: OrderedDict[_GroupKey, RowParts] = OrderedDict()
        self._held_bytes = 0
        self._flights: dict[_GroupKey, asyncio.Task[RowParts]] = {}
        """Groups that are being read; number -1: the end of a file, which gives no rows."""

    async def read(self, runs: Sequence[Run]) -> list[RunRead]:
        """The batches of each run; what fails, fails for its run alone."""
        return list(await asyncio.gather(*(self._read(run) for run in runs)))

    def read_ahead(self, runs: Sequence[Run]) -> None:
        """It reads ahead by itself."""

    def forget(self, place: Place) -> None:
        """Read a file anew from here on."""
        self._footers.pop(place.path, None)
        for key in [key for key in self._groups if key.path == place.path]:
            self._drop(key)

    async def close(self) -> None:
        """End all reads."""
        tasks = list(self._flights.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def first_since(self, run: Run, start: int, timestamp_ms: int) -> tuple[int, int] | None:
        """The first record of a file, at or behind an offset, that is not older than a time; and its time."""
        footer = await self._footer(run.place)
        for group in footer.groups[footer.first(start) :]:
            if group.greatest_ms >= timestamp_ms:
                for rows in await self._group(run.place, footer, group.number):
                    found = await self._offload.run(rows.first_since, start, timestamp_ms)
                    if found is not None:
                        return found
        return None

    async def greatest(self, run: Run, start: int) -> tuple[int, int] | None:
        """The first record of a file with the greatest time at or behind an offset, and that time."""
        footer = await self._footer(run.place)
        best: tuple[int, int] | None = None
        for group in footer.groups[footer.first(start) :]:
            if best is None or group.greatest_ms > best[1]:  # a group that the start cuts may tell too much
                for rows in await self._group(run.place, footer, group.number):
                    found = await self._offload.run(rows.greatest, start)
                    if found is not None and (best is None or found[1] > best[1]):
                        best = found
        return best

    # -- one run -----------------------------------------------------------

    async def _read(self, run: Run) -> RunRead:
        made: list[Rebuilt] = []
        try:
            await self._rebuild(run, made)
        except (Corrupt, Unavailable, NotFound) as error:
            return _told(run, made, error)
        except DrayError as error:
            refused = Unreadable("the store refused a read: check its credentials and rights", name=run.place.path)
            refused.__cause__ = error
            return _told(run, made, refused)
        return _told(run, made, None)

    async def _rebuild(self, run: Run, made: "list[Rebuilt]") -> None:
        footer = await self._footer(run.place)
        offset, room = run.offset, run.room
        for group in footer.groups[footer.first(offset) :]:
            for rows in await self._group(run.place, footer, group.number):
                oversize = run.oversize and not made
                found = await self._offload.run(partial(rows.batches, offset, room, oversize=oversize))
                made.extend(found)
                room -= sum(len(one.batch) for one in found)
            at = made[-1].end if made else offset
            if 2 * at > group.start + group.end and group.number + 1 < len(footer.groups):
                self._begin(run.place, footer, group.number + 1)
            if at < group.end or room <= 0:
                break
        if footer.first(offset) == len(footer.groups):
            raise BadStoredBatch("the file has no such record", name=run.place.path, offset=offset)  # F32

    # -- what is in memory, and what is on its way ---------------------------

    async def _footer(self, place: Place) -> "Footer":
        found = self._footers.get(place.path)
        if found is None:
            await self._flight(_GroupKey(place.path, -1), lambda: self._read_footer(place))
            found = self._footers.get(place.path)
        if found is None:  # it was forgotten meanwhile
            raise Unavailable("the file is read again: ask once more", name=place.path)
        self._footers.move_to_end(place.path)
        return found

    async def _group(self, place: Place, footer: "Footer", number: int) -> RowParts:
        key = _GroupKey(place.path, number)
        found = self._groups.get(key)
        if found is not None:
            telemetry.HITS.inc()
            self._groups.move_to_end(key)
            return found
        telemetry.MISSES.inc()
        return await self._flight(key, lambda: self._read_group(place, footer, number))

    def _begin(self, place: Place, footer: "Footer", number: int) -> None:
        """Read a group that nobody waits for yet."""
        key = _GroupKey(place.path, number)
        if key not in self._groups:
            self._fly(key, lambda: self._read_group(place, footer, number))

    async def _flight(self, key: _GroupKey, read: Callable[[], Awaitable[RowParts]]) -> RowParts:
        """What a read gives; it goes on when whoever asked for it is gone (F30)."""
        flight = self._fly(key, read)
        await asyncio.wait({flight})
        if flight.cancelled():
            raise Unavailable("the broker is stopping")
        return flight.result()

    def _fly(self, key: _GroupKey, read: Callable[[], Awaitable[RowParts]]) -> "asyncio.Task[RowParts]":
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.create_task(self._land(key, read))
            flight.add_done_callback(partial(self._landed, key))
        return flight

    async def _land(self, key: _GroupKey, read: Callable[[], Awaitable[RowParts]]) -> RowParts:
        rows = await read()
        if key.number >= 0:
            self._keep(key, rows)
        return rows

    def _landed(self, key: _GroupKey, flight: "asyncio.Task[RowParts]") -> None:
        del self._flights[key]
        if not flight.cancelled():
            flight.exception()  # one that nobody waited for may fail without a word: whoever needs it asks again

    def _keep(self, key: _GroupKey, rows: RowParts) -> None:
        """F31"""
        self._drop(key)
        self._groups[key] = rows
        self._held_bytes += sum(part.bytes for part in rows)
        while self._held_bytes > self._limit_bytes and len(self._groups) > 1:
            self._drop(next(iter(self._groups)))

    def _drop(self, key: _GroupKey) -> None:
        self._held_bytes -= sum(part.bytes for part in self._groups.pop(key, ()))

    # -- the store -----------------------------------------------------------

    async def _read_footer(self, place: Place) -> RowParts:
        tail = await self._get(place, max(0, place.size - TAIL_BYTES), place.size)
        needed = footer_bytes(tail)
        if len(tail) < needed <= place.size:
            tail = await self._get(place, place.size - needed, place.size)
        self._footers[place.path] = await self._offload.run(_footer_of, tail, place)
        if len(self._footers) > FOOTERS:
            self._footers.popitem(last=False)
        return []

    async def _read_group(self, place: Place, footer: "Footer", number: int) -> RowParts:
        group = footer.groups[number]
        content = await self._get(place, group.position, group.position + group.size)
        return await self._offload.run(_rows_of, footer, number, content)

    async def _get(self, place: Place, start: int, end: int) -> memoryview:
        try:
            async with asyncio.timeout(self._deadline_s), self._slots:
                content = await self._objects.get(place.path, start, end)
        except TimeoutError:
            raise ReadTimeout("the store did not answer in time", name=place.path, seconds=self._deadline_s) from None
        finally:
            telemetry.GETS.labels("cold").inc()
        telemetry.GET_BYTES.labels("cold").inc(len(content))
        return content


# pyarrow is loaded where these run: in a thread.


def _footer_of(tail: memoryview, place: Place) -> "Footer":
    if "dray.parquet.read" not in sys.modules:
        map_libraries()  # F31: the loop goes on while they are
    from dray.parquet.read import footer_of

    return footer_of(tail, place.size, place.footer_crc)


def _rows_of(footer: "Footer", number: int, content: memoryview) -> RowParts:
    from dray.parquet.read import rows_of

    return rows_of(footer, number, content)


def _told(run: Run, made: "Sequence[Rebuilt]", error: DrayError | None) -> RunRead:
    owner = run.rows[0].object
    rows = [IndexRow(one.start, one.end, 0, owner, 0, len(one.batch), one.greatest_ms) for one in made]
    return RunRead(rows, [one.batch for one in made], error, False)
