"""What a task does: ranges of objects to Arrow, nothing else.

Batches are read in groups of ranges at once, checked, decompressed and given
to the kernel, some megabytes at a time. Where nobody asks for what lies in
the records themselves, they are checked and not decoded. A task holds no
state: run again, it reads the same bytes and gives the same rows.

Invariants
    SP3  A batch becomes rows only if its CRC is right and it has as many
         records as the index says; else the job fails, and the error names
         object, stream and offset.
    SP4  What a task holds at a time is bounded: one group of ranges, and the
         rows of about `ROWS_BYTES`, or of one batch.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from dray.errors import DrayError
from dray.objects.paths import ObjectKind
from dray.objects.port import Objects
from dray.parquet.schema import APPEND_TIME
from dray.pipeline.errors import broken, told
from dray.pipeline.plan import Piece
from dray.pipeline.reading_files import read_rows
from dray.pipeline.stores import LocalObjects, open_for_tasks
from dray.pipeline.together import some_at_a_time
from dray.records import InvalidBatch, one_batch
from dray.records.arrow import part_of, parts_to_arrow
from dray.records.columns import Part

GROUP_BYTES: Final = 16 << 20
"""Ranges that are fetched at a time."""
LOCAL_GROUP_BYTES: Final = 4 << 20
"""The same for files, which are read one after another anyway: fewer bytes stay in the processor's cache."""
GROUP_RANGES: Final = 1_024
"""The same by number: small batches are many (SP4)."""
RANGE_BYTES: Final = 4 << 20
GAP_BYTES: Final = 128 << 10
"""Two ranges of an object that lie closer are read as one."""
ROWS_BYTES: Final = 4 << 20
ROWS: Final = 65_536
"""Of one Arrow batch."""
MAX_MS: Final = (2**63 - 1) // 1000
TOLD: Final = frozenset({"topic", "partition", "offset", "timestampType"})
"""Columns that the index and the header of a batch tell."""

_BASE_FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
)
_HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
PLAIN_SCHEMA: Final = pa.schema(_BASE_FIELDS)
FIELDS: Final = {field.name: field for field in (*_BASE_FIELDS, pa.field("headers", _HEADERS_TYPE))}


class _Range(NamedTuple):
    """Bytes of one object, and the rows in them."""

    owner: int
    start: int
    end: int
    first_row: int
    end_row: int


