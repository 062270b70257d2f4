"""Batches to records, for tools, for lookups by time and for tests."""

from collections.abc import Iterator
from typing import NamedTuple

from dray.records import kernel, pure
from dray.records.codecs import DEFAULT_CAP_BYTES, expand
from dray.records.validate import refusal
from dray.records.view import BatchView


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def records_of(
    batch: BatchView, base_offset: int | None = None, cap_bytes: int = DEFAULT_CAP_BYTES
) -> Iterator[Record]:
    """The records in order. `base_offset` replaces the one in the header, as for a stored batch.

    Raises:
        InvalidBatch: the records cannot be read; those before were given out.
    """
    data = bytes(expand(batch.codec, batch.records, cap_bytes))
    start = batch.base_offset if base_offset is None else base_offset
    try:
        for index, (delta, key, value, headers) in enumerate(pure.walk(data, batch.record_count)):
            timestamp = (
                batch.max_timestamp if batch.has_append_time else pure.add_saturated(batch.base_timestamp, delta)
            )
            named = tuple((data[at : at + size].decode(), _content(data, span)) for (at, size), span in headers)
            yield Record(start + index, timestamp, _content(data, key), _content(data, value), named)
    except ValueError as error:
        raise refusal(*error.args) from None


def first_at_or_after(
    batch: BatchView, timestamp: int, base_offset: int | None = None, cap_bytes: int = DEFAULT_CAP_BYTES
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record that is not older than `timestamp`.

    Raises:
        InvalidBatch: the records cannot be read.
    """
    start = batch.base_offset if base_offset is None else base_offset
    for index, found in enumerate(_timestamps(batch, cap_bytes)):
        if found >= timestamp:
            return start + index, found
    return None


def newest(batch: BatchView, base_offset: int | None = None, cap_bytes: int = DEFAULT_CAP_BYTES) -> tuple[int, int]:
    """Offset and timestamp of the first record with the greatest timestamp.

    Raises:
        InvalidBatch: the records cannot be read.
    """
    start = batch.base_offset if base_offset is None else base_offset
    timestamps = _timestamps(batch, cap_bytes).tolist()
    greatest = max(timestamps)
    return start + timestamps.index(greatest), greatest


def _timestamps(batch: BatchView, cap_bytes: int) -> memoryview:
    has_append_time = batch.has_append_time
    timestamp = batch.max_timestamp if has_append_time else batch.base_timestamp
    data = expand(batch.codec, batch.records, cap_bytes)
    try:
        raw = kernel.to_columns([(data, batch.record_count, 0, timestamp, has_append_time)])
    except ValueError as error:
        raise refusal(*error.args[:3]) from None
    return memoryview(raw[2]).cast("q")


def _content(data: bytes, span: pure.Span) -> bytes | None:
    at, size = span
    return None if size < 0 else data[at : at + size]
