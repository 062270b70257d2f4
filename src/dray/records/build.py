"""Records to batches."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c

from dray.errors import Invalid
from dray.records.codecs import compress, compress_xerial
from dray.records.layout import (
    AFTER_CRC,
    APPEND_TIME_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_FROM,
    MAGIC,
    NO_TIMESTAMP,
    Codec,
)
from dray.records.varint import put_varint

Headers = Sequence[tuple[str, bytes | None]]
"""In order, doubles kept."""


class NewRecord(NamedTuple):
    """A record to be written. None and b"" differ, for key, value and header values alike."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    headers: Headers = ()


def build_batch(
    records: Iterable[NewRecord],
    *,
    codec: Codec = Codec.NONE,
    xerial: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
    append_time: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A whole batch, CRC included. `xerial` frames snappy as Java does.

    Raises:
        Invalid: there are no records.
    """
    rows = list(records)
    if not rows:
        raise Invalid("a batch needs at least one record")
    base_timestamp = rows[0].timestamp
    body = bytearray()
    for index, row in enumerate(rows):
        put_record(body, row, row.timestamp - base_timestamp, index)
    packed = compress_xerial(body) if xerial and codec is Codec.SNAPPY else compress(codec, body)
    covered = AFTER_CRC.pack(
        codec | (APPEND_TIME_BIT if append_time else 0),
        len(rows) - 1,
        base_timestamp,
        max(row.timestamp for row in rows),
        producer_id,
        producer_epoch,
        base_sequence,
        len(rows),
    )
    crc = crc32c(packed, crc32c(covered))
    length = HEADER_SIZE - LENGTH_FROM + len(packed)
    prefix = HEADER.pack(base_offset, length, leader_epoch, MAGIC, crc, *AFTER_CRC.unpack(covered))
    return prefix + packed


def put_record(out: bytearray, record: NewRecord, timestamp_delta: int, offset_delta: int) -> None:
    """Append one record."""
    body = bytearray(b"\x00")  # the attributes of a record mean nothing
    put_varint(body, timestamp_delta)
    put_varint(body, offset_delta)
    _put_nullable(body, record.key)
    _put_nullable(body, record.value)
    put_varint(body, len(record.headers))
    for name, content in record.headers:
        _put_nullable(body, name.encode())
        _put_nullable(body, content)
    put_varint(out, len(body))
    out += body


def _put_nullable(out: bytearray, content: bytes | None) -> None:
    if content is None:
        put_varint(out, -1)
    else:
        put_varint(out, len(content))
        out += content
