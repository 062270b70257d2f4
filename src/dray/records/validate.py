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
from dray.records import blame, kernel
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
from dray.records.lz4 import check_frame
from dray.records.members import check_member
from dray.records.view import BatchView, one_batch

_ANY_TIME: Final = -(1 << 63), (1 << 63) - 1
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
        least, greatest = _judge(batch.records, batch, rules, now_ms)
    else:
        if codec is Codec.LZ4:
            check_frame(batch.records)
        most_bytes = sane_size(batch.records) if rules.zero_base_offset else None
        with pool.lend() as scratch:
            records = decompress(codec, batch.records, scratch, most_bytes)
            if codec is Codec.GZIP:
                check_member(batch.records, len(records))
            least, greatest = _judge(records, batch, rules, now_ms)
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


def _judge(records: memoryview, batch: BatchView, rules: BatchRules, now_ms: int | None) -> tuple[int, int]:
    """The least and greatest timestamp of uncompressed records that may be stored."""
    try:
        least, greatest, first_null_key = kernel.scan(records, batch.record_count, batch.base_timestamp)
    except ValueError as error:
        raise refusal(*error.args) from None
    if takes(least, greatest, first_null_key, rules, now_ms):
        return least, greatest
    earliest, latest = _window(greatest, rules, now_ms)
    if least < earliest or greatest > latest:
        untimely = _untimely(least, greatest, now_ms)
        untimely.blamed = blame.untimely(records, batch, earliest, latest)
        raise untimely
    null_key = NullKey("a compacted topic takes no record without a key", record=first_null_key)
    null_key.blamed = blame.keyless(records, batch)
    raise null_key


def takes(least: int, greatest: int, first_null_key: int, rules: BatchRules, now_ms: int | None) -> bool:
    """Does the topic take what a scan found in the records? The two ends tell for all times between them."""
    if rules.needs_keys and first_null_key >= 0:
        return False
    if rules.append_time:
        return True
    if least < NO_TIMESTAMP or greatest > MAX_TIMESTAMP:
        return False
    if greatest == NO_TIMESTAMP or now_ms is None:
        return True
    before, after = rules.before_max_ms, rules.after_max_ms
    return (before is None or least >= now_ms - before) and (after is None or greatest <= now_ms + after)


def _window(greatest: int, rules: BatchRules, now_ms: int | None) -> tuple[int, int]:
    """Between which timestamps those of the records must lie."""
    if rules.append_time:
        return _ANY_TIME
    earliest, latest = NO_TIMESTAMP, MAX_TIMESTAMP
    if greatest == NO_TIMESTAMP:
        return earliest, latest
    if now_ms is not None and rules.before_max_ms is not None:
        earliest = max(earliest, now_ms - rules.before_max_ms)
    if now_ms is not None and rules.after_max_ms is not None:
        latest = min(latest, now_ms + rules.after_max_ms)
    return earliest, latest


def _untimely(least: int, greatest: int, now_ms: int | None) -> BadTimestamp:
    if least < NO_TIMESTAMP or greatest > MAX_TIMESTAMP:
        return BadTimestamp("timestamp is not within 1970 to 9999", least=least, greatest=greatest)
    return BadTimestamp("timestamp is outside of the topic's window", least=least, greatest=greatest, now_ms=now_ms)


def _refused_bits(batch: BatchView) -> InvalidBatch:
    if batch.is_control:
        return ControlBatch("a client cannot write a control batch", attributes=batch.attributes)
    if batch.is_transactional:
        return Transactional("transactions are not offered", producer_id=batch.producer_id)
    return BadTimestamp("a producer cannot set append time", attributes=batch.attributes)
