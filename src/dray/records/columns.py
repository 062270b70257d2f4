"""Rows as columns in plain buffers, laid out as Arrow lays them out.

The kernel and its twin pass bare tuples in this order; pyarrow only wraps the
buffers. Numbers are little-endian. Offsets are 32 bits wide where the bytes of
the column allow it, else 64 (`wide`). A validity bitmap is `None` when nothing
is null. Timestamps are milliseconds, as Kafka stores them, -1 meaning none:
whoever needs another unit casts the column.
"""

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from dray.buffers import Buffer

NARROW_LIMIT: Final = 2**31 - 1
"""The most that 32-bit offsets can point at."""


class Fault(IntEnum):
    """What the kernel and its twin can find wrong. The numbers are those of kernel.h."""

    CUT = 1
    """A varint or a length runs past the end of what contains it."""
    VARINT = 2
    """A varint has more bits than its type."""
    LENGTH = 3
    """A negative length or count where none is allowed."""
    DELTA = 4
    """An offset delta is not the index of its record."""
    SPARE = 5
    """A record is longer than its fields."""
    TRAILING = 6
    """Bytes follow the last record."""
    HEADER_KEY = 7
    """A header key is not UTF-8."""
    COLUMN = 8
    """The buffers of a column do not hold its rows; the position is the row."""


RawBinary: TypeAlias = tuple[Buffer | None, Buffer, Buffer, int, bool, int]
RawLists: TypeAlias = tuple[Buffer | None, Buffer, bool, int]
RawColumns: TypeAlias = tuple[int, Buffer, Buffer, RawBinary, RawBinary, RawLists, RawBinary, RawBinary]
Part: TypeAlias = tuple[Buffer, int, int, int, bool]
"""Uncompressed records, their count, base offset, timestamp, and whether that
timestamp is every record's (append time) or the base of their deltas."""


class Binary(NamedTuple):
    """A column of nullable byte strings."""

    validity: Buffer | None
    offsets: Buffer
    content: Buffer
    nulls: int
    wide: bool
    bit: int = 0
    """The bit of the bitmap that belongs to row 0: a slice cannot cut a bitmap between bytes."""


class Lists(NamedTuple):
    """Where each row's headers begin and end among all headers."""

    validity: Buffer | None
    offsets: Buffer
    wide: bool
    bit: int = 0


class Columns(NamedTuple):
    """Rows of a stream: offset i64, timestamp i64 (ms), key, value, headers."""

    rows: int
    offsets: Buffer
    timestamps: Buffer
    key: Binary
    value: Binary
    header_lists: Lists
    header_key: Binary
    header_value: Binary


def columns_of(raw: RawColumns) -> Columns:
    """Names for what the kernel returned."""
    rows, offsets, timestamps, key, value, lists, header_key, header_value = raw
    return Columns(
        rows,
        offsets,
        timestamps,
        Binary(*key),
        Binary(*value),
        Lists(*lists),
        Binary(*header_key),
        Binary(*header_value),
    )
