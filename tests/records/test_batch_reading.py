"""Batches back to records, and the lookup by time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.errors import Invalid
from dray.records import (
    Codec,
    InvalidBatch,
    NewRecord,
    Record,
    append_time_parts,
    build_batch,
    first_at_or_after,
    newest,
    one_batch,
    records_of,
)
from tests.records.batch_samples import batch_of, record_lists


@given(records=record_lists, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**62))
def test_records_come_back_as_they_went_in(records: list[NewRecord], codec: Codec, base_offset: int):
    """K-021: order and doubles of headers, null and empty, offsets and timestamps."""
    batch = one_batch(build_batch(records, codec=codec, base_offset=base_offset))
    assert list(records_of(batch)) == [
        Record(base_offset + at, record.timestamp, record.key, record.value, tuple(record.headers))
        for at, record in enumerate(records)
    ]
    assert [record.offset for record in records_of(batch, 7)] == [7 + at for at in range(len(records))]


def test_null_and_empty_stay_apart_everywhere():
    """K-021"""
    records = [NewRecord(None, b"", 0, [("", None), ("", b"")]), NewRecord(b"", None)]
    first, second = records_of(one_batch(build_batch(records)))
    assert (first.key, first.value, first.headers) == (None, b"", (("", None), ("", b"")))
    assert (second.key, second.value, second.headers) == (b"", None, ())


@given(records=record_lists, timestamp=st.integers(-1, 2**48), codec=st.sampled_from(Codec))
def test_the_lookup_by_time_finds_the_exact_record(records: list[NewRecord], timestamp: int, codec: Codec):
    batch = one_batch(build_batch(records, codec=codec))
    expected = next(((5 + at, r.timestamp) for at, r in enumerate(records) if r.timestamp >= timestamp), None)
    assert first_at_or_after(batch, timestamp, 5) == expected
    greatest = max(record.timestamp for record in records)
    assert newest(batch, 5) == (5 + [record.timestamp for record in records].index(greatest), greatest)


def test_with_append_time_every_record_has_the_batch_s_time():
    """R-104"""
    plain = build_batch([NewRecord(value=b"v", timestamp=at) for at in (5, 3, 9)])
    stamped = one_batch(b"".join(append_time_parts(one_batch(plain), 700)))
    assert first_at_or_after(stamped, 700) == (0, 700)
    assert first_at_or_after(stamped, 701) is None
    assert newest(stamped, 40) == (40, 700)


def test_records_before_the_damage_are_given_out_and_then_the_reason():
    good = build_batch([NewRecord(b"k", b"v"), NewRecord(b"k", b"v")])[61:]
    reader = records_of(one_batch(batch_of(good[:-1] + b"\x02", 2)))
    assert next(reader).value == b"v"
    with pytest.raises(InvalidBatch, match="record=1"):
        next(reader)


def test_a_batch_without_records_cannot_be_built():
    with pytest.raises(Invalid):
        build_batch([])
