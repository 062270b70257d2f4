"""The offset index of one stream: one row for each accepted batch.

Rows are packed, 36 bytes a row, not one object a row: a broker holds millions
of them. What is searched lies in columns of its own (end offsets, timestamps);
what is only read lies together (cumulative size, object, position), because a
lookup in a large index waits for memory. A row says where its batch ends, in
offsets and in bytes written since the stream began; where it starts is where
the row before ends. Rows leave from the front only, when the log start has
passed them.

A row does not say how its records lie: the kind of the object that it names
does. So a run of rows can be replaced by one cold row (Parquet, KFS, a sealed
block) that has the place of the last of them, and nothing else changes: cold
rows are in front, one for each file. What the replaced rows named is let go in
slices (Q8), and until then it is part of the state.

Invariants
    H1  The end of a stream is the end of its last row ever; it moves in the
        same call that adds the row, never goes back, and survives the expiry
        of all rows.
    H2  Rows are dense: each starts where the one before ends, and has at
        least one record; ends and sizes only grow.
    H3  A lookup finds the row with the smallest end above an offset.
    H7  Replacing rows moves no end, no cumulative size and no greatest
        timestamp: the one row covers what they covered. Each object is let
        go once for each row that named it.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from dray.errors import Corrupt
from dray.machine.names import ObjectId
from dray.machine.packing import Reader, Writer

LENGTH_BYTES: Final = 4
"""Each batch lies behind a length in its object; sizes count it, rows do not show it."""

BLOCK: Final = 512
ROW_BYTES: Final = 36
FIRST_WITH_SHED: Final = 2
"""The version of the rules that can replace rows, and whose checkpoints tell what is still to be let go."""
_REST: Final = struct.Struct("<QQI")
_PAIR: Final = struct.Struct("<QQIQQI")
_SIZE: Final = struct.Struct("<Q")
_WIDTH: Final = _REST.size
assert 8 + 8 + _WIDTH == ROW_BYTES, "the size of a row is part of the checkpoint format"
_WORDS: Final = _WIDTH // 4
_pack: Final = _REST.pack


class IndexRow(NamedTuple):
    """One row, unpacked."""

    start: int
    end: int
    cumulative_size: int
    """Bytes of all batches up to and with this one, lengths included."""
    object: ObjectId
    position: int
    """Of the first byte of the batch in its object."""
    size: int
    """Bytes of the batch."""
    max_timestamp_ms: int


class IndexColumns(NamedTuple):
    """Neighbouring rows as columns: for whoever looks at millions of them."""

    ends: "array[int]"
    stamps: "array[int]"
    sizes: "array[int]"
    """Cumulative, lengths included."""
    owners: "array[int]"
    """The objects."""
    positions: "array[int]"
    start: int
    """Where the first of them starts."""
    size: int
    """Bytes of all batches before the first of them, lengths included."""


class Index:
    """The rows of one stream. Row numbers are valid until rows are dropped."""

    __slots__ = ("_ends", "_head", "_peaks", "_rest", "_shed", "_stamps", "end", "first_size", "first_start", "size")

    def __init__(self) -> None:
        self._ends: array[int] = array("Q")
        self._stamps: array[int] = array("q")
        self._rest = bytearray()
        self._head = 0
        self._peaks: array[int] = array("q")
        self._shed: bytearray | None = None
        """What is left of rows that were replaced, for the objects they named; most streams have none."""
        self.first_start = 0
        self.first_size = 0
        self.end = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._ends) - self._head

    def append(self, end: int, size: int, owner: ObjectId, position: int, stamp: int) -> None:
        """Add a row; `end` and `size` are the stream's from here on."""
        self._ends.append(end)  # H2: the caller gave end > self.end
        self._stamps.append(stamp)
        self._rest += _pack(size, owner, position)
        self.end = end  # H1
        self.size = size
        if not len(self._stamps) % BLOCK:
            self._raise_peaks()  # block by block, so that nobody who asks for a time has many to raise

    def find(self, offset: int) -> int | None:
        """The number of the row that holds an offset: the smallest end above it (H3)."""
        number = bisect_right(self._ends, offset, self._head)
        return number - self._head if number < len(self._ends) else None

    def row(self, number: int) -> IndexRow:
        at = self._head + number
        if number > 0:
            start = self._ends[at - 1]
            before, _, _, size, owner, position = _PAIR.unpack_from(self._rest, (at - 1) * _WIDTH)
        else:
            start, before = self.first_start, self.first_size
            size, owner, position = _REST.unpack_from(self._rest, at * _WIDTH)
        return IndexRow(
            start, self._ends[at], size, owner, position, size - before - LENGTH_BYTES, self._stamps[at]
        )  # fmt: skip

    def rows(self, offset: int) -> Iterator[IndexRow]:
        """The row that holds an offset and all behind it. Do not append or drop meanwhile."""
        first = self.find(offset)
        if first is not None:
            for number in range(first, len(self)):
                yield self.row(number)

    def columns(self, first: int, end: int) -> IndexColumns:
        """The rows [first, end), copied."""
        low, high = self._head + first, self._head + end
        words = memoryview(self._rest[low * _WIDTH : high * _WIDTH]).cast("I")
        return IndexColumns(
            self._ends[low:high],
            self._stamps[low:high],
            _wide(words, 0),
            _wide(words, 2),
            _native(array("I", words[4::_WORDS].tobytes())),
            self._ends[low - 1] if first > 0 else self.first_start,
            int(_SIZE.unpack_from(self._rest, (low - 1) * _WIDTH)[0]) if first > 0 else self.first_size,
        )

    def find_time(self, timestamp_ms: int, first: int = 0) -> int | None:
        """The number of the first row, from `first` on, whose greatest timestamp is at or after a time."""
        self._raise_peaks()
        at, end = self._head + first, len(self._stamps)
        while at < end:
            block, inside = divmod(at, BLOCK)
            upto = min(end, (block + 1) * BLOCK)
            if inside == 0 and block < len(self._peaks) and self._peaks[block] < timestamp_ms:
                at = upto
                continue
            for number in range(at, upto):
                if self._stamps[number] >= timestamp_ms:
                    return number - self._head
            at = upto
        return None

    def find_latest_time(self, first: int = 0) -> int | None:
        """The number of the first row with the greatest timestamp of all from `first` on."""
        if first >= len(self):
            return None
        self._raise_peaks()
        at = self._head + first
        sealed, whole = len(self._peaks), -(-at // BLOCK)
        if sealed <= whole:
            return self.find_time(max(self._stamps[at:]), first)
        loose = self._stamps[at : whole * BLOCK] + self._stamps[sealed * BLOCK :]
        return self.find_time(max(self._peaks[whole:] + loose), first)

    def count_below(self, offset: int) -> int:
        """How many rows end at or below an offset."""
        return bisect_right(self._ends, offset, self._head) - self._head

    def count_within(self, size: int) -> int:
        """How many rows end at or below a cumulative size."""
        numbers = range(self._head, len(self._ends))
        return bisect_right(numbers, size, key=lambda at: int(_SIZE.unpack_from(self._rest, at * _WIDTH)[0]))

    def end_of(self, count: int) -> int:
        """Where the first `count` rows end."""
        return self._ends[self._head + count - 1] if count else self.first_start

    def stamps(self, count: int) -> "array[int]":
        """The greatest timestamps of the first `count` rows."""
        return self._stamps[self._head : self._head + count]

    def objects(self, count: int) -> list[ObjectId]:
        """The objects of the first `count` rows, once for each row."""
        front = self._rest[self._head * _WIDTH : (self._head + count) * _WIDTH]
        return [owner for _, owner, _ in _REST.iter_unpack(front)]

    def drop(self, count: int) -> list[ObjectId]:
        """Take the first `count` rows away; returns the objects they named, once for each row."""
        if count <= 0:
            return []
        owners = self.objects(count)
        self._head += count
        self.first_start = self._ends[self._head - 1]
        (self.first_size,) = _SIZE.unpack_from(self._rest, (self._head - 1) * _WIDTH)
        self._shift_if_due()
        return owners

    def replace(self, first: int, end: int, owner: ObjectId, position: int = 0) -> None:
        """Let one row that names `owner` stand for the rows [first, end) (H7).

        It costs a copy of what the rows before `first` and the replaced ones take, not a step for each.
        """
        if not 0 <= first < end <= len(self):
            raise ValueError("these rows are not there")
        low, last = self._head + first, self._head + end - 1
        replaced = self._rest[low * _WIDTH : (last + 1) * _WIDTH]
        self._shed = replaced if self._shed is None else self._shed + replaced
        stamp = self._greatest(low, last + 1)
        (size,) = _SIZE.unpack_from(self._rest, last * _WIDTH)
        _REST.pack_into(self._rest, last * _WIDTH, size, owner, position)
        self._stamps[last] = stamp
        moved, old = last - first, self._head  # the rows before move up to it
        self._ends[moved:last] = self._ends[old:low]
        self._stamps[moved:last] = self._stamps[old:low]
        self._rest[moved * _WIDTH : last * _WIDTH] = self._rest[old * _WIDTH : low * _WIDTH]
        self._head = moved
        for block in range(moved // BLOCK, min(len(self._peaks), last // BLOCK + 1)):
            self._peaks[block] = max(self._stamps[block * BLOCK : (block + 1) * BLOCK])
        self._shift_if_due()

    @property
    def shed_rows(self) -> int:
        """Replaced rows whose objects were not let go yet."""
        return 0 if self._shed is None else len(self._shed) // _WIDTH

    def shed(self, count: int) -> list[ObjectId]:
        """Let go of the objects of at most `count` replaced rows, oldest first; once for each row."""
        if self._shed is None or count <= 0:
            return []
        gone = self._shed[: count * _WIDTH]
        del self._shed[: count * _WIDTH]
        if not self._shed:
            self._shed = None
        return [owner for _, owner, _ in _REST.iter_unpack(gone)]

    def _greatest(self, low: int, high: int) -> int:
        """The greatest timestamp of the slots [low, high)."""
        self._raise_peaks()
        whole, end = -(-low // BLOCK), min(high // BLOCK, len(self._peaks))
        if end <= whole:
            return max(self._stamps[low:high])
        return max(self._stamps[low : whole * BLOCK] + self._peaks[whole:end] + self._stamps[end * BLOCK : high])

    def _shift_if_due(self) -> None:
        if self._head >= BLOCK and 2 * self._head >= len(self._ends):
            self._shift()

    def _shift(self) -> None:
        """Give memory back. It moves no more rows than were dropped since the last time."""
        cut = self._head - self._head % BLOCK if len(self) else self._head
        del self._ends[:cut]
        del self._stamps[:cut]
        del self._rest[: cut * _WIDTH]
        del self._peaks[: -(-cut // BLOCK)]
        self._head -= cut

    def _raise_peaks(self) -> None:
        """Keep the greatest timestamp of each full block; a cache, not state."""
        for block in range(len(self._peaks), len(self._stamps) // BLOCK):
            self._peaks.append(max(self._stamps[block * BLOCK : (block + 1) * BLOCK]))

    def dump(self, out: Writer, version: int) -> None:
        out.values([self.first_start, self.first_size])
        head = self._head
        out.column(self._ends[head:] if head else self._ends)
        out.column(self._stamps[head:] if head else self._stamps)
        out.blob(self._rest[head * _WIDTH :] if head else self._rest)
        if version >= FIRST_WITH_SHED:
            out.blob(self._shed or b"")

    @classmethod
    def load(cls, source: Reader, version: int) -> "Index":
        index = cls()
        index.first_start, index.first_size = source.ints(2)
        index._ends, index._stamps, index._rest = source.column("Q"), source.column("q"), bytearray(source.blob())
        rows = len(index._ends)
        if len(index._stamps) != rows or len(index._rest) != rows * _WIDTH:
            raise Corrupt("columns of a stream differ in length", rows=rows)
        if version >= FIRST_WITH_SHED:
            index._shed = bytearray(source.blob()) or None
            if index.shed_rows * _WIDTH != len(index._shed or b""):
                raise Corrupt("what is left of a stream's replaced rows ends inside one")
        index.end = index._ends[-1] if rows else index.first_start  # H1: no second counter
        index.size = index.row(rows - 1).cumulative_size if rows else index.first_size
        index._raise_peaks()
        return index


def _wide(words: memoryview, at: int) -> "array[int]":
    """The 64-bit column that begins at a word of each row."""
    column = array("Q", bytes(8 * (len(words) // _WORDS)))
    halves = memoryview(column).cast("B").cast("I")
    halves[0::2] = words[at::_WORDS]
    halves[1::2] = words[at + 1 :: _WORDS]
    return _native(column)


def _native(column: "array[int]") -> "array[int]":
    """Rows are little-endian, whatever the machine is."""
    if sys.byteorder == "big":
        column.byteswap()
    return column
