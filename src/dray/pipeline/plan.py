"""Which batches a read needs, told by the machine alone, cut into tasks by bytes.

A plan is one cut: each stream is asked once, after a sync, for its start and
end, and every row between them is in exactly one piece. What is shipped to
executors is packed: 24 bytes a row and 25 an object, whatever the object's
name; the name is built again where the object is read.

Invariants
    SP1  The pieces of a plan hold each record of the cut once: rows are dense
         (H2), a piece takes neighbouring rows, and no row is in two pieces.
    SP2  A filter only leaves out rows that hold no record it would keep;
         Spark filters again.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, TypeAlias

from dray.errors import Corrupt
from dray.machine.index import LENGTH_BYTES, Index
from dray.machine.machine import Machine
from dray.machine.names import ObjectId
from dray.machine.streams import Stream
from dray.objects.paths import WalName

SLICE_ROWS: Final = 65_536
"""Rows that are unpacked at a time: bounds what planning needs beside the plan."""
LEAST_TASK_BYTES: Final = 4 << 20
MOST_TASK_BYTES: Final = 128 << 20
TASKS_PER_CORE: Final = 3
PLACES_MAX: Final = 200_000
_WAL_ID_BYTES: Final = 16
_Place: TypeAlias = tuple[bytes, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The part of a stream that is to be read."""

    topic: str
    stream: Stream
    start: int
    end: int
    since_ms: int | None = None
    """No record before this time is wanted (SP2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Neighbouring batches of one stream, for one task. Columns are packed arrays, as pickle takes them best."""

    topic: str
    partition: int
    stream: int
    domain: int
    start: int
    end: int
    """Records outside [start, end) are not wanted, although their batch is read."""
    zones: tuple[str, ...]
    wal_ids: bytes
    created_ms: "array[int]"
    object_zones: "array[int]"
    owners: "array[int]"
    """Of each row, the number of its object in the columns above."""
    bases: "array[int]"
    counts: "array[int]"
    positions: "array[int]"
    sizes: "array[int]"

    def path(self, owner: int) -> str:
        """The name of an object."""
        return WalName.of(
            zone=self.zones[self.object_zones[owner]], domain=self.domain, created_ms=self.created_ms[owner],
            wal_id=self.wal_ids[owner * _WAL_ID_BYTES : (owner + 1) * _WAL_ID_BYTES],
        ).path()  # fmt: skip

    @property
    def bytes(self) -> int:
        return sum(self.sizes)


def plan_tasks(spans: Sequence[tuple[Machine, Span]], *, cores: int, min_tasks: int) -> list[list[Piece]]:
    """Pieces for each task, tasks of about the same number of bytes (SP1)."""
    total = sum(_bytes_of(span) for _, span in spans)
    tasks = _Tasks(total / task_count(total, cores=cores, min_tasks=min_tasks))
    for machine, span in spans:
        for chunk in _chunks(machine, span):
            tasks.add(machine, span, chunk)
    return tasks.done()


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
    if span.since_ms is not None:
        later = index.find_time(span.since_ms, first)
        first = len(index) if later is None else later
    return first, max(first, index.count_below(span.end - 1) + 1)


@dataclass(slots=True)
class _Chunk:
    """Rows of one stream, unpacked."""

    owners: list[ObjectId] = field(default_factory=list)
    bases: "array[int]" = field(default_factory=lambda: array("Q"))
    counts: "array[int]" = field(default_factory=lambda: array("I"))
    positions: "array[int]" = field(default_factory=lambda: array("I"))
    sizes: "array[int]" = field(default_factory=lambda: array("I"))

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


def _chunks(machine: Machine, span: Span) -> Iterator[_Chunk]:
    index = span.stream.index
    first, end = _numbers(index, span)
    for at in range(first, end, SLICE_ROWS):
        columns = index.columns(at, min(end, at + SLICE_ROWS))
        totals, owners, positions = zip(*columns.rest, strict=True)
        bases = array("Q", [columns.start])
        bases.extend(columns.ends[:-1])
        counts = array("I", [end - base for base, end in zip(bases, columns.ends, strict=True)])
        before = (columns.size, *totals[:-1])
        sizes = array("I", [size - less - LENGTH_BYTES for less, size in zip(before, totals, strict=True)])
        chunk = _Chunk(list(owners), bases, counts, array("I", positions), sizes)
        yield chunk if span.since_ms is None else _late(chunk, columns.stamps, span.since_ms)


def _late(chunk: _Chunk, stamps: "array[int]", since_ms: int) -> _Chunk:
    """The rows whose greatest timestamp is not too old (SP2)."""
    kept = [number for number, stamp in enumerate(stamps) if stamp >= since_ms]
    return _Chunk(
        [chunk.owners[number] for number in kept],
        array("Q", [chunk.bases[number] for number in kept]),
        array("I", [chunk.counts[number] for number in kept]),
        array("I", [chunk.positions[number] for number in kept]),
        array("I", [chunk.sizes[number] for number in kept]),
    )


class _Tasks:
    """Fills task after task with about `goal` bytes."""

    def __init__(self, goal: float) -> None:
        self._goal = goal
        self._tasks: list[list[Piece]] = []
        self._pieces: list[Piece] = []
        self._filled = 0
        self._given = 0
        self._open: tuple[Machine, Span, _Chunk] | None = None
        self._places: dict[tuple[int, ObjectId], _Place] = {}

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
                self._end_task()

    def _take(self, machine: Machine, span: Span, chunk: _Chunk) -> None:
        if self._open is not None and self._open[1] is span:
            self._open[2].extend(chunk)
            return
        self._end_piece()
        self._open = machine, span, chunk

    def _end_piece(self) -> None:
        if self._open is not None:
            self._pieces.append(_pack(*self._open, self._places))
            self._open = None

    def _end_task(self) -> None:
        self._end_piece()
        if self._pieces:
            self._tasks.append(self._pieces)
            self._pieces = []

    def done(self) -> list[list[Piece]]:
        self._end_task()
        return self._tasks


def _place(machine: Machine, owner: ObjectId, known: dict[tuple[int, ObjectId], _Place]) -> _Place:
    """What an object's name is made of; asked once for all streams that share the object."""
    key = machine.domain, owner
    place = known.get(key)
    if place is None:
        found = machine.objects.find(owner)
        if found is None:
            raise Corrupt("the index names an object that the machine has forgotten", object=owner)
        if len(known) >= PLACES_MAX:
            known.clear()
        place = known[key] = found.wal_id, found.created_ms, found.zone
    return place


def _pack(machine: Machine, span: Span, chunk: _Chunk, known: dict[tuple[int, ObjectId], _Place]) -> Piece:
    numbers: dict[ObjectId, int] = {}
    zones: dict[str, int] = {}
    wal_ids = bytearray()
    created, object_zones = array("q"), array("H")
    for owner in dict.fromkeys(chunk.owners):
        wal_id, created_ms, zone = _place(machine, owner, known)
        numbers[owner] = len(numbers)
        wal_ids += wal_id
        created.append(created_ms)
        object_zones.append(zones.setdefault(zone, len(zones)))
    return Piece(
        topic=span.topic, partition=span.stream.partition, stream=span.stream.id, domain=machine.domain,
        start=span.start, end=span.end, zones=tuple(zones), wal_ids=bytes(wal_ids), created_ms=created,
        object_zones=object_zones, owners=array("I", [numbers[owner] for owner in chunk.owners]),
        bases=chunk.bases, counts=chunk.counts, positions=chunk.positions, sizes=chunk.sizes,
    )  # fmt: skip
