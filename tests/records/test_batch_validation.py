"""Which batches may be stored."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.errors import Kind
from dray.records import (
    MAX_TIMESTAMP,
    BatchRules,
    Codec,
    InvalidBatch,
    NewRecord,
    ScratchPool,
    build_batch,
    inspect,
    records_of,
    view_at,
)
from dray.records import errors as refusals
from dray.records.codecs import compress
from tests.records.batch_samples import (
    batch_of,
    damaged,
    record_lists,
    records_bytes,
    resealed,
    seeded_records,
    validate,
)

POOL = ScratchPool(1 << 20)
RULES = BatchRules()
PLAIN = build_batch([NewRecord(b"k", b"v", 1_000 + at) for at in range(3)])


def refused(batch: bytes, rules: BatchRules = RULES, now_ms: int | None = None) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as caught:
        validate(batch, rules, POOL, now_ms)
    assert caught.value.kind is Kind.INVALID
    return caught.value


@given(records=record_lists, codec=st.sampled_from(Codec), xerial=st.booleans())
def test_what_we_build_is_valid_and_its_times_are_the_records_own(records: list[NewRecord], codec: Codec, xerial: bool):
    """B5, R-088: all codecs, both snappy forms."""
    batch = build_batch(records, codec=codec, xerial=xerial)
    found = validate(batch, RULES, POOL)
    times = [record.timestamp for record in records if record.timestamp != -1] or [-1]
    assert found.record_count == len(records)
    assert (found.min_timestamp, found.max_timestamp) == (min(times), max(times))
    assert found.codec is codec
    assert bytes(found.batch.buffer) == batch


def test_the_max_timestamp_of_the_header_is_not_believed():
    """B5"""
    found = validate(resealed(PLAIN, max_timestamp=(35, struct.pack(">q", 9_999_999))), RULES, POOL)
    assert (found.min_timestamp, found.max_timestamp) == (1_000, 1_002)
    assert found.batch.max_timestamp == 9_999_999


def test_the_crc_is_checked_over_every_byte_it_covers():
    """R-087"""
    for at in range(17, len(PLAIN)):
        flipped = bytearray(PLAIN)
        flipped[at] ^= 0x10
        assert isinstance(refused(bytes(flipped)), refusals.BadCrc)


def test_size_is_judged_before_the_crc_and_after_the_shape():
    """R-087: Java splits a batch on the answer to this one, so it must win over a bad CRC."""
    broken = PLAIN[:-1] + b"\xee"
    assert isinstance(refused(broken, BatchRules(max_bytes=len(PLAIN) - 1)), refusals.TooLarge)
    assert isinstance(refused(broken, BatchRules(max_bytes=len(PLAIN))), refusals.BadCrc)
    assert isinstance(refused(PLAIN + PLAIN, BatchRules(max_bytes=1)), refusals.NotOneBatch)
    assert validate(PLAIN, BatchRules(max_bytes=len(PLAIN)), POOL).record_count == 3


@pytest.mark.parametrize(
    ("delta", "count"), [(1, 3), (3, 3), (2, 2), (-1, 0), (0, 0), (-2, -1), (2**31 - 1, -(2**31)), (2, 4)]
)
def test_count_and_last_offset_delta_must_agree(delta: int, count: int):
    """R-087"""
    wrong = resealed(PLAIN, delta=(23, struct.pack(">i", delta)), count=(57, struct.pack(">i", count)))
    assert isinstance(refused(wrong), refusals.BadCount)


@pytest.mark.parametrize("count", [2, 4, 2**31 - 1])
def test_a_count_that_header_and_delta_share_must_be_the_records_own(count: int):
    """R-087, B5: a huge count costs nothing."""
    assert isinstance(refused(batch_of(PLAIN[61:], count)), refusals.BadRecords)


@pytest.mark.parametrize("codec", list(Codec))
def test_offset_deltas_count_from_zero_in_every_codec(codec: Codec):
    """R-087, R-088"""
    records = bytearray(PLAIN[61:])
    first = records[0] // 2 + 1
    records[first + 3] = 4  # the second record says 2
    wrong = batch_of(compress(codec, records), 3)
    assert isinstance(refused(resealed(wrong, codec=(21, bytes([0, codec])))), refusals.BadDeltas)


@pytest.mark.parametrize(
    ("bits", "kind"),
    [
        (0x20, refusals.ControlBatch),
        (0x10, refusals.Transactional),
        (0x30, refusals.ControlBatch),
        (0x08, refusals.BadTimestamp),
        (0x05, refusals.BadCodec),
        (0x07, refusals.BadCodec),
    ],
)
def test_flags_that_a_client_may_not_set(bits: int, kind: type[InvalidBatch]):
    """R-087"""
    assert isinstance(refused(resealed(PLAIN, attributes=(21, bytes([0, bits])))), kind)


def test_flags_without_a_meaning_are_let_through():
    assert validate(resealed(PLAIN, attributes=(21, b"\x7f\xc0")), RULES, POOL).record_count == 3


def test_a_base_offset_is_refused_from_a_client_and_fine_in_storage():
    batch = build_batch([NewRecord(value=b"v")], base_offset=5)
    assert isinstance(refused(batch), refusals.BadBaseOffset)
    assert validate(batch, BatchRules(zero_base_offset=False), POOL).record_count == 1


def test_a_producer_id_needs_a_sequence_but_not_the_other_way_round():
    """kafkajs and aiokafka send a sequence without an id."""
    value = [NewRecord(value=b"v")]
    assert isinstance(refused(build_batch(value, producer_id=1, producer_epoch=0)), refusals.BadSequence)
    assert validate(build_batch(value, producer_epoch=0, base_sequence=0), RULES, POOL).record_count == 1
    assert validate(build_batch(value, base_sequence=0), RULES, POOL).record_count == 1


@pytest.mark.parametrize("timestamp", [-2, -(2**63), MAX_TIMESTAMP + 1, 2**63 - 1])
def test_timestamps_that_no_table_can_hold_are_refused_unless_the_broker_stamps(timestamp: int):
    """E-15"""
    batch = build_batch([NewRecord(value=b"v", timestamp=0), NewRecord(value=b"v", timestamp=timestamp)])
    assert isinstance(refused(batch), refusals.BadTimestamp)
    assert validate(batch, BatchRules(append_time=True), POOL).record_count == 2


@pytest.mark.parametrize("base", [2**63 - 1, -(2**63)])
def test_a_timestamp_that_overflows_does_not_come_round_to_a_legal_one(base: int):
    records = records_bytes([NewRecord(value=b"v", timestamp=0), NewRecord(value=b"v", timestamp=base)])
    batch = resealed(batch_of(records, 2), base=(27, struct.pack(">q", base)))
    assert isinstance(refused(batch), refusals.BadTimestamp)


def test_the_topic_s_window_of_time_is_judged_against_now():
    batch = build_batch([NewRecord(value=b"v", timestamp=at) for at in (-1, 1_000, 2_000)])
    rules = BatchRules(before_max_ms=100, after_max_ms=500)
    assert isinstance(refused(batch, rules, now_ms=1_101), refusals.BadTimestamp)
    assert isinstance(refused(batch, rules, now_ms=1_499), refusals.BadTimestamp)
    wide = BatchRules(before_max_ms=500, after_max_ms=500)
    assert validate(batch, wide, POOL, now_ms=1_500).min_timestamp == 1_000
    untimed = build_batch([NewRecord(value=b"v")])
    assert validate(untimed, rules, POOL, now_ms=10**12).max_timestamp == -1


def test_a_compacted_topic_needs_keys_and_names_the_record_without():
    batch = build_batch([NewRecord(b"k", b"v"), NewRecord(b"", b"v"), NewRecord(None, b"v")])
    assert refused(batch, BatchRules(needs_keys=True)).facts["record"] == 2
    assert validate(batch, RULES, POOL).record_count == 3


@pytest.mark.parametrize("key", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_a_header_key_must_be_utf8(key: bytes):
    """E-15"""
    records = records_bytes([NewRecord(headers=[("x" * len(key), b"v")])]).replace(b"x" * len(key), key)
    assert isinstance(refused(batch_of(records, 1)), refusals.HeaderKeyNotUtf8)


def test_record_attributes_are_ignored():
    records = bytearray(records_bytes([NewRecord(b"k", b"v")]))
    records[1] = 0xFF
    assert validate(batch_of(bytes(records), 1), RULES, POOL).record_count == 1


def test_bytes_after_the_last_record_are_refused():
    assert isinstance(refused(batch_of(PLAIN[61:] + b"\x00", 3)), refusals.BadRecords)


def test_damage_is_refused_or_leaves_a_batch_that_can_be_read():
    """Whatever happens to the bytes, a batch that passes is one whose every record can be given out."""
    seed = 20251115
    print("seed", seed)
    dice = random.Random(seed)
    passed = 0
    for _ in range(3_000):
        records = seeded_records(dice, 6)
        batch = batch_of(damaged(dice, records_bytes(records)), len(records))
        try:
            validate(batch, RULES, POOL)
        except InvalidBatch:
            continue
        passed += 1
        assert len(list(records_of(view_at(batch)))) == len(records)
    assert 50 < passed < 2_000


def test_inspect_decides_without_the_records():
    """A compressed batch full of rubbish passes the cheap step and fails the dear one."""
    batch = resealed(batch_of(b"rubbish", 1), codec=(21, b"\x00\x04"))
    assert inspect(batch, RULES).is_compressed
    assert isinstance(refused(batch), refusals.BadCompression)