def read_pieces(address: str, pieces: Sequence[Piece], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns of the records of a task, in the order of its pieces."""
    limit = group_bytes(address)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()  # Runner.run sets signal handlers each time: dear for a few megabytes
        objects = runner.run(open_for_tasks(address))
        try:
            for piece in pieces:
                read = READERS.get(piece.kind)
                if read is None:
                    raise broken(
                        f"this build reads no objects of the kind {piece.kind.name}",
                        topic=piece.topic, partition=piece.partition, stream=piece.stream, offset=piece.bases[0],
                    )  # fmt: skip
                yield from read(loop, objects, piece, limit, columns)
        finally:
            runner.run(objects.close())


def group_bytes(address: str) -> int:
    """How many bytes of a store are fetched at a time."""
    remote = "://" in address and not address.startswith("file://")
    return GROUP_BYTES if remote else min(GROUP_BYTES, LOCAL_GROUP_BYTES)


def _read_wal(
    loop: asyncio.AbstractEventLoop, objects: Objects, piece: Piece, limit: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """A row is a batch as it was received, and a range of its object."""
    schema = pa.schema([FIELDS[name] for name in columns])
    for found, append_time in read_records(loop, objects, piece, limit, decoded=not TOLD.issuperset(columns)):
        arrays = [_column(name, found, piece, append_time) for name in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_records(
    loop: asyncio.AbstractEventLoop, objects: Objects, piece: Piece, limit: int, *, decoded: bool = True
) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """The records of a piece of WAL objects, as `dray.records.arrow` has them, and whether the log gave their time.

    Those that are not decoded are checked all the same (SP3), and have no column but `offset`.
    """
    rows = _Rows(piece, decoded)
    for group in _groups(piece, limit):
        if isinstance(objects, LocalObjects):
            buffers = _read_now(objects, piece, group)
        else:
            buffers = loop.run_until_complete(_fetch(objects, piece, group))
        for part, buffer in zip(group, buffers, strict=True):
            for row in range(part.first_row, part.end_row):
                at = piece.positions[row] - part.start
                if rows.add(row, buffer[at : at + piece.sizes[row]]):
                    yield from rows.taken()
        if decoded:  # else nothing of the group is held (SP4)
            yield from rows.rest()
    yield from rows.rest()


def _read_files(
    loop: asyncio.AbstractEventLoop, objects: Objects, piece: Piece, limit: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """A row is a file, and its records lie in columns already."""
    schema = pa.schema([FIELDS[name] for name in columns])
    for found in read_rows(loop, objects, piece, columns):
        for at in range(0, found.num_rows, ROWS):
            part = found.slice(at, ROWS)
            arrays = [
                _time_types(part.column("attributes")) if name == "timestampType" else _column(name, part, piece, False)
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


ReadPiece: TypeAlias = Callable[
    [asyncio.AbstractEventLoop, Objects, Piece, int, Sequence[str]], Iterator[pa.RecordBatch]
]
READERS: Final[dict[ObjectKind, ReadPiece]] = {ObjectKind.WAL: _read_wal, ObjectKind.PARQUET: _read_files}
"""One for each kind of object (SP9)."""


def _groups(piece: Piece, limit: int) -> Iterator[list[_Range]]:
    """The ranges of a piece, as many at a time as memory allows (SP4)."""
    group: list[_Range] = []
    held = 0
    for found in _ranges(piece):
        size = found.end - found.start
        if group and (held + size > limit or len(group) >= GROUP_RANGES):
            yield group
            group, held = [], 0
        group.append(found)
        held += size
    if group:
        yield group


def _ranges(piece: Piece) -> Iterator[_Range]:
    """Neighbouring rows of one object, joined."""
    current: _Range | None = None
    for row, (owner, position, size) in enumerate(zip(piece.owners, piece.positions, piece.sizes, strict=True)):
        end = position + size
        if (
            current is not None
            and current.owner == owner
            and 0 <= position - current.end <= GAP_BYTES
            and end - current.start <= RANGE_BYTES
        ):
            current = current._replace(end=end, end_row=row + 1)
            continue
        if current is not None:
            yield current
        current = _Range(owner, position, end, row, row + 1)
    if current is not None:
        yield current


def _read_now(objects: LocalObjects, piece: Piece, group: Sequence[_Range]) -> list[memoryview]:
    buffers = []
    for part in group:
        try:
            buffers.append(objects.get_now(piece.path(part.owner), part.start, part.end))
        except DrayError as error:
            raise told(error, **_facts(piece, part.first_row)) from error  # SP3
    return buffers


async def _fetch(objects: Objects, piece: Piece, group: Sequence[_Range]) -> list[memoryview]:
    found = await some_at_a_time(lambda part: objects.get(piece.path(part.owner), part.start, part.end), group)
    buffers = []
    for part, result in zip(group, found, strict=True):
        if isinstance(result, DrayError):
            raise told(result, **_facts(piece, part.first_row)) from result  # SP3
        if isinstance(result, BaseException):
            raise result
        buffers.append(result)
    return buffers


class _Rows:
    """Collects batches, decompressed or only counted, until they are worth an Arrow batch."""

    def __init__(self, piece: Piece, decoded: bool) -> None:
        self._piece = piece
        self._decoded = decoded
        self._parts: list[Part] = []
        self._first_row = 0
        self._held = 0
        self._count = 0
        self._append_time = False
        self._made: list[tuple[pa.RecordBatch, bool]] = []

    def add(self, row: int, buffer: memoryview) -> bool:
        """Whether there is something to be taken."""
        part, append_time = self._part(row, buffer)
        if self._parts and append_time != self._append_time:
            self._flush()
        if not self._parts:
            self._first_row, self._append_time = row, append_time
        self._parts.append(part)
        self._held += len(part[0])
        self._count += part[1]
        if self._held >= ROWS_BYTES or self._count >= ROWS:
            self._flush()
        return bool(self._made)

    def taken(self) -> list[tuple[pa.RecordBatch, bool]]:
        """What has become Arrow batches."""
        made, self._made = self._made, []
        return made

    def rest(self) -> list[tuple[pa.RecordBatch, bool]]:
        """The same, and what was collected since."""
        self._flush()
        return self.taken()

    def _part(self, row: int, buffer: memoryview) -> tuple[Part, bool]:
        piece = self._piece
        try:
            batch = one_batch(buffer)
            if not batch.crc_is_right:
                raise broken("CRC32C of the batch does not match", **_facts(piece, row))
            if batch.record_count != piece.counts[row] or batch.is_control:
                counted = f"the batch has {batch.record_count} records, not {piece.counts[row]}"
                raise broken(counted, **_facts(piece, row))
            if not self._decoded:
                return (b"", batch.record_count, piece.bases[row], 0, False), batch.has_append_time
            return part_of(batch, piece.bases[row]), batch.has_append_time
        except InvalidBatch as error:
            raise told(error, **_facts(piece, row)) from error  # SP3

    def _flush(self) -> None:
        parts, self._parts, self._held, self._count = self._parts, [], 0, 0
        if not parts:
            return
        try:
            found = parts_to_arrow(parts) if self._decoded else _offsets(parts)
        except InvalidBatch as error:
            index = error.facts.get("batch", 0)
            row = self._first_row + (index if isinstance(index, int) else 0)
            raise told(error, **_facts(self._piece, row)) from error
        found = self._clip(found, parts)
        for at in range(0, found.num_rows, ROWS):
            self._made.append((found.slice(at, ROWS) if found.num_rows > ROWS else found, self._append_time))

    def _clip(self, found: pa.RecordBatch, parts: Sequence[Part]) -> pa.RecordBatch:
        """Only the first and the last batch of a piece can reach over its edges; offsets within one are dense."""
        _, _, first, _, _ = parts[0]
        _, count, base, _, _ = parts[-1]
        skip = max(0, self._piece.start - first)
        surplus = max(0, base + count - self._piece.end)
        return found.slice(skip, found.num_rows - skip - surplus) if skip or surplus else found


def _offsets(parts: Sequence[Part]) -> pa.RecordBatch:
    """The offsets of batches whose records are not looked at: within one they are dense."""
    runs: list[list[int]] = []
    for _, count, base, _, _ in parts:
        if runs and runs[-1][1] == base:
            runs[-1][1] = base + count
        else:
            runs.append([base, base + count])
    numbers = pa.concat_arrays([pa.arange(start, end) for start, end in runs])
    return pa.RecordBatch.from_arrays([numbers], ["offset"])


def _column(name: str, found: pa.RecordBatch, piece: Piece, append_time: bool) -> pa.Array:
    """A column of Spark's Kafka source."""
    match name:
        case "topic":
            return pa.repeat(_text(piece.topic), found.num_rows)
        case "partition":
            return pa.repeat(_int32(piece.partition), found.num_rows)
        case "timestamp":
            return _timestamps(found.column("timestamp"))
        case "timestampType":
            return pa.repeat(_int32(int(append_time)), found.num_rows)
        case "headers":
            return _headers(found.column("headers"))
        case _:
            return found.column(name)


def _time_types(attributes: pa.Array) -> pa.Array:
    """1 where the log gave the time, as the Kafka source shows it."""
    return pc.cast(pc.not_equal(pc.bit_wise_and(attributes, _int32(APPEND_TIME)), _int32(0)), pa.int32())


def _timestamps(milliseconds: pa.Array) -> pa.Array:
    """Microseconds, as Spark counts; a time that they cannot hold becomes the last one that they can."""
    if (pc.max(milliseconds).as_py() or 0) > MAX_MS:
        milliseconds = pc.min_element_wise(milliseconds, _int64(MAX_MS))
    return pc.multiply(milliseconds, _int64(1000)).view(pa.timestamp("us", tz="UTC"))


def _headers(lists: pa.Array) -> pa.Array:
    """As the Kafka source shows them: null where a record has none."""
    lists = lists.cast(_HEADERS_TYPE)
    return pc.if_else(pc.equal(pc.list_value_length(lists), _int32(0)), pa.nulls(1, _HEADERS_TYPE)[0], lists)


# Arrow loads pandas before it turns any value of Python into one of its own: half a second of CPU for each new worker.
# Bytes it takes as they are.


def _int32(number: int) -> pa.Scalar:
    return pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(struct.pack("=i", number))])[0]


def _int64(number: int) -> pa.Scalar:
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("=q", number))])[0]


def _text(text: str) -> pa.Scalar:
    encoded = text.encode()
    ends = pa.py_buffer(struct.pack("=ii", 0, len(encoded)))
    return pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(encoded)])[0]


def _facts(piece: Piece, row: int) -> dict[str, object]:
    return {
        "object": piece.path(piece.owners[row]), "topic": piece.topic, "partition": piece.partition,
        "stream": piece.stream, "offset": piece.bases[row],
    }  # fmt: skip
