"""The kernel's twin in plain Python: its oracle in tests, its stand-in where no compiler was.

The same functions with the same signatures, results and faults as the C
extension. A fault is a ValueError whose arguments are (fault, position,
record); `to_columns` adds the index of the part. Positions count from the
start of the records and name the field that is wrong.

Invariants
    B3  The twin and the kernel give the same result for the same bytes, and
        the same fault at the same place where the bytes are wrong.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from dray.buffers import Buffer
from dray.records.columns import NARROW_LIMIT, Fault, Part, RawBinary, RawColumns
from dray.records.layout import NO_TIMESTAMP

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

Span: TypeAlias = tuple[int, int]
"""Where a byte string begins, and its length; -1 is null."""
Fields: TypeAlias = tuple[int, Span, Span, list[tuple[Span, Span]]]
"""Timestamp delta, key, value, headers."""


def scan(records: Buffer, count: int, base_timestamp: int) -> tuple[int, int, int]:
    """Check uncompressed records; (least timestamp, greatest, index of the first null key).

    The timestamps are those of records that have one; -1 when none has. The
    index is -1 when every record has a key. Record attributes are ignored.

    Raises:
        ValueError: (fault, position, record)
    """
    least, greatest, first_null = INT64_MAX, INT64_MIN, -1
    for index, (delta, key, _, _) in enumerate(walk(bytes(records), count)):
        timestamp = add_saturated(base_timestamp, delta)
        if timestamp != NO_TIMESTAMP:
            least = min(least, timestamp)
            greatest = max(greatest, timestamp)
        if first_null < 0 and key[1] < 0:
            first_null = index
    if least > greatest:
        return NO_TIMESTAMP, NO_TIMESTAMP, first_null
    return least, greatest, first_null


def to_columns(parts: Sequence[Part], narrow_limit: int = NARROW_LIMIT) -> RawColumns:
    """The records of many batches as one run of rows; `narrow_limit` is for tests of wide offsets.

    Raises:
        ValueError: (fault, position, record, part)
    """
    offsets, timestamps = array("q"), array("q")
    key, value = _BinaryColumn(), _BinaryColumn()
    lists = [0]
    header_key, header_value = _BinaryColumn(), _BinaryColumn()
    for number, (records, count, base_offset, timestamp, is_append_time) in enumerate(parts):
        data = bytes(records)
        try:
            for index, (delta, key_span, value_span, headers) in enumerate(walk(data, count)):
                offsets.append(add_saturated(base_offset, index))
                timestamps.append(timestamp if is_append_time else add_saturated(timestamp, delta))
                key.add(data, key_span)
                value.add(data, value_span)
                for name_span, content_span in headers:
                    header_key.add(data, name_span)
                    header_value.add(data, content_span)
                lists.append(len(header_key.ends) - 1)
        except ValueError as error:
            raise ValueError(*error.args, number) from None
    list_wide = lists[-1] > narrow_limit
    return (
        len(offsets),
        offsets.tobytes(),
        timestamps.tobytes(),
        key.done(narrow_limit),
        value.done(narrow_limit),
        (None, array("q" if list_wide else "i", lists).tobytes(), list_wide, 0),
        header_key.done(narrow_limit),
        header_value.done(narrow_limit),
    )


def walk(data: bytes, count: int) -> Iterator[Fields]:
    """The records one by one, each fully checked before it is given out."""
    at, end = 0, len(data)
    for index in range(count):
        field = at
        length, at = _varint(data, at, end, 5, index)
        if length < 0:
            raise ValueError(Fault.LENGTH, field, index)
        if length > end - at:
            raise ValueError(Fault.CUT, field, index)
        stop = at + length
        if at >= stop:
            raise ValueError(Fault.CUT, at, index)
        timestamp_delta, at = _varint(data, at + 1, stop, 10, index)
        field = at
        offset_delta, at = _varint(data, at, stop, 5, index)
        if offset_delta != index:
            raise ValueError(Fault.DELTA, field, index)
        key, at = _span(data, at, stop, -1, index)
        value, at = _span(data, at, stop, -1, index)
        headers, at = _headers(data, at, stop, index)
        if at != stop:
            raise ValueError(Fault.SPARE, at, index)
        yield timestamp_delta, key, value, headers
    if at != end:
        raise ValueError(Fault.TRAILING, at, count)


def add_saturated(left: int, right: int) -> int:
    """A sum that stays at the ends of 64 bits, where no legal timestamp or offset lies."""
    return min(max(left + right, INT64_MIN), INT64_MAX)


def _headers(data: bytes, at: int, stop: int, index: int) -> tuple[list[tuple[Span, Span]], int]:
    field = at
    count, at = _varint(data, at, stop, 5, index)
    if count < 0:
        raise ValueError(Fault.LENGTH, field, index)
    if count > (stop - at) // 2:  # a header is at least two lengths
        raise ValueError(Fault.CUT, field, index)
    headers = []
    for _ in range(count):
        field = at
        name, at = _span(data, at, stop, 0, index)
        try:
            data[name[0] : at].decode()
        except UnicodeDecodeError:
            raise ValueError(Fault.HEADER_KEY, field, index) from None
        content, at = _span(data, at, stop, -1, index)
        headers.append((name, content))
    return headers, at


def _span(data: bytes, at: int, stop: int, least: int, index: int) -> tuple[Span, int]:
    field = at
    length, at = _varint(data, at, stop, 5, index)
    if length < least:
        raise ValueError(Fault.LENGTH, field, index)
    if length > stop - at:
        raise ValueError(Fault.CUT, field, index)
    return (at, length), at + max(length, 0)


def _varint(data: bytes, at: int, stop: int, longest: int, index: int) -> tuple[int, int]:
    if at < stop and data[at] < 0x80:
        bits = data[at]
        return (bits >> 1) ^ -(bits & 1), at + 1
    bits = shift = 0
    for position in range(at, at + longest):
        if position >= stop:
            raise ValueError(Fault.CUT, at, index)
        byte = data[position]
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise ValueError(Fault.VARINT, at, index)
    if bits >> (32 if longest == 5 else 64):
        raise ValueError(Fault.VARINT, at, index)
    return (bits >> 1) ^ -(bits & 1), position + 1


class _BinaryColumn:
    """Byte strings on their way into one column."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.ends = [0]
        self.null_rows: list[int] = []

    def add(self, data: bytes, span: Span) -> None:
        start, length = span
        if length < 0:
            self.null_rows.append(len(self.ends) - 1)
        else:
            self.content += data[start : start + length]
        self.ends.append(len(self.content))

    def done(self, narrow_limit: int) -> RawBinary:
        wide = len(self.content) > narrow_limit
        offsets = array("q" if wide else "i", self.ends).tobytes()
        return self._validity(), offsets, bytes(self.content), len(self.null_rows), wide, 0

    def _validity(self) -> bytes | None:
        if not self.null_rows:
            return None
        rows = len(self.ends) - 1
        bitmap = bytearray(b"\xff" * (rows // 8))
        if rows % 8:
            bitmap.append((1 << rows % 8) - 1)
        for row in self.null_rows:
            bitmap[row >> 3] &= ~(1 << (row & 7))
        return bytes(bitmap)
