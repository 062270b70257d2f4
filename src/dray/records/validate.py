"""Is this batch one that may be stored?

In two steps, because the first is cheap and the second may not be:

    inspect        header and CRC; on the event loop
    check_records  decompression and scan; off the loop where `is_compressed`

Refusals come in Kafka's order: one batch, magic, base offset, size, CRC,
counts, flags, then the records.

Invariants
    B5  What a batch is said to hold (count, least and greatest timestamp)
        comes from its records, never from a header field alone.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from dray.buffers import Buffer
from dray.records import kernel
from dray.records.codecs import ScratchPool, decompress, sane_size
from dray.records.columns import Fault
from dray.records.errors import (
    BadBaseOffset,
    BadCount,
    BadCrc,
    BadDeltas,
    BadRecords,
    BadSequence,
    BadTimestamp,
    ControlBatch,
    HeaderKeyNotUtf8,
    InvalidBatch,
    NullKey,
    TooLarge,
    Transactional,
)
from dray.records.layout import (
    APPEND_TIME_BIT,
    CODEC_BITS,
    CONTROL_BIT,
    CRC_FROM,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    Codec,
)
from dray.records.view import BatchView, one_batch

_REFUSED_BITS: Final = APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """What a topic takes; the defaults are Kafka's."""

    max_bytes: int = 1_048_588
    append_time: bool = False
    """The broker's time replaces the records' timestamps, so theirs are not judged."""
    needs_keys: bool = False
    """A compacted topic: a record without a key could never be replaced."""
    before_max_ms: int | None = None
    """How far in the past a timestamp may lie; None: as far as it likes."""
    after_max_ms: int | None = 3_600_000
    """How far in the future."""
    zero_base_offset: bool = True
    """A client's batch begins at 0; a stored one that is checked again need not."""


class Validated(NamedTuple):
    """A batch that may be stored, and what its records were seen to hold (B5)."""

    batch: BatchView
    record_count: int
    min_timestamp: int
    """Of the records that have a timestamp; -1 when none has."""
    max_timestamp: int
    codec: Codec


def validate(buffer: Buffer, rules: BatchRules, pool: ScratchPool, now_ms: int | None = None) -> Validated:
    """Both steps at once, for callers that are not on the event loop.

    Raises:
        InvalidBatch: its class says why; nothing was changed.
    """
    return check_records(inspect(buffer, rules), rules, pool, now_ms)


def inspect(buffer: Buffer, rules: BatchRules) -> BatchView:
    """The batch that fills `buffer`, its header and CRC checked.

    Raises:
        InvalidBatch: its class says why.
    """
    batch = one_batch(buffer)
    # One unpacking instead of many attribute reads: this runs for every produced batch.
    view, base_offset, _, _, _, crc, attributes, last_delta, _, _, producer_id, _, base_sequence, count = batch
    if base_offset != 0 and rules.zero_base_offset:
        raise BadBaseOffset("base offset of a sent batch must be 0", base_offset=base_offset)
    if len(view) > rules.max_bytes:
        raise TooLarge("batch exceeds max.message.bytes", size=len(view), max_bytes=rules.max_bytes)
    if crc32c(view[CRC_FROM:]) != crc:
        raise BadCrc("checksum is wrong: the batch was damaged on its way", size=len(view))
    if count != last_delta + 1 or count <= 0:
        raise BadCount("record count and last offset delta disagree", record_count=count, last_offset_delta=last_delta)
    if attributes & _REFUSED_BITS:
        raise _refused_bits(batch)
    if producer_id >= 0 and base_sequence < 0:
        raise BadSequence("a producer id needs a sequence", producer_id=producer_id)
    if attributes & CODEC_BITS:
        _ = batch.codec  # an unknown one is refused here, not in a thread
    return batch


def check_records(batch: BatchView, rules: BatchRules, pool: ScratchPool, now_ms: int | None = None) -> Validated:
    """Scan the records of an inspected batch, decompressed if need be.

    Without `now_ms` the topic's window of timestamps is not looked at.

    Raises:
        InvalidBatch: its class says why.
    """
    codec = batch.codec
    if codec is Codec.NONE:
        found = _scan(batch.records, batch)
    else:
        most_bytes = sane_size(batch.records) if rules.zero_base_offset else None
        with pool.lend() as scratch:
            found = _scan(decompress(codec, batch.records, scratch, most_bytes), batch)
    least, greatest, first_null_key = found
    if not rules.append_time:
        _check_timestamps(least, greatest, rules, now_ms)
    if rules.needs_keys and first_null_key >= 0:
        raise NullKey("a compacted topic takes no record without a key", record=first_null_key)
    return Validated(batch, batch.record_count, least, greatest, codec)


def refusal(fault: int, position: int, record: int) -> InvalidBatch:
    """The error for a fault that the kernel found in the records."""
    name = Fault(fault).name.lower()
    match fault:
        case Fault.DELTA:
            return BadDeltas("offset deltas are not 0, 1, 2, ...", record=record, position=position)
        case Fault.HEADER_KEY:
            return HeaderKeyNotUtf8("header key is not UTF-8", record=record, position=position)
        case _:
            return BadRecords("records are malformed", fault=name, record=record, position=position)


def _scan(records: memoryview, batch: BatchView) -> tuple[int, int, int]:
    try:
        return kernel.scan(records, batch.record_count, batch.base_timestamp)
    except ValueError as error:
        raise refusal(*error.args) from None


def _check_timestamps(least: int, greatest: int, rules: BatchRules, now_ms: int | None) -> None:
    # Outside the legal range lie only values below -1 and above the maximum, so the two ends tell for all.
    if least < NO_TIMESTAMP or greatest > MAX_TIMESTAMP:
        raise BadTimestamp("timestamp is not within 1970 to 9999", least=least, greatest=greatest)
    if now_ms is None or greatest == NO_TIMESTAMP:
        return
    if rules.before_max_ms is not None and least < now_ms - rules.before_max_ms:
        raise BadTimestamp("timestamp is too far in the past", timestamp=least, now_ms=now_ms)
    if rules.after_max_ms is not None and greatest > now_ms + rules.after_max_ms:
        raise BadTimestamp("timestamp is too far in the future", timestamp=greatest, now_ms=now_ms)


def _refused_bits(batch: BatchView) -> InvalidBatch:
    if batch.is_control:
        return ControlBatch("a client cannot write a control batch", attributes=batch.attributes)
    if batch.is_transactional:
        return Transactional("transactions are not offered", producer_id=batch.producer_id)
    return BadTimestamp("a producer cannot set append time", attributes=batch.attributes)
