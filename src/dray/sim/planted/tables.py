"""Mistakes about files and the rows that they stand for."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dray.fetch.plan import Run
from dray.fetch.sources.parquet import ParquetSource
from dray.machine.garbage import Objects
from dray.machine.names import LogId, ObjectId, SessionId
from dray.machine.objects import ObjectTable
from dray.machine.step import Step
from dray.machine.stream import Stream
from dray.machine.table_files import TableFile
from dray.machine.tasks import Task, Tasks
from dray.machine.verdict import Done, Verdict
from dray.objects.paths import ObjectKind
from dray.sim.disk import FakeFile

if TYPE_CHECKING:
    from dray.parquet.read import Rebuilt


def put_over_one_row_more(self: Tasks, stream: Stream, number: ObjectId) -> bool:
    """A file takes the place of the row behind its range, too."""
    file, index = self._objects.files[number], stream.index
    first, end = index.count_below(file.start), index.count_below(file.end)
    if first == end:
        return False
    self._streams.put_file(stream, first, min(end + 1, len(index)), number)
    return True


_RECORD_FILE: Final = Objects.record_file


def record_without_the_table(
    self: Objects, file: TableFile, *, session: SessionId, counter: int, size: int, created_ms: int, rows: int
) -> ObjectId:
    """A file counts its task alone, although it goes into a table."""
    return _RECORD_FILE(
        self, replace(file, held=False), session=session, counter=counter, size=size, created_ms=created_ms, rows=1
    )


def counters_of_wal_objects(self: ObjectTable, log_id: LogId, session: SessionId) -> set[int]:
    """The sweep is told of WAL objects alone."""
    return {
        block.counters[slot]
        for block in self._blocks.values()
        for slot in range(len(block.rows))
        if block.sessions[slot] == session and self._origins[block.origins[slot]][:2] == (ObjectKind.WAL, log_id)
    }


_ABANDON: Final = Tasks._abandon


def abandon_and_let_go(self: Tasks, step: Step, task: Task) -> Verdict:
    """What a task that is given up has written is taken for unused, although a commit may have landed."""
    verdict = _ABANDON(self, step, task)
    if isinstance(verdict, Done):
        for number in task.files:
            file = self._objects.files.get(number)
            if file is not None and file.held:
                self._objects.files[number] = replace(file, held=False)
                self._objects.release(step, (number,))
    return verdict


_SYNC: Final = FakeFile.sync


def sync_of_no_files(self: FakeFile) -> None:
    """Files of tables are told as durable while they are in the cache alone."""
    if self._path.suffix != ".parquet":
        _SYNC(self)


_REBUILD: Final = ParquetSource._rebuild


async def rebuild_one_later(self: ParquetSource, run: Run, made: "list[Rebuilt]") -> None:
    """A fetch from a file begins one record too late."""
    await _REBUILD(self, run._replace(offset=min(run.offset + 1, run.rows[0].end - 1)), made)
