"""Compaction, as a saga: which range of a stream somebody turns into files, and how far that has come.

    CREATED --FilesWritten--> PARQUET_WRITTEN --TableCommitted--> ICEBERG_COMMITTED --Swap--> INDEX_SWAPPED
                                                                                                  |
                                           (forgotten) <--FinishTask: slices, until no row is left-+

Each step is durable before the next effect begins, and says all that somebody
else needs to go on: a compactor that died leaves its task behind, and another
one takes it over. The session is the fence here too: a compactor that was
expired while it slept can change nothing (Q3). What it may still do to a table
is the table's own affair: each task is committed with the range that it is for.

A task begins at the first row that is no file yet (or takes neighbouring files
that are to become fewer: a rewrite), and ends at a row's end. `Swap` puts the
files into the place of the rows in one step, whatever their number; the objects
that the rows named are let go in slices afterwards (Q8, H7).

Invariants
    SW1  A stream has at most one task, and only the session that has it moves
         it; another may take it over when that session has ended.
    SW2  A task goes from state to state in the one order, and is given up only
         before its files are in the table, or when its stream is no more.
    SW3  The files of a task were written by the session that names them, cover
         its range without a gap, and end where rows end. They are known to the
         machine before a table can be.
    SW4  `Swap` moves no offset: each file takes the place of exactly the rows
         of its range that are still there. What retention took meanwhile stays
         taken, and a file of which no row is left gets none.
    SW5  Whatever becomes of a task, each of its files is named by it, by a row,
         by the table, or dead.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from dray.machine.command import MAX_ROWS, Command, Count, Limit, MaybeMillis, Millis, Packed, Part, StreamField, Text
from dray.machine.garbage import Objects
from dray.machine.head import Head
from dray.machine.index import Index
from dray.machine.keys import Shape
from dray.machine.names import ObjectId, SessionId, StreamId, domain_of
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.sessions import Sessions
from dray.machine.step import Step
from dray.machine.stream import Stream
from dray.machine.streams import Streams
from dray.machine.table_files import TableFile
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Refused, Verdict, Why, refused

TASK_KEY: Final = Shape("streams/#/compaction/tasks/#")
MAX_FILES: Final = 100
"""Of one task."""
MAX_TASK_ROWS: Final = 65_536
"""Of one task: what a Swap copies stays within what an entry may cost (Q8)."""
MAX_FILE_OFFSETS: Final = (1 << 31) - 1

Counter: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Checksum: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]


class TaskState(IntEnum):
    """How far a task has come. The numbers are part of the checkpoint format."""

    CREATED = 0
    PARQUET_WRITTEN = 1
    ICEBERG_COMMITTED = 2
    INDEX_SWAPPED = 3


class CreateTask(Packed, frozen=True, kw_only=True):
    """Take the range [start, end) of a stream in hand."""

    number = 47
    since = 2

    stream: StreamField
    start: Count
    end: Count
    rewrite: bool = False
    """The range is of files, which are to become fewer."""
    table: bool = True
    """Its files go into a table before they go into the index."""


class TakeTask(Packed, frozen=True, kw_only=True):
    """Go on with the task of a session that has ended."""

    number = 48
    since = 2

    stream: StreamField
    task: Count


class WrittenFile(Part, frozen=True, kw_only=True):
    """A file that lies in the store, whole and synced."""

    counter: Counter
    """With log id and session, its name."""
    size: Count
    start: Count
    end: Count
    records: Count
    min_timestamp_ms: MaybeMillis
    max_timestamp_ms: MaybeMillis
    created_ms: Millis
    footer_crc: Checksum = 0
    """CRC-32C of the end of the file that tells of the rest, as the writer had it; 0: not told."""


class FilesWritten(Packed, frozen=True, kw_only=True):
    """The files of a task are there. Said again before the table knows them, others take their place."""

    number = 49
    since = 2

    stream: StreamField
    task: Count
    files: Annotated[tuple[WrittenFile, ...], Meta(min_length=1, max_length=MAX_FILES)]

    def needs(self) -> int:
        return 2 * MAX_FILES


class TableCommitted(Packed, frozen=True, kw_only=True):
    """The files of a task are in the table, by the commit of this name."""

    number = 50
    since = 2

    stream: StreamField
    task: Count
    commit: Text


class Swap(Packed, frozen=True, kw_only=True):
    """Put the files of a task into the place of the rows that they hold."""

    number = 51
    since = 2

    stream: StreamField
    task: Count

    def needs(self) -> int:
        return MAX_FILES


class FinishTask(Packed, frozen=True, kw_only=True):
    """Let go of what the replaced rows named, at most `limit` of them. A slice: ask again while some are left."""

    number = 52
    since = 2

    stream: StreamField
    task: Count
    limit: Limit = MAX_ROWS


class AbandonTask(Packed, frozen=True, kw_only=True):
    """Give a task up. What it has written stays the table's, if it goes into one, until that lets go of it."""

    number = 53
    since = 2

    stream: StreamField
    task: Count

    def needs(self) -> int:
        return MAX_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCreated(Verdict):
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesKnown(Verdict):
    """The objects that the files have become, in their order."""

    objects: tuple[ObjectId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapped(Verdict):
    """The files that stand in the index now; `left` rows wait to be let go by `FinishTask`."""

    objects: tuple[ObjectId, ...]
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished(Verdict):
    """`left` rows remain to be let go; at 0 the task is done and forgotten."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a compactor has in hand."""

    id: int
    stream: StreamId
    session: SessionId
    state: TaskState
    start: int
    end: int
    rewrite: bool
    table: bool
    files: tuple[ObjectId, ...]
    commit: str
    created_ms: int
    changed_ms: int


TaskStep: TypeAlias = TakeTask | FilesWritten | TableCommitted | Swap | FinishTask | AbandonTask


class Tasks:
    """The tasks of a domain, by their stream (SW1)."""

    name: ClassVar[str] = "tasks"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (
        CreateTask, TakeTask, FilesWritten, TableCommitted, Swap, FinishTask, AbandonTask,
    )  # fmt: skip

    def __init__(self, head: Head, timeline: Timeline, sessions: Sessions, streams: Streams, objects: Objects) -> None:
        self.next = 0
        self.by_stream: dict[StreamId, Task] = {}
        self._head = head
        self._timeline = timeline
        self._sessions = sessions
        self._streams = streams
        self._objects = objects

    def find(self, stream: StreamId) -> Task | None:
        return self.by_stream.get(stream)

    def apply(self, step: Step, command: Command) -> Verdict:
        if isinstance(command, CreateTask):
            return self._create(step, command)
        if not isinstance(command, TaskStep):
            return stray(command)
        task = self.by_stream.get(command.stream)
        if task is None or task.id != command.task:
            return refused(Why.NOT_FOUND, "no such task: it is done, or was given up")
        if isinstance(command, TakeTask):
            return self._take(step, task)
        if task.session != step.session:
            return refused(Why.FOREIGN, "another session has the task")  # SW1
        return self._go_on(step, task, command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        """A task outlives its session: whoever comes next goes on with it (SW1)."""

    # -- the steps ---------------------------------------------------------

    def _go_on(
        self, step: Step, task: Task, command: FilesWritten | TableCommitted | Swap | FinishTask | AbandonTask
    ) -> Verdict:
        match command:
            case FilesWritten():
                return self._written(step, task, command)
            case TableCommitted():
                return self._committed(task, command)
            case Swap():
                return self._swap(step, task)
            case FinishTask():
                return self._finish(step, task, command)
            case AbandonTask():
                return self._abandon(step, task)

    def _create(self, step: Step, command: CreateTask) -> Verdict:
        if domain_of(command.stream) != self._head.domain:
            return refused(Why.FOREIGN, "the stream belongs to another domain")
        stream = self._open(command.stream)
        if stream is None:
            return refused(Why.NOT_FOUND, "no such stream")
        if command.stream in self.by_stream:
            return refused(Why.EXISTS, "the stream has a task")  # SW1
        denied = self._deny_range(stream, command)
        if denied is not None:
            return denied
        now_ms = self._timeline.time_ms
        self.by_stream[command.stream] = Task(
            id=self.next, stream=command.stream, session=step.session, state=TaskState.CREATED, start=command.start,
            end=command.end, rewrite=command.rewrite, table=command.table, files=(), commit="", created_ms=now_ms,
            changed_ms=now_ms,
        )  # fmt: skip
        self.next += 1
        step.given.append(self.next - 1)
        return TaskCreated(task=self.next - 1)

    def _deny_range(self, stream: Stream, command: CreateTask) -> Refused | None:
        """A range of whole rows: behind the files, or of files alone."""
        index, hot = stream.index, self._streams.first_hot(stream)
        end = index.count_below(command.end)
        first = index.count_below(command.start)
        if command.start >= command.end or end <= first or index.end_of(end) != command.end:
            return refused(Why.STALE, "the range does not end where a row ends")
        if end - first > MAX_TASK_ROWS:
            return refused(Why.LIMIT, "the range has too many rows")
        if command.rewrite:
            if end > hot or index.end_of(first) != command.start:
                return refused(Why.STALE, "the range is not one of files")
        elif first != hot or command.start > index.end_of(first):
            return refused(Why.STALE, "the range does not begin with the first row that is no file")
        return None

    def _take(self, step: Step, task: Task) -> Verdict:
        if task.session != step.session and task.session in self._sessions.live:
            return refused(Why.LIVE, "the session that has the task is live")  # SW1
        self._put(replace(task, session=step.session))
        return DONE

    def _written(self, step: Step, task: Task, command: FilesWritten) -> Verdict:
        stream = self._open(task.stream)
        if task.state > TaskState.PARQUET_WRITTEN or stream is None:
            return refused(Why.STATE, "the task has its files in the table, or no stream")  # SW2
        denied = self._deny_files(step, stream.index, task, command.files)
        if denied is not None:
            return denied
        numbers = []
        for written in command.files:
            file = TableFile(
                stream=stream.id, topic_id=stream.topic_id, partition=stream.partition, start=written.start,
                end=written.end, records=written.records, min_timestamp_ms=written.min_timestamp_ms,
                max_timestamp_ms=written.max_timestamp_ms, held=task.table,
                footer_crc=written.footer_crc,
                arrived_ms=self._arrived_ms(stream.index, written),
            )  # fmt: skip
            numbers.append(self._objects.record_file(
                file, session=step.session, counter=written.counter, size=written.size, created_ms=written.created_ms,
                rows=2 if task.table else 1,
            ))  # fmt: skip
        self._objects.release(step, task.files)  # SW5: an earlier attempt may be in the table, and nowhere else
        step.given.extend(numbers)
        self._put(replace(task, state=TaskState.PARQUET_WRITTEN, files=tuple(numbers)))
        return FilesKnown(objects=tuple(numbers))

    def _deny_files(self, step: Step, index: Index, task: Task, files: tuple[WrittenFile, ...]) -> Refused | None:
        """SW3"""
        if files[0].start != task.start or files[-1].end != task.end:
            return refused(Why.MALFORMED, "the files do not cover the range of their task")
        if any(one.end != following.start for one, following in pairwise(files)):
            return refused(Why.MALFORMED, "there is a gap between two files")
        for file in files:
            if not 0 < file.records <= file.end - file.start <= MAX_FILE_OFFSETS:
                return refused(Why.MALFORMED, "a file holds no records, or more than it has offsets")
            if file.end > index.first_start and index.end_of(index.count_below(file.end)) != file.end:
                return refused(Why.MALFORMED, "a file does not end where a row ends")
        if len({file.counter for file in files}) < len(files):
            return refused(Why.EXISTS, "two files have one name")  # X5
        if any(self._objects.has_file(step.session, file.counter) for file in files):
            return refused(Why.EXISTS, "a file is known already")  # X5
        return None

    def _arrived_ms(self, index: Index, written: WrittenFile) -> int:
        rows = index.count_below(written.end)
        return self._objects.arrived_ms(index.row(rows - 1).object) if rows else written.created_ms

    def _committed(self, task: Task, command: TableCommitted) -> Verdict:
        if task.state is not TaskState.PARQUET_WRITTEN or not task.table:
            return refused(Why.STATE, "the task has no files that wait for the table")  # SW2
        self._put(replace(task, state=TaskState.ICEBERG_COMMITTED, commit=command.commit))
        return DONE

    def _swap(self, step: Step, task: Task) -> Verdict:
        ready = TaskState.ICEBERG_COMMITTED if task.table else TaskState.PARQUET_WRITTEN
        if task.state is not ready:
            return refused(Why.STATE, "the files of the task are not where they go before")  # SW2
        stream = self._open(task.stream)
        taken = []
        for number in task.files:
            if stream is not None and self._put_file(stream, number):
                taken.append(number)
            else:
                if stream is not None:
                    self._objects.pass_files((number,))
                self._objects.release(step, (number,))  # SW5
        self._put(replace(task, state=TaskState.INDEX_SWAPPED))
        return Swapped(objects=tuple(taken), left=0 if stream is None else stream.index.shed_rows)

    def _put_file(self, stream: Stream, number: ObjectId) -> bool:
        """Put a file into the place of its rows; False: none of them is left (SW4)."""
        file, index = self._objects.files[number], stream.index
        first, end = index.count_below(file.start), index.count_below(file.end)
        if first == end:
            return False
        self._streams.put_file(stream, first, end, number)
        return True

    def _finish(self, step: Step, task: Task, command: FinishTask) -> Verdict:
        if task.state is not TaskState.INDEX_SWAPPED:
            return refused(Why.STATE, "the files of the task are not in the index")  # SW2
        stream = self._open(task.stream)
        left = 0
        if stream is not None:
            self._streams.shed(step, stream, command.limit)
            left = stream.index.shed_rows
        if not left:
            del self.by_stream[task.stream]
        return TaskFinished(left=left)

    def _abandon(self, step: Step, task: Task) -> Verdict:
        if task.state >= TaskState.ICEBERG_COMMITTED and self._open(task.stream) is not None:
            return refused(Why.STATE, "its files are in the table: go on")  # SW2
        if task.state is not TaskState.INDEX_SWAPPED:
            self._objects.release(step, task.files)  # SW5
        del self.by_stream[task.stream]
        return DONE

    def _open(self, number: StreamId) -> Stream | None:
        stream = self._streams.find(number)
        return None if stream is None or stream.closed else stream

    def _put(self, task: Task) -> None:
        self.by_stream[task.stream] = replace(task, changed_ms=self._timeline.time_ms)

    # -- the checkpoint and the view ---------------------------------------

    def dump(self, out: Writer, version: int) -> None:
        out.values([self.next, len(self.by_stream)])
        for _, task in sorted(self.by_stream.items()):
            out.values([
                task.id, task.stream, task.session, int(task.state), task.start, task.end, int(task.rewrite),
                int(task.table), task.files, task.commit, task.created_ms, task.changed_ms,
            ])  # fmt: skip

    def load(self, source: Reader, version: int) -> None:
        self.next, count = source.ints(2)
        for _ in range(count):
            row = source.row()
            task = Task(
                id=row.number(), stream=StreamId(row.number()), session=SessionId(row.number()),
                state=TaskState(row.number()), start=row.number(), end=row.number(), rewrite=bool(row.number()),
                table=bool(row.number()), files=tuple(ObjectId(number) for number in row.numbers()),
                commit=row.text(), created_ms=row.number(), changed_ms=row.number(),
            )  # fmt: skip
            self.by_stream[task.stream] = task

    def show(self, prefix: str) -> Listing:
        for _, task in sorted(self.by_stream.items()):
            yield TASK_KEY.build(task.stream, task.id), self._fields(task)

    def _fields(self, task: Task) -> Fields:
        found = [self._objects.find(number) for number in task.files]
        return {
            "state": task.state.name, "session": task.session, "startOffset": task.start, "endOffset": task.end,
            "rewrite": task.rewrite, "table": task.table, "commit": task.commit, "createdAt": task.created_ms,
            "changedAt": task.changed_ms, "files": [owner.path() for owner in found if owner is not None],
        }  # fmt: skip
