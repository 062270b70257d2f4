"""Batches against the record code of kafka-python and aiokafka, both ways (K-022)."""

import random
from typing import Protocol

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioMemory
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
from kafka.record.memory_records import MemoryRecords as KafkaMemory

from dray.records import BatchRules, Codec, NewRecord, Record, ScratchPool, build_batch, records_of
from tests.records.batch_samples import seeded_records, validate

POOL = ScratchPool(1 << 20)
# kafka-python has no library for the other codecs here; aiokafka takes them from cramjam, and
# test_batch_compression holds cramjam against the libraries inside pyarrow.
CASES = [("kafka-python", codec) for codec in (Codec.NONE, Codec.GZIP)] + [("aiokafka", codec) for codec in Codec]
PEERS = {"kafka-python": (KafkaBuilder, KafkaMemory), "aiokafka": (AioBuilder, AioMemory)}


class PeerRecord(Protocol):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def plain(record: PeerRecord) -> Record:
    def content(found: bytes | memoryview | None) -> bytes | None:
        return None if found is None else bytes(found)

    headers = tuple((key, content(value)) for key, value in record.headers)
    return Record(record.offset, record.timestamp, content(record.key), content(record.value), headers)


def samples(seed: int) -> list[list[NewRecord]]:
    print("seed", seed)
    dice = random.Random(seed)
    return [seeded_records(dice) for _ in range(25)]


@pytest.mark.parametrize("xerial", [False, True])
@pytest.mark.parametrize(("peer", "codec"), CASES)
def test_they_read_ours(peer: str, codec: Codec, xerial: bool):
    """K-022, K-020, K-021"""
    for records in samples(11):
        packed = build_batch(records, codec=codec, xerial=xerial, base_offset=30, producer_id=5, base_sequence=2)
        batch = PEERS[peer][1](packed).next_batch()
        assert batch.validate_crc()
        assert [plain(record) for record in batch] == [
            Record(30 + at, record.timestamp, record.key, record.value, tuple(record.headers))
            for at, record in enumerate(records)
        ]


@pytest.mark.parametrize(("peer", "codec"), CASES)
def test_we_read_theirs(peer: str, codec: Codec):
    """K-022, R-088: their bytes pass validation and give the same records."""
    for records in samples(12):
        builder = PEERS[peer][0](
            magic=2,
            compression_type=int(codec),
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=10**6,
        )
        for at, record in enumerate(records):
            # The builder of kafka-python takes no -1 but fills in the time of day.
            timestamp = max(record.timestamp, 0)
            builder.append(at, timestamp, record.key, record.value, list(record.headers))
        found = validate(bytes(builder.build()), BatchRules(), POOL)
        assert [record[1:] for record in records_of(found.batch)] == [
            (max(record.timestamp, 0), record.key, record.value, tuple(record.headers)) for record in records
        ]
        times = [max(record.timestamp, 0) for record in records]
        assert (found.min_timestamp, found.max_timestamp) == (min(times), max(times))
