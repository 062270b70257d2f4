"""A Parquet file back to rows, and rows back to batches, a row group at a time.

Whoever reads a file fetches its end once (`footer_of`), finds the groups that
it needs by what the footer tells of offsets and times, and fetches each of them
as one range (`rows_of`), or the ranges of some of its columns (`ranges_of`).
Nothing here waits: bytes in, rows or batches out. All of it belongs into a
thread: a group is megabytes.

Invariants
    PQ3  A rebuilt batch holds the records of the stream as they were: offsets,
         times and their type, keys, values and headers; null is not empty, and
         headers keep their order and their doubles.
    PQ4  A file that was damaged is `BadFile`, and gives no other records: its
         footer has to match the checksum that the machine keeps, its pages
         those in the file. No length in it makes more be read than was given.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dray.buffers import Buffer
from dray.errors import DrayError, Invalid
from dray.parquet.footer import BadFile, footer_bytes, footer_crc
from dray.parquet.schema import APPEND_TIME
from dray.records.arrow import unwrap
from dray.records.columns import Columns
from dray.records.writer import DEFAULT_BATCH_BYTES, BatchWriter

COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers", "attributes")
"""What a reader needs; the others say nothing that is not known."""
GAP_BYTES: Final = 128 << 10
"""Columns of a group that lie closer are read as one range."""
_BROKEN: Final = (pa.ArrowException, OSError, ArithmeticError, LookupError, TypeError, ValueError)
"""What pyarrow raises for bytes that it cannot read (PQ4)."""


class RowGroup(NamedTuple):
    """What the footer tells of a row group."""

    number: int
    start: int
    end: int
    """Its offsets lie in [start, end)."""
    greatest_ms: int
    position: int
    size: int
    """Its bytes are [position, position + size)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What the end of a file tells."""

    metadata: pq.FileMetaData
    groups: tuple[RowGroup, ...]
    size: int
    """Of the whole file."""

    def first(self, offset: int) -> int:
        """The number of the first group that has something at or behind an offset."""
        return bisect_left(self.groups, offset + 1, key=lambda group: group.end)


class Rebuilt(NamedTuple):
    """A batch, and where its records lie."""

    start: int
    end: int
    greatest_ms: int
    batch: memoryview


def footer_of(tail: Buffer, size: int, crc: int = 0) -> Footer:
    """The footer of a file of `size` bytes whose last ones these are: at least `footer_bytes` of them.

    Give the checksum that its writer told, if it did: pyarrow ends the process over some footers that are broken.
    """
    needed = footer_bytes(tail)
    if footer_crc(tail) != crc and crc:
        raise BadFile("the footer does not match its checksum: the file was damaged", size=size)  # PQ4
    try:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(tail[len(tail) - needed :])))
        groups = tuple(_group(metadata.row_group(at), at) for at in range(metadata.num_row_groups))
    except _BROKEN as error:
        raise BadFile("the footer cannot be read", size=size) from error
    if not groups or any(one.position + one.size > size or one.start >= one.end for one in groups):
        raise BadFile("the footer tells of groups that are not there", size=size, groups=len(groups))
    if any(one.end > following.start for one, following in pairwise(groups)):
        raise BadFile("the groups of the file are not in the order of their offsets", groups=len(groups))
    return Footer(metadata=metadata, groups=groups, size=size)


def _group(group: pq.RowGroupMetaData, number: int) -> RowGroup:
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    begins, ends = zip(*map(_place, columns.values()), strict=True)
    offsets, times = columns["offset"].statistics, columns["timestamp"].statistics
    if offsets is None or times is None or not (offsets.has_min_max and times.has_min_max):
        raise BadFile("a group does not tell its offsets and times", group=number)
    if any(end < begin for begin, end in zip(begins, ends, strict=True)):
        raise BadFile("a column of a group ends before it begins", group=number)  # PQ4
    start = min(begins)
    return RowGroup(
        number, offsets.min_raw, offsets.max_raw + 1, times.max_raw // 1000, start, max(ends) - start
    )  # fmt: skip


def _place(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Where the pages of a column of a group begin and end."""
    first, page = column.dictionary_page_offset, column.data_page_offset
    start: int = page if first is None else min(first, page)
    return start, start + column.total_compressed_size


def ranges_of(footer: Footer, number: int, columns: Sequence[str]) -> list[tuple[int, int]]:
    """The bytes [start, end) of a file in which these columns of a group lie; neighbours are joined."""
    group = footer.metadata.row_group(number)
    chunks = (group.column(at) for at in range(group.num_columns))
    found: list[tuple[int, int]] = []
    for start, end in sorted(_place(one) for one in chunks if one.path_in_schema.partition(".")[0] in columns):
        if found and start - found[-1][1] <= GAP_BYTES:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


