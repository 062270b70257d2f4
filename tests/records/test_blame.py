"""Which records of a refused batch are named."""

import pytest

from dray.records import BatchRules, NewRecord, ScratchPool, build_batch
from dray.records.blame import LARGEST, MOST
from dray.records.errors import BadTimestamp, InvalidBatch, NullKey
from tests.records.batch_samples import validate

POOL = ScratchPool(8 << 20)
NOW = 1_700_000_000_000
LATE = NOW + 10_000_000


def refused(rows: list[NewRecord], **rules: object) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as caught:
        validate(build_batch(rows), BatchRules(max_bytes=1 << 30, **rules), POOL, NOW)
    return caught.value


def test_every_record_with_a_bad_time_is_named_and_those_without_a_time_are_not():
    error = refused([NewRecord(timestamp=at) for at in (LATE, NOW, -1, LATE)])
    assert isinstance(error, BadTimestamp)
    assert error.blamed == (0, 3)
    error = refused([NewRecord(timestamp=at) for at in (NOW, 5, -1)], before_max_ms=1_000)
    assert error.blamed == (1,)


def test_every_record_without_a_key_is_named():
    rows = [NewRecord(key=key, timestamp=NOW) for key in (b"k", None, b"", *[b"k"] * 10, None)]
    error = refused(rows, needs_keys=True)
    assert isinstance(error, NullKey)
    assert error.blamed == (1, 13)


def test_no_more_are_named_than_anybody_reads():
    assert len(refused([NewRecord(timestamp=LATE)] * 1_000).blamed) == MOST
    assert len(refused([NewRecord(timestamp=NOW)] * 1_000, needs_keys=True).blamed) == MOST


def test_nobody_is_named_in_records_that_would_take_long_to_look_through():
    error = refused([NewRecord(value=bytes(LARGEST), timestamp=LATE)])
    assert (type(error), error.blamed) == (BadTimestamp, ())
