"""A validated batch on its way to its offsets.

Invariants
    PR7  What is indexed of a batch (records, least and greatest timestamp)
         was seen in its records or given by the broker, never read from a
         header field alone (B5).
"""

from typing import NamedTuple

from dray.buffers import Buffer
from dray.machine.names import ProducerId, StreamId
from dray.records import BatchView, Validated, append_time_parts

NO_PRODUCER = ProducerId(-1)


class NewBatch(NamedTuple):
    """One batch to be stored. A tuple, because every produced batch makes one."""

    stream: StreamId
    data: Buffer
    """The batch as it is stored. A memoryview keeps the received buffer alive until the answer."""
    records: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: ProducerId = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1


class Stored(NamedTuple):
    """Where a batch lies; for a duplicate, where it has been lying."""

    base_offset: int
    log_start_offset: int
    timestamp_ms: int = -1
    """Of a duplicate: the greatest timestamp under which it is stored, if that is still known."""


def received(stream: StreamId, validated: Validated) -> NewBatch:
    """A batch with the timestamps that its producer gave (CreateTime)."""
    view, records, least, greatest, _ = validated
    return NewBatch(stream, view.buffer, records, least, greatest, *_producer(view))  # PR7


def stamped(stream: StreamId, validated: Validated, now_ms: int) -> NewBatch:
    """A batch with the broker's time instead (LogAppendTime)."""
    view = validated.batch
    data = with_append_time(view, now_ms)
    return NewBatch(stream, data, validated.record_count, now_ms, now_ms, *_producer(view))


def with_append_time(view: BatchView, now_ms: int) -> bytes:
    """The whole batch with attribute bit 3, max timestamp and CRC rewritten (R-104)."""
    return b"".join(append_time_parts(view, now_ms))


def _producer(view: BatchView) -> tuple[ProducerId, int, int]:
    # Some clients send epoch and sequence 0 without an id: they mean nothing then.
    if view.producer_id < 0:
        return NO_PRODUCER, -1, -1
    return ProducerId(view.producer_id), view.producer_epoch, view.base_sequence
