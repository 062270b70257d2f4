"""Rows are read by the kind of the objects that they name."""

import random
from collections.abc import Sequence

from dray.errors import Unavailable
from dray.fetch.errors import Unreadable
from dray.fetch.plan import Place, Run
from dray.fetch.service import Failed
from dray.fetch.sources.by_kind import Sources
from dray.fetch.sources.source import RunRead
from dray.machine.index import IndexRow
from dray.machine.names import SessionId, StreamId
from dray.objects.paths import ObjectKind
from tests.fetch.test_service import check, end_of
from tests.fetch.world import MIB, World, Written, random_batch, world


class RowFiles:
    """A source of files that hold many batches in a row, as a compaction leaves them."""

    readahead_limit = 1_000

    def __init__(self) -> None:
        self.files: dict[str, list[Written]] = {}
        self.asked: list[str] = []
        self.ahead: list[str] = []
        self.forgotten: list[str] = []
        self.closed = False

    async def read(self, runs: Sequence[Run]) -> list[RunRead]:
        self.asked += [run.place.path for run in runs]
        return [self._one(run) for run in runs]

    def _one(self, run: Run) -> RunRead:
        wanted = [batch for batch in self.files[run.place.path] if batch.end > run.offset]
        rows, size = [], 0
        for batch in wanted:
            if rows and size + len(batch.data) > run.room:
                break
            rows.append(IndexRow(batch.start, batch.end, 0, run.rows[0].object, 0, len(batch.data), 0))
            size += len(batch.data)
        views = [memoryview(batch.data) for batch in wanted[: len(rows)]]
        return RunRead(rows, views, None, False)

    def read_ahead(self, runs: Sequence[Run]) -> None:
        self.ahead += [run.place.path for run in runs]

    def forget(self, place: Place) -> None:
        self.forgotten.append(place.path)

    async def close(self) -> None:
        self.closed = True


def compact(here: World, stream: StreamId, files: RowFiles | None, first: int, end: int) -> Place:
    """Let one file stand for the rows [first, end) of a stream, as a swap will."""
    machine = here.replica.machine
    index = machine.streams.find(stream).index
    start, upto = index.row(first).start, index.row(end - 1).end
    number = machine.objects.record(
        ObjectKind.KFS, log_id=machine.log_id, session=SessionId(1), counter=9_000 + first, size=1, created_ms=0,
        zone="", rows=1,
    )  # fmt: skip
    place = Place(f"file-{number}", 1, 0, ObjectKind.KFS)
    here.service.planner._places[machine.domain, number] = place  # the kind has no names yet
    if files is not None:
        files.files[place.path] = [one for one in here.truth[stream] if start <= one.start < upto]
    index.replace(first, end, number)
    return place


async def filled(here: World, batches: int = 12) -> None:
    dice = random.Random(8)
    for _ in range(batches):
        await here.write([(stream, random_batch(dice)) for stream in here.streams])


async def test_every_offset_is_found_through_files_and_wal_objects_alike():
    """H3, F17: one answer goes on from a file into the next, and into what was not compacted yet."""
    async with world() as here:
        await filled(here)
        files = RowFiles()
        here.service.sources = Sources({**here.service.sources._by_kind, ObjectKind.KFS: files})
        stream = here.streams[1]
        compact(here, stream, files, 0, 4)
        compact(here, stream, files, 1, 6)
        for offset in range(end_of(here, stream)):
            answer = await here.fetch_one(stream, offset)
            check(answer, [one for one in here.truth[stream] if one.end > offset], end_of(here, stream))
        answers = await here.fetch(*[(each, 0, MIB) for each in reversed(here.streams)])
        for each, answer in zip(reversed(here.streams), answers, strict=True):
            check(answer, here.truth[each], end_of(here, each))
        small = await here.fetch_one(stream, 0, 400)
        assert small.parts


async def test_a_kind_that_nobody_reads_fails_for_its_own_streams():
    """F17: retriable, since another build may read it."""
    async with world() as here:
        await filled(here)
        cold, warm = here.streams[:2]
        place = compact(here, cold, None, 0, 3)
        failed, served = await here.fetch((cold, 0, MIB), (warm, 0, MIB))
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, Unreadable)
        assert isinstance(failed.error, Unavailable)
        assert failed.error.facts == {"kind": "KFS", "name": place.path}
        check(served, here.truth[warm], end_of(here, warm))


async def test_each_source_is_asked_for_its_own_and_ended():
    """F17"""
    one, two = RowFiles(), RowFiles()
    sources = Sources({ObjectKind.WAL: one, ObjectKind.KFS: two})
    places = [Place(f"{number}", 1, 0, list(ObjectKind)[number % 3]) for number in range(9)]
    runs = [Run(place, [], 0, 0) for place in places]
    for files in (one, two):
        files.files = {place.path: [] for place in places}
    reads = await sources.read(runs)
    assert [isinstance(read.error, Unreadable) for read in reads] == [number % 3 == 1 for number in range(9)]
    sources.read_ahead(runs)
    for place in places:
        sources.forget(place)
    for files, kind in ((one, 0), (two, 2)):
        mine = [place.path for number, place in enumerate(places) if number % 3 == kind]
        assert (files.asked, files.ahead, files.forgotten) == (mine, mine, mine)
    assert await sources.read([]) == []
    await sources.close()
    assert one.closed
    assert two.closed
    assert sources.readahead_limit == 2_000
