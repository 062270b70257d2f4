"""A batch as it lies in received or stored bytes, looked at without a copy.

Invariants
    B1  Every length is bounded by the bytes that are there before it is used.
    B2  A batch that is sent on differs from the stored bytes only in base
        offset and leader epoch; with append time also in the attribute bit,
        max timestamp and CRC. Producer fields and records are never touched.
"""

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from dray.buffers import Buffer
from dray.records.errors import BadCodec, BadMagic, NotOneBatch
from dray.records.layout import (
    AFTER_CRC,
    APPEND_TIME_BIT,
    CODEC_BITS,
    CODECS,
    CONTROL_BIT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_FROM,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    Codec,
)


class BatchView(NamedTuple):
    """One batch: its bytes, and its header's fields as they were received.

    A tuple because one is made for every produced batch; the fields after
    `buffer` are in the order of the header.
    """

    buffer: memoryview
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_FROM

    @property
    def records(self) -> memoryview:
        """The records' bytes, compressed as they came."""
        return self.buffer[HEADER_SIZE:]

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_BITS
        if number >= len(CODECS):
            raise BadCodec("unknown codec: use gzip, snappy, lz4 or zstd", codec=number)
        return CODECS[number]

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_BITS != 0

    @property
    def has_append_time(self) -> bool:
        """Every record's timestamp is `max_timestamp`, whatever its delta says."""
        return self.attributes & APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def crc_is_right(self) -> bool:
        return crc32c(self.buffer[CRC_FROM:]) == self.crc


def view_at(buffer: Buffer, at: int = 0) -> BatchView:
    """The batch that begins at `at`; bytes after it are left alone.

    Raises:
        NotOneBatch: no complete batch is there.
        BadMagic: an older or unknown format.
    """
    received = len(buffer) - at
    if received < HEADER_SIZE:
        # The magic lies at the same place in formats 0 and 1, whose batches may be shorter than our header.
        if received > MAGIC_AT and buffer[at + MAGIC_AT] != MAGIC:
            raise BadMagic("message format is not 2: use a newer client", magic=buffer[at + MAGIC_AT])
        raise NotOneBatch("batch is cut short", received=received, needed=HEADER_SIZE)
    fields = HEADER.unpack_from(buffer, at)
    if fields[3] != MAGIC:
        raise BadMagic("message format is not 2: use a newer client", magic=fields[3])
    size = fields[1] + LENGTH_FROM
    if size < HEADER_SIZE or size > received:  # B1
        raise NotOneBatch("batch length does not fit the bytes", length=fields[1], received=received)
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    if size != len(view):
        view = view[at : at + size]
    return BatchView._make((view, *fields))


def one_batch(buffer: Buffer) -> BatchView:
    """The batch that fills `buffer` exactly.

    Raises:
        NotOneBatch: no complete batch, or bytes after it.
        BadMagic: an older or unknown format.
    """
    batch = view_at(buffer)
    if len(batch.buffer) != len(buffer):
        raise NotOneBatch("bytes follow the batch: send one batch a partition", trailing=len(buffer) - batch.size)
    return batch


def batches(buffer: Buffer) -> Iterator[BatchView]:
    """The batches that fill `buffer`, one after another.

    Raises:
        NotOneBatch: the last one is cut short.
        BadMagic: one of an older or unknown format.
    """
    whole = memoryview(buffer)
    at = 0
    while at < len(whole):
        batch = view_at(whole, at)
        yield batch
        at += batch.size


def append_time_parts(batch: BatchView, append_ms: int) -> list[Buffer]:
    """The batch with the broker's time: a new 61-byte header with a new CRC, and the records as they are (B2)."""
    covered = AFTER_CRC.pack(
        batch.attributes | APPEND_TIME_BIT,
        batch.last_offset_delta,
        batch.base_timestamp,
        append_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    records = batch.records
    crc = crc32c(records, crc32c(covered))
    return [bytes(batch.buffer[:17]) + crc.to_bytes(4, "big") + covered, records]
