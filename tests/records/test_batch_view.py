"""A batch looked at in place, and the two ways it is changed on its way out."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from dray.records import (
    Codec,
    NewRecord,
    append_time_parts,
    batches,
    build_batch,
    one_batch,
    records_of,
    view_at,
)
from dray.records.errors import BadCodec, BadMagic, InvalidBatch, NotOneBatch
from tests.records.batch_samples import record_lists

ONE = build_batch(
    [NewRecord(b"k", b"v", 1_000), NewRecord(b"k2", b"v2", 2_000)],
    producer_id=77,
    producer_epoch=3,
    base_sequence=12,
    leader_epoch=-1,
)


def test_the_fields_lie_where_the_format_says():
    """K-020: 61 bytes, each field at its place, read with plain slices here."""
    batch = one_batch(ONE)

    def field(at: int, form: str) -> int:
        return struct.unpack_from(">" + form, ONE, at)[0]

    assert (batch.base_offset, batch.length, batch.leader_epoch) == (field(0, "q"), field(8, "i"), field(12, "i"))
    assert (batch.magic, batch.crc, batch.attributes) == (field(16, "b"), field(17, "I"), field(21, "h"))
    assert (batch.last_offset_delta, batch.record_count) == (field(23, "i"), field(57, "i")) == (1, 2)
    assert (batch.base_timestamp, batch.max_timestamp) == (field(27, "q"), field(35, "q")) == (1_000, 2_000)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 12)
    assert (field(43, "q"), field(51, "h"), field(53, "i")) == (77, 3, 12)
    assert batch.crc == crc32c(ONE[21:])
    assert bytes(batch.records) == ONE[61:]
    assert batch.size == len(ONE) == field(8, "i") + 12


def test_a_view_copies_nothing():
    received = bytearray(ONE)
    batch = one_batch(received)
    received[-1] ^= 0xFF
    assert batch.buffer[-1] == received[-1]
    assert batch.records[-1] == received[-1]


@given(lists=st.lists(record_lists, max_size=4))
def test_batches_in_a_row_come_out_one_by_one(lists: list[list[NewRecord]]):
    packed = [build_batch(records, base_offset=at) for at, records in enumerate(lists)]
    found = list(batches(b"".join(packed)))
    assert [bytes(batch.buffer) for batch in found] == packed
    assert [batch.base_offset for batch in found] == list(range(len(lists)))


@pytest.mark.parametrize("kept", [0, 1, 11, 16, 17, 60, 61, len(ONE) - 1])
def test_a_batch_cut_anywhere_is_no_batch(kept: int):
    """B1: a length is believed only as far as bytes were received."""
    with pytest.raises(NotOneBatch):
        one_batch(ONE[:kept])
    with pytest.raises(NotOneBatch):
        list(batches(ONE + ONE[: max(kept, 1)]))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, len(ONE) - 11, 2**31 - 1])
def test_a_lying_length_is_refused(length: int):
    """B1"""
    with pytest.raises(NotOneBatch):
        one_batch(ONE[:8] + struct.pack(">i", length) + ONE[12:])


def test_a_second_batch_is_refused_where_one_is_allowed():
    with pytest.raises(NotOneBatch):
        one_batch(ONE + ONE)
    assert bytes(view_at(ONE + ONE, len(ONE)).buffer) == ONE


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_formats_are_refused_even_when_shorter_than_our_header(magic: int):
    for batch in (ONE, ONE[:40]):
        with pytest.raises(BadMagic):
            one_batch(batch[:16] + bytes([magic]) + batch[17:])


def test_an_unknown_codec_has_no_name():
    with pytest.raises(BadCodec):
        _ = one_batch(ONE[:22] + b"\x05" + ONE[23:]).codec


@given(records=record_lists, codec=st.sampled_from(Codec), append_ms=st.integers(0, 2**62))
def test_append_time_changes_bit_max_timestamp_and_crc_alone(records: list[NewRecord], codec: Codec, append_ms: int):
    """B2, R-104"""
    received = build_batch(records, codec=codec, producer_id=9, producer_epoch=1, base_sequence=4)
    header, rest = append_time_parts(one_batch(received), append_ms)
    stamped = bytes(header) + bytes(rest)
    expected = bytearray(received)
    expected[22] |= 0x08
    expected[35:43] = struct.pack(">q", append_ms)
    expected[17:21] = crc32c(bytes(expected[21:])).to_bytes(4, "big")
    assert stamped == expected
    assert {record.timestamp for record in records_of(one_batch(stamped))} == {append_ms}


def test_every_refusal_has_its_own_reason():
    kinds = [InvalidBatch]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    assert len({kind.reason for kind in kinds}) == len(kinds) > 15