class GroupRows:
    """The rows of one group, and batches made of them."""

    def __init__(self, found: pa.RecordBatch) -> None:
        self.found = found
        """Columns as `dray.records.arrow` names them, and `attributes`."""
        self.columns: Columns = unwrap(found)
        self.offsets = memoryview(self.columns.offsets).cast("B").cast("q")
        self.times = memoryview(self.columns.timestamps).cast("B").cast("q")
        self.bytes = int(found.nbytes)

    @cached_property
    def _spans(self) -> tuple[tuple[int, bool], ...]:
        """Where rows of one kind of time end, and which kind: they never share a batch (E-14)."""
        attributes = self.found.column("attributes")
        bounds = pc.min_max(attributes)
        if bounds["min"] == bounds["max"]:
            return ((self.found.num_rows, bool(attributes[0].as_py() & APPEND_TIME)),)
        spans, end = [], 0
        for given, run in groupby(bool(bits & APPEND_TIME) for bits in attributes.to_pylist()):
            end += sum(1 for _ in run)
            spans.append((end, given))
        return tuple(spans)

    def batches(self, offset: int, room: int, *, oversize: bool) -> list[Rebuilt]:
        """Batches of the rows at and behind an offset: at most `room` bytes, or one larger if `oversize` (PQ3)."""
        made: list[Rebuilt] = []
        at, writer = bisect_left(self.offsets, offset), None
        for end, append_time in self._spans:
            while at < end:
                limit = min(room, DEFAULT_BATCH_BYTES)
                writer = writer or BatchWriter(max(0, limit))
                batch, rows = writer.write(self.columns, at, end, max_bytes=limit, append_time=append_time)
                if len(batch) > room and (made or not oversize):
                    return made
                room -= len(batch)
                greatest_ms = max(self.times[at : at + rows])
                made.append(Rebuilt(
                    self.offsets[at], self.offsets[at + rows - 1] + 1, greatest_ms, memoryview(bytes(batch))
                ))  # fmt: skip
                at += rows
        return made

    def first_since(self, start: int, timestamp_ms: int) -> tuple[int, int] | None:
        """The first record at or behind an offset that is not older than a time, and its time."""
        for at in range(bisect_left(self.offsets, start), len(self.offsets)):
            if self.times[at] >= timestamp_ms:
                return self.offsets[at], self.times[at]
        return None

    def greatest(self, start: int) -> tuple[int, int] | None:
        """The first record with the greatest time at or behind an offset, and that time."""
        first = bisect_left(self.offsets, start)
        if first == len(self.offsets):
            return None
        times = self.times[first:].tolist()
        at = times.index(max(times))
        return self.offsets[first + at], times[at]


def rows_of(footer: Footer, number: int, content: Buffer) -> list[GroupRows]:
    """The rows of a group, whose bytes these are; more than one only where a column is too long for one."""
    try:
        return [GroupRows(found) for found in tables_of(footer, number, content, COLUMNS)]
    except Invalid as error:
        raise BadFile("a column has another type", group=number) from error


def tables_of(footer: Footer, number: int, content: Buffer, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same as Arrow has it, times in milliseconds."""
    return columns_of(footer, number, [(footer.groups[number].position, content)], columns)


def columns_of(
    footer: Footer, number: int, parts: Sequence[tuple[int, Buffer]], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """These columns of a group; the parts are where the bytes of `ranges_of` begin, and the bytes."""
    source = pa.PythonFile(_Parts(parts, footer.size), mode="r")
    try:
        file = pq.ParquetFile(
            source, metadata=footer.metadata, page_checksum_verification=True, arrow_extensions_enabled=False
        )
        table = file.read_row_group(number, columns=list(columns), use_threads=False)
        if set(table.column_names) != set(columns):
            raise BadFile("a column is missing", group=number, found=",".join(table.column_names))
        found = table.combine_chunks().to_batches()
    except DrayError:
        raise
    except _BROKEN as error:
        raise BadFile("a row group cannot be read", group=number) from error
    if sum(part.num_rows for part in found) != footer.metadata.row_group(number).num_rows:
        raise BadFile("a row group has another number of rows than it says", group=number)
    for part in found:
        yield _in_milliseconds(part)


def _in_milliseconds(part: pa.RecordBatch) -> pa.RecordBatch:
    at = part.schema.get_field_index("timestamp")
    if at < 0:
        return part
    times = pc.divide(part.column(at).view(pa.int64()), _THOUSAND)
    return part.set_column(at, pa.field("timestamp", pa.int64(), nullable=False), times)


# From bytes: Arrow loads pandas before it takes a number from Python.
_THOUSAND: Final = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer((1000).to_bytes(8, "little"))])[0]


class _Parts:
    """A file of which only some bytes are at hand."""

    closed = False

    def __init__(self, parts: Sequence[tuple[int, Buffer]], size: int) -> None:
        self._parts = [(position, memoryview(content)) for position, content in parts]
        self._size = size
        self._at = 0

    def seek(self, to: int, whence: int = 0) -> int:
        self._at = to + (self._at if whence == 1 else self._size if whence == 2 else 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, count: int = -1) -> memoryview:
        wanted = self._size - self._at if count < 0 else count
        for position, content in self._parts:
            first = self._at - position
            if first >= 0 and first + wanted <= len(content):
                self._at += wanted
                return content[first : first + wanted]
        raise BadFile("a column lies outside its row group", at=self._at, count=count)  # PQ4

    def close(self) -> None:
        """There is nothing to close."""
