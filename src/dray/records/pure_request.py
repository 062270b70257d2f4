"""A plain Produce request as rows: the twin of request.c.

Plain is what nearly every request is: a flexible version, no tagged field, no
transaction, an answer wanted, a few partitions, each with one uncompressed
batch that is in order. One call reads it. Everything else is None, and goes
to the code that can say what is unusual about it, or wrong.
"""

import struct
from typing import Final, TypeAlias

from dray.buffers import Buffer
from dray.records import pure
from dray.records.layout import HEADER, HEADER_SIZE, LENGTH_FROM, MAGIC

MOST_ROWS: Final = 64
"""A request for more partitions is not plain."""

Row: TypeAlias = tuple[str, int, int, int, int, int, int, int, int, int, int, int]
"""Topic, partition, where the batch starts and ends in the frame, its CRC (which the caller checks), records, least
and greatest timestamp, first record without a key, producer id, epoch and sequence (all -1 without an id)."""
Plain: TypeAlias = tuple[int, int, list[Row]]
"""Correlation id, timeout in ms, rows."""

_HEAD: Final = struct.Struct(">hhih")
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INDEX: Final = struct.Struct(">i")
_ACKS: Final = (-1, 1)


class _Unusual(Exception):
    """Not plain."""


def plain_request(frame: Buffer) -> Plain | None:
    """The frame of a Produce request, version 9 to 12, without its length in front; None if it is not plain."""
    cursor = _Cursor(bytes(frame))
    try:
        correlation_id, timeout_ms = cursor.head()
        rows: list[Row] = []
        for _ in range(cursor.count(3)):
            name = cursor.text(cursor.count(1))
            partitions = cursor.count(6)
            cursor.require(not rows or rows[-1][0] != name)  # rows of two topics with one name could not be told apart
            cursor.require(0 < partitions <= MOST_ROWS - len(rows))
            rows += [cursor.partition(name) for _ in range(partitions)]
            cursor.nothing()
        cursor.nothing()
        cursor.require(bool(rows) and cursor.left == 0)
    except _Unusual:
        return None
    return correlation_id, timeout_ms, rows


class _Cursor:
    """A place in the frame."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._frame) - self._at

    def require(self, truth: bool) -> None:
        if not truth:
            raise _Unusual

    def head(self) -> tuple[int, int]:
        _, _, correlation_id, client = _HEAD.unpack(self._take(_HEAD.size))
        self.require(client >= -1)
        self.text(max(client, 0))
        self.nothing()  # tags
        self.nothing()  # a transactional id
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack(self._take(_ACKS_AND_TIMEOUT.size))
        self.require(acks in _ACKS)
        return correlation_id, timeout_ms

    def partition(self, name: str) -> Row:
        (partition,) = _INDEX.unpack(self._take(_INDEX.size))
        size = self.count(1)
        start = self._at
        batch = self._take(size)
        self.nothing()
        return name, partition, start, start + size, *self._batch(batch)

    def _batch(self, batch: bytes) -> tuple[int, int, int, int, int, int, int, int]:
        self.require(len(batch) >= HEADER_SIZE)
        header = HEADER.unpack_from(batch)
        base_offset, length, _, magic, crc, attributes, last_delta, base_timestamp, _, producer, epoch = header[:11]
        sequence, count = header[11:]
        self.require(base_offset == 0 and length + LENGTH_FROM == len(batch) and magic == MAGIC and attributes == 0)
        self.require(count > 0 and count == last_delta + 1 and (producer < 0 or sequence >= 0))
        try:
            found = pure.scan(batch[HEADER_SIZE:], count, base_timestamp)
        except ValueError:
            raise _Unusual from None
        if producer < 0:  # epoch and sequence mean nothing then
            producer = epoch = sequence = -1
        return crc, count, *found, producer, epoch, sequence

    def count(self, smallest: int) -> int:
        """A length or count that is not null, of things that take at least `smallest` bytes."""
        bits = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.require(1 <= bits <= self.left // smallest + 1)
                return bits - 1
        raise _Unusual

    def text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise _Unusual from None

    def nothing(self) -> None:
        """The byte 0: an empty section of tags, or a null."""
        self.require(self._take(1) == b"\0")

    def _take(self, size: int) -> bytes:
        self.require(size <= self.left)
        self._at += size
        return self._frame[self._at - size : self._at]
