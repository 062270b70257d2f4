"""The twin of the kernel's writer: columns back to records.

Apart from `pure` only to keep both readable; callers use `dray.records.kernel`.
"""

from collections.abc import Iterator
from typing import Final

from dray.buffers import Buffer
from dray.records.columns import Fault, RawBinary, RawColumns, RawLists
from dray.records.pure import INT64_MAX, INT64_MIN, Span
from dray.records.varint import put_varint, varint_size

INT32_MAX: Final = 2**31 - 1


def write_records(
    out: bytearray | memoryview, at: int, columns: RawColumns, start: int, end: int, limit_bytes: int, one_time: bool
) -> tuple[int, int, int]:
    """Write rows from `start` into `out` from `at`, as the records of one batch.

    The batch ends before `end` where the next row would pass `limit_bytes` or
    the room in `out`, does not follow in offset, lies too far in time, or, with
    `one_time`, has another timestamp. The first row may pass `limit_bytes`.

    Returns (rows, bytes, greatest timestamp); (0, bytes needed, 0) when `out`
    has no room for the first row.

    Raises:
        ValueError: (fault, row, row) when the buffers of a column do not hold its rows.
        IndexError: `at` is not within `out`.
    """
    room = len(out) - at
    if not 0 <= at <= len(out):
        raise IndexError("position is outside the buffer")
    used, greatest = 0, INT64_MIN
    rows = _Rows(columns)
    for row in range(start, end):
        index = row - start
        if index and not rows.follows(row, start, one_time):
            break
        record = rows.record(row, start)
        if index and used + len(record) > max(limit_bytes, 0):
            break
        if used + len(record) > room:
            if not index:
                return 0, len(record), 0
            break
        out[at + used : at + used + len(record)] = record
        used += len(record)
        greatest = max(greatest, rows.timestamp(row))
    else:
        index = max(end - start, 0)
    return (index, used, greatest) if index else (0, 0, 0)


class _Rows:
    """The rows behind a set of columns."""

    def __init__(self, columns: RawColumns) -> None:
        _, offsets, timestamps, key, value, lists, header_key, header_value = columns
        self._offsets = _whole(offsets, 8).cast("q")
        self._timestamps = _whole(timestamps, 8).cast("q")
        self._key = _Contents(key)
        self._value = _Contents(value)
        self._header_key = _Contents(header_key)
        self._header_value = _Contents(header_value)
        self._lists = _Contents(lists, min(self._header_key.rows, self._header_value.rows))

    def timestamp(self, row: int) -> int:
        return self._number(self._timestamps, row)

    def follows(self, row: int, start: int, one_time: bool) -> bool:
        """Does the row belong to the batch that began at `start`, being next to the one before?"""
        offset, timestamp = self._number(self._offsets, row), self._number(self._timestamps, row)
        delta = timestamp - self._timestamps[start]
        if not INT64_MIN <= delta <= INT64_MAX or (one_time and delta) or row - start > INT32_MAX:
            return False
        return bool(offset == self._offsets[row - 1] + 1)

    def record(self, row: int, start: int) -> bytearray:
        self._number(self._offsets, row)
        delta = self._number(self._timestamps, row) - self._timestamps[start]
        key, value = self._key.span(row, row), self._value.span(row, row)
        first, count = self._lists.span(row, row)
        headers = list(self._headers(first, max(count, 0), row))
        numbers = 1 + varint_size(delta) + varint_size(row - start) + varint_size(len(headers) // 2)
        spans = [span for _, span in headers]
        body_size = numbers + sum(varint_size(size) + max(size, 0) for _, size in (key, value, *spans))
        if body_size > INT32_MAX:
            raise ValueError(Fault.COLUMN, row, row)
        body = bytearray(1)
        put_varint(body, delta)
        put_varint(body, row - start)
        self._key.put(body, key)
        self._value.put(body, value)
        put_varint(body, len(headers) // 2)
        for contents, span in headers:
            contents.put(body, span)
        record = bytearray()
        put_varint(record, len(body))
        return record + body

    def _headers(self, first: int, count: int, row: int) -> Iterator[tuple["_Contents", Span]]:
        """Keys and values in turn."""
        for header in range(first, first + count):
            name = self._header_key.span(header, row)
            if name[1] < 0:
                raise ValueError(Fault.COLUMN, row, row)
            yield self._header_key, name
            yield self._header_value, self._header_value.span(header, row)

    @staticmethod
    def _number(column: memoryview, row: int) -> int:
        if not 0 <= row < len(column):
            raise ValueError(Fault.COLUMN, row, row)
        return int(column[row])


class _Contents:
    """A nullable column whose rows are ranges: of bytes, or of headers."""

    def __init__(self, column: RawBinary | RawLists, children: int | None = None) -> None:
        if len(column) == 6:
            self._validity, offsets, content, _, wide, self._bit = column
            self._content = memoryview(content)
            self._end = len(self._content)
        else:
            self._validity, offsets, wide, self._bit = column
            self._end = children or 0
        self._ranges = _whole(offsets, 8 if wide else 4).cast("q" if wide else "i")
        self.rows = max(len(self._ranges) - 1, 0)
        if self._validity is not None:
            bits = len(self._validity) * 8 - self._bit
            self.rows = min(self.rows, max(bits, 0) if self._bit >= 0 else 0)

    def span(self, row: int, batch_row: int) -> Span:
        if not 0 <= row < self.rows:
            raise ValueError(Fault.COLUMN, batch_row, batch_row)
        if self._validity is not None:
            bit = self._bit + row
            if not self._validity[bit >> 3] >> (bit & 7) & 1:
                return 0, -1
        start, end = self._ranges[row], self._ranges[row + 1]
        if not 0 <= start <= end <= self._end or end - start > INT32_MAX:
            raise ValueError(Fault.COLUMN, batch_row, batch_row)
        return start, end - start

    def put(self, out: bytearray, span: Span) -> None:
        start, size = span
        put_varint(out, size)
        if size > 0:
            out += self._content[start : start + size]


def _whole(buffer: Buffer, width: int) -> memoryview:
    """The buffer without the bytes that fill no number."""
    view = memoryview(buffer).cast("B")
    return view[: len(view) // width * width]
