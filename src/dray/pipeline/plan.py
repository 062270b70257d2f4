"""Which batches a read needs, told by the machine alone, cut into tasks by bytes.

A plan is one cut: each stream is asked once, after a sync, for its start and
end, and every row between them is in exactly one piece. What is shipped to
executors is packed: 28 bytes a row and 18 an object (a file 4 more), whatever
the object's name; the name is built again where the object is read.

Invariants
    SP1  The pieces of a plan hold each record of the cut once: rows are dense
         (H2), a piece takes neighbouring rows, and a row is in two pieces only
         where their offsets part it.
    SP9  The objects of a piece are of one kind, so that one reader reads it.
    SP11  A piece of files tells of each the checksum of its footer that the
         machine keeps; who reads it looks at that before Arrow does (PQ4).
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from operator import sub
from typing import Final

from dray.machine.index import LENGTH_BYTES, Index
from dray.machine.machine import Machine
from dray.machine.names import ObjectId
from dray.machine.objects import Origin
from dray.machine.stream import Stream
from dray.objects.paths import ObjectKind, object_path
from dray.pipeline.errors import BadOption
from dray.pipeline.options import MAX_PARTITIONS
from dray.wal.ids import wal_id

SLICE_ROWS: Final = 65_536
"""Rows that are unpacked at a time: bounds what planning needs beside the plan."""
LEAST_TASK_BYTES: Final = 4 << 20
MOST_TASK_BYTES: Final = 128 << 20
TASKS_PER_CORE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The part of a stream that is to be read."""

    topic: str
    stream: Stream
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Piece:
    """Neighbouring rows of one stream, for one task. Columns are packed arrays, as pickle takes them best.

    It has no repr: `asyncio.run` makes that of its result, twice, and this one's would be megabytes.
    """

    topic: str
    partition: int
    stream: int
    domain: int
    topic_id: bytes
    start: int
    end: int
    """Records outside [start, end) are not wanted, although their batch is read."""
    origins: tuple[Origin, ...]
    """Kinds, log ids and zones of the objects."""
    object_origins: "array[int]"
    sessions: "array[int]"
    counters: "array[int]"
    created_ms: "array[int]"
    footers: "array[int]"
    """Of each file, the checksum of its footer, 0 where none was told (SP11); empty where the objects are no files."""
    owners: "array[int]"
    """Of each row, the number of its object in the columns above."""
    bases: "array[int]"
    counts: "array[int]"
    positions: "array[int]"
    sizes: "array[int]"

    def path(self, owner: int) -> str:
        """The name of an object."""
        kind, log_id, zone = self.origins[self.object_origins[owner]]
        return object_path(
            kind, zone=zone, domain=self.domain, created_ms=self.created_ms[owner],
            object_id=wal_id(log_id, self.sessions[owner], self.counters[owner]), topic_id=self.topic_id,
            partition=self.partition,
        )  # fmt: skip

    def footer_crc(self, owner: int) -> int:
        """What the footer of a file has to match; 0: nobody told."""
        return self.footers[owner] if self.footers else 0

    @property
    def kind(self) -> ObjectKind:
        """How the records lie in its objects (SP9)."""
        return self.origins[0].kind

    @property
    def bytes(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What tasks need."""

    address: str
    """Of the store."""
    tasks: list[list[Piece]]
    pin: str | None
    """Of what holds its objects, if something does."""


def plan_tasks(
    spans: Sequence[tuple[Machine, Span]], *, cores: int, min_tasks: int, max_records: int | None = None
) -> list[list[Piece]]:
    """Pieces for each task, tasks of about the same number of bytes, none of more than `max_records` (SP1).

    Raises:
        BadOption: `max_records` would make too many tasks.
    """
    if max_records is not None:
        spans = _parted(spans, max_records)
    total = sum(_bytes_of(span) for _, span in spans)
    tasks = _Tasks(total / task_count(total, cores=cores, min_tasks=min_tasks))
    records = 0
    for machine, span in spans:
        records += span.end - span.start
        if max_records is not None and records > max_records:
            tasks.end_task()
            records = span.end - span.start
        for chunk in _chunks(span):
            tasks.add(machine, span, chunk)
    return tasks.done()


def pieces_of(machine: Machine, span: Span) -> list[Piece]:
    """A whole span, whoever reads it."""
    return [piece for chunk in _chunks(span) for piece in _pack(machine, span, chunk)]


def _parted(spans: Sequence[tuple[Machine, Span]], most: int) -> list[tuple[Machine, Span]]:
    """The same offsets in spans of at most so many, each about as long as the others of its stream."""
    counts = [-(-(span.end - span.start) // most) for _, span in spans]
    if sum(counts) > MAX_PARTITIONS:
        raise BadOption("too many tasks: raise it", option="maxRecordsPerPartition", given=most, tasks=sum(counts))
    return [
        (machine, replace(span, start=span.start + length * at // parts, end=span.start + length * (at + 1) // parts))
        for (machine, span), parts in zip(spans, counts, strict=True)
        for length in (span.end - span.start,)
        for at in range(parts)
    ]


def task_count(total: int, *, cores: int, min_tasks: int) -> int:
    """A few tasks a core, but none that is not worth its start, and none that is too large to be run again."""
    few = min(TASKS_PER_CORE * cores, -(-total // LEAST_TASK_BYTES))
    return max(1, min_tasks, few, -(-total // MOST_TASK_BYTES))


def _bytes_of(span: Span) -> int:
    first, end = _numbers(span.stream.index, span)
    if first == end:
        return 0
    last, before = span.stream.index.row(end - 1), span.stream.index.row(first)
    return last.cumulative_size - before.cumulative_size + before.size


def _numbers(index: Index, span: Span) -> tuple[int, int]:
    """The rows that hold [start, end)."""
    first = index.find(span.start) if span.start < span.end else None
    if first is None:
        return 0, 0
    return first, index.count_below(span.end - 1) + 1


@dataclass(slots=True)
class _Chunk:
    """Rows of one stream, as columns."""

    owners: "array[int]"
    bases: "array[int]"
    counts: "array[int]"
    positions: "array[int]"
    sizes: "array[int]"

    def cut(self, first: int, end: int) -> "_Chunk":
        return _Chunk(
            self.owners[first:end], self.bases[first:end], self.counts[first:end], self.positions[first:end],
            self.sizes[first:end],
        )  # fmt: skip

    def extend(self, other: "_Chunk") -> None:
        self.owners.extend(other.owners)
        self.bases.extend(other.bases)
        self.counts.extend(other.counts)
        self.positions.extend(other.positions)
        self.sizes.extend(other.sizes)


def _chunks(span: Span) -> Iterator[_Chunk]:
    index = span.stream.index
    first, end = _numbers(index, span)
    for at in range(first, end, SLICE_ROWS):
        columns = index.columns(at, min(end, at + SLICE_ROWS))
        bases = _moved(columns.ends, columns.start)
        counts = array("I", map(sub, columns.ends, bases))
        before = _moved(columns.sizes, columns.size)
        sizes = array("Q", [size - less - LENGTH_BYTES for less, size in zip(before, columns.sizes, strict=True)])
        yield _Chunk(columns.owners, bases, counts, columns.positions, sizes)


def _moved(column: "array[int]", first: int) -> "array[int]":
    """Each row's number becomes the next row's."""
    moved = array(column.typecode, [first])
    moved.extend(column[:-1])
    return moved


class _Tasks:
    """Fills task after task with about `goal` bytes."""

    def __init__(self, goal: float) -> None:
        self._goal = goal
        self._tasks: list[list[Piece]] = []
        self._pieces: list[Piece] = []
        self._filled = 0
        self._given = 0
        self._open: tuple[Machine, Span, _Chunk] | None = None

    def add(self, machine: Machine, span: Span, chunk: _Chunk) -> None:
        ends = list(accumulate(chunk.sizes))
        at = 0
        while at < len(ends):
            # The goal counts from the plan's beginning, so that rounding never adds up to one more task.
            room = self._goal * (len(self._tasks) + 1) - self._given
            before = ends[at - 1] if at else 0
            end = min(len(ends), max(at + 1, bisect_left(ends, before + room) + 1))
            self._take(machine, span, chunk if end - at == len(ends) else chunk.cut(at, end))
            self._given += ends[end - 1] - before
            at = end
            if self._given >= self._goal * (len(self._tasks) + 1):
                self.end_task()

    def _take(self, machine: Machine, span: Span, chunk: _Chunk) -> None:
        if self._open is not None and self._open[1] is span:
            self._open[2].extend(chunk)
            return
        self._end_piece()
        self._open = machine, span, chunk

    def _end_piece(self) -> None:
        if self._open is not None:
            self._pieces.extend(_pack(*self._open))
            self._open = None

    def end_task(self) -> None:
        """What comes next is in another task."""
        self._end_piece()
        if self._pieces:
            self._tasks.append(self._pieces)
            self._pieces = []

    def done(self) -> list[list[Piece]]:
        self.end_task()
        return self._tasks


def _pack(machine: Machine, span: Span, chunk: _Chunk) -> Iterator[Piece]:
    numbers = dict(zip(dict.fromkeys(chunk.owners), count()))
    objects = machine.objects.columns(numbers)
    local = dict(zip(dict.fromkeys(objects.origins), count()))
    origins = tuple(machine.objects.origin(number) for number in local)
    if len({origin.kind for origin in origins}) > 1:
        kinds = [machine.objects.origin(number).kind for number in objects.origins]
        for first, end in _runs([kinds[numbers[owner]] for owner in chunk.owners]):
            yield from _pack(machine, span, chunk.cut(first, end))  # SP9
        return
    yield Piece(
        topic=span.topic, partition=span.stream.partition, stream=span.stream.id, domain=machine.domain,
        topic_id=span.stream.topic_id, start=span.start, end=span.end, origins=origins,
        object_origins=array("H", map(local.__getitem__, objects.origins)), sessions=objects.sessions,
        counters=objects.counters, created_ms=objects.created_ms, footers=_footers(machine, origins, numbers),
        owners=array("I", map(numbers.__getitem__, chunk.owners)), bases=chunk.bases, counts=chunk.counts,
        positions=chunk.positions, sizes=chunk.sizes,
    )  # fmt: skip


def _footers(machine: Machine, origins: Sequence[Origin], numbers: Iterable[int]) -> "array[int]":
    """The checksums of these files (SP11)."""
    if origins[0].kind is not ObjectKind.PARQUET:
        return array("I")
    files = (machine.objects.files.get(ObjectId(number)) for number in numbers)
    return array("I", [0 if file is None else file.footer_crc for file in files])


def _runs(kinds: Sequence[ObjectKind]) -> Iterator[tuple[int, int]]:
    """Neighbours of one kind."""
    first = 0
    for at in range(1, len(kinds) + 1):
        if at == len(kinds) or kinds[at] is not kinds[first]:
            yield first, at
            first = at
