"""What is kept of a batch comes from its records or from the broker."""

from dray.produce.batches import received, stamped, with_append_time
from dray.records import BatchRules, NewRecord, ScratchPool, build_batch, one_batch, records_of
from tests.records.batch_samples import validate

RULES = BatchRules(after_max_ms=None)


def validated(**producer: int):
    rows = [NewRecord(value=b"v", timestamp=stamp) for stamp in (500, 90, 700)]
    data = bytearray(build_batch(rows, **producer))
    return validate(bytes(data), RULES, ScratchPool())


def test_records_and_timestamps_are_those_that_were_seen():
    """PR7, answer 19."""
    found = received(65536, validated(producer_id=8, producer_epoch=2, base_sequence=11))
    assert (found.records, found.min_timestamp_ms, found.max_timestamp_ms) == (3, 90, 700)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (8, 2, 11)
    assert isinstance(found.data, memoryview)


def test_without_a_producer_id_epoch_and_sequence_mean_nothing():
    """R-100: kafkajs and aiokafka send 0."""
    found = received(65536, validated(producer_id=-1, producer_epoch=0, base_sequence=0))
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (-1, -1, -1)


def test_append_time_sets_the_bit_the_time_and_a_right_checksum():
    """R-104."""
    valid = validated(producer_id=8, producer_epoch=2, base_sequence=11)
    found = stamped(65536, valid, 123_456)
    view = one_batch(found.data)
    assert view.has_append_time
    assert view.crc_is_right
    assert view.max_timestamp == 123_456
    assert (found.min_timestamp_ms, found.max_timestamp_ms, found.records) == (123_456, 123_456, 3)
    assert [record.timestamp for record in records_of(view)] == [123_456] * 3
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (8, 2, 11)
    assert with_append_time(valid.batch, 123_456) == found.data
