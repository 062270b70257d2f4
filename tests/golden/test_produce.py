"""Produce: what is stored, what is refused, and with which code; nothing of a refused batch is stored."""

import asyncio
import struct

import pytest
from crc32c import crc32c

from dray.clock import SystemClock
from dray.records import Codec, NewRecord, build_batch
from dray.servers.kafka.messages.api_versions import ApiVersionsRequest
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.golden.asking import API_VERSIONS, NOW_MS, PRODUCE, Asker, batch, produce_request, records_in, schema
from tests.records.batch_samples import resealed
from tests.records.lz4_frames import frames

ATTRIBUTES, LAST_DELTA, PRODUCER, SEQUENCE, COUNT = 21, 23, 43, 53, 57
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


@pytest.fixture
async def topic(ask: Asker, name: str) -> str:
    await ask.create(name)
    return name


async def end_of(ask: Asker, name: str) -> int:
    return (await ask.offset_at(name, -1)).offset


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [-1, 1])
async def test_offsets_follow_each_other_in_every_version(ask: Asker, topic: str, version: int, acks: int) -> None:
    """R-089, R-104: acks 1 and -1 are one."""
    first = await ask.produce(topic, batch(b"1", b"2"), version=version, acks=acks)
    second = await ask.produce(topic, batch(b"3"), version=version, acks=acks)
    assert [(one.error_code, one.base_offset, one.log_append_time_ms) for one in (first, second)] == [
        (0, 0, -1),
        (0, 2, -1),
    ]
    if version >= 5:
        assert first.log_start_offset == 0


async def test_acks_0_gets_no_answer_and_the_connection_goes_on(ask: Asker, topic: str) -> None:
    """R-089."""
    ask.send(schema(PRODUCE), 9, produce_request(topic, {0: batch(b"quiet")}, acks=0), 500)
    assert (await ask.call(API_VERSIONS, 0, ApiVersionsRequest())).error_code == 0
    async with asyncio.timeout(10):
        while await end_of(ask, topic) == 0:
            await asyncio.sleep(0)
    assert b"quiet" in records_in(await ask.fetch(topic))


async def test_acks_0_with_a_bad_batch_closes_the_connection(ask: Asker, topic: str) -> None:
    """R-089: that is how such a client learns of it."""
    ask.send(schema(PRODUCE), 9, produce_request(topic, {0: batch()[:-1]}, acks=0), 500)
    async with asyncio.timeout(10):
        assert await ask.closed()


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_other_acks_are_refused(ask: Asker, topic: str, acks: int) -> None:
    assert (await ask.produce(topic, batch(), acks=acks)).error_code == 21
    assert await end_of(ask, topic) == 0


LONG = batch(*(b"the same " * 5_000 for _ in range(3)))
GOOD = batch(b"1", b"2", b"3")


def packed(kind: str) -> bytes:
    """A batch in an LZ4 frame that some clients cannot read."""
    return resealed(LONG[:61] + frames(LONG[61:])[kind][0], attributes=(ATTRIBUTES, b"\0\x03"))


LIES: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 87),
    "half a header": (GOOD[:40], 87),
    "one byte short": (GOOD[:-1], 87),
    "one byte more": (GOOD + b"\0", 87),
    "two batches": (GOOD + batch(), 87),
    "another CRC": (GOOD[:17] + int32(7) + GOOD[21:], 2),
    "a flipped bit": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), 2),
    "magic 0": (GOOD[:16] + b"\0" + GOOD[17:], 87),
    "magic 1": (GOOD[:16] + b"\1" + GOOD[17:], 87),
    "magic 3": (GOOD[:16] + b"\3" + GOOD[17:], 87),
    "a base offset": (batch(base_offset=5), 87),
    "a count too low": (resealed(GOOD, count=(COUNT, int32(2))), 87),
    "a count too high": (resealed(GOOD, count=(COUNT, int32(4))), 87),
    "both too high": (resealed(GOOD, count=(COUNT, int32(4)), delta=(LAST_DELTA, int32(3))), 87),
    "both huge": (resealed(GOOD, count=(COUNT, int32((1 << 31) - 1)), delta=(LAST_DELTA, int32((1 << 31) - 2))), 87),
    "both too low": (resealed(GOOD, count=(COUNT, int32(2)), delta=(LAST_DELTA, int32(1))), 87),
    "no records": (resealed(GOOD[:61], count=(COUNT, int32(0)), delta=(LAST_DELTA, int32(-1))), 87),
    "negative counts": (resealed(GOOD, count=(COUNT, int32(-1)), delta=(LAST_DELTA, int32(-2))), 87),
    "control bit": (resealed(GOOD, attributes=(ATTRIBUTES, b"\0\x20")), 87),
    "transactional bit": (resealed(GOOD, attributes=(ATTRIBUTES, b"\0\x10")), 48),
    "append time bit": (resealed(GOOD, attributes=(ATTRIBUTES, b"\0\x08")), 32),
    "no such codec": (resealed(GOOD, attributes=(ATTRIBUTES, b"\0\x05")), 76),
    "gzip that is none": (resealed(GOOD, attributes=(ATTRIBUTES, b"\0\x01")), 87),
    "lz4 that is none": (resealed(GOOD, attributes=(ATTRIBUTES, b"\0\x03")), 87),
    "snappy that is none": (resealed(GOOD, attributes=(ATTRIBUTES, b"\0\x02")), 87),
    "zstd that is none": (resealed(GOOD, attributes=(ATTRIBUTES, b"\0\x04")), 87),
    "lz4 with linked blocks": (packed("linked blocks"), 87),
    "lz4 of two frames": (packed("two frames"), 87),
    "a producer without a sequence": (
        resealed(GOOD, producer=(PRODUCER, (1).to_bytes(8, "big")), sequence=(SEQUENCE, int32(-1))),
        87,
    ),
    "a time beyond the year 9999": (build_batch([NewRecord(value=b"", timestamp=253_402_300_800_000)]), 32),
    "too large": (batch(bytes(1_048_588)), 10),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_batch_that_lies_is_refused_and_nothing_of_it_is_stored(ask: Asker, topic: str, lie: str) -> None:
    """R-087, T09."""
    records, code = LIES[lie]
    answer = await ask.produce(topic, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert await end_of(ask, topic) == 0
    assert (await ask.produce(topic, batch())).base_offset == 0


@pytest.mark.parametrize("codec", CODECS[1:], ids=lambda codec: codec.name)
async def test_lies_inside_compressed_batches_are_seen(ask: Asker, topic: str, codec: Codec) -> None:
    """R-088: the records are counted after decompression."""
    honest = batch(b"1", b"2", b"3", codec=codec)
    for count in (2, 4):
        lie = resealed(honest, count=(COUNT, int32(count)), delta=(LAST_DELTA, int32(count - 1)))
        assert (await ask.produce(topic, lie)).error_code == 87
    cut = resealed(honest[:-6])
    assert (await ask.produce(topic, cut)).error_code == 87  # 2 would be tried again for ever: the CRC was right
    assert await end_of(ask, topic) == 0
    assert (await ask.produce(topic, honest)).error_code == 0


async def test_zstd_needs_version_7(ask: Asker, topic: str) -> None:
    assert (await ask.produce(topic, batch(codec=Codec.ZSTD), version=6)).error_code == 76
    assert (await ask.produce(topic, batch(codec=Codec.ZSTD), version=7)).error_code == 0


async def test_each_partition_is_answered_for_itself(ask: Asker, name: str) -> None:
    """R-086, R-096: one bad partition does not hinder its neighbours."""
    await ask.create(name, 3)
    parts = [
        PartitionProduceData(index=0, records=batch()),
        PartitionProduceData(index=1, records=batch()[:-1] + b"?"),
        PartitionProduceData(index=2, records=batch()),
        PartitionProduceData(index=3, records=batch()),
        PartitionProduceData(index=-1, records=batch()),
    ]
    topics = [
        TopicProduceData(name="no-such-topic", partition_data=[PartitionProduceData(index=0, records=batch())]),
        TopicProduceData(name=name, partition_data=parts),
    ]
    answer = await ask.call(PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics))
    codes = {
        (topic.name, part.index): part.error_code for topic in answer.responses for part in topic.partition_responses
    }
    assert codes == {("no-such-topic", 0): 3, (name, 0): 0, (name, 1): 2, (name, 2): 0, (name, 3): 3, (name, -1): 3}


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, -1), (0, 0), (-1, 0), (5, 7)])
async def test_without_a_producer_id_epoch_and_sequence_mean_nothing(
    ask: Asker, topic: str, epoch: int, sequence: int
) -> None:
    """R-100: kafkajs sends 0 and 0, aiokafka -1 and 0."""
    for offset in range(2):
        answer = await ask.produce(topic, batch(producer_epoch=epoch, base_sequence=sequence))
        assert (answer.error_code, answer.base_offset) == (0, offset)


async def test_a_compacted_topic_needs_keys_and_tells_which_record_has_none(ask: Asker, name: str) -> None:
    """R-197."""
    await ask.create(name, cleanup_policy="compact,delete")
    good = NewRecord(key=b"k", value=b"v", timestamp=NOW_MS)
    rows = [good, NewRecord(value=b"v", timestamp=NOW_MS), good, NewRecord(value=b"v", timestamp=NOW_MS)]
    for codec in (Codec.NONE, Codec.ZSTD):
        answer = await ask.produce(name, build_batch(rows, codec=codec))
        assert (answer.error_code, [one.batch_index for one in answer.record_errors]) == (87, [1, 3])
        assert all(one.batch_index_error_message for one in answer.record_errors)
    assert (await ask.produce(name, build_batch(rows[:1]))).error_code == 0


async def test_the_time_of_append_is_written_by_the_broker_where_the_topic_says_so(ask: Asker, name: str) -> None:
    """R-104."""
    await ask.create(name, **{"message_timestamp_type": "LogAppendTime"})
    before = SystemClock().wall_ms()
    answer = await ask.produce(name, batch(b"1", b"2"))
    assert before <= answer.log_append_time_ms <= SystemClock().wall_ms()
    stored = records_in(await ask.fetch(name))
    [attributes] = struct.unpack_from(">h", stored, ATTRIBUTES)
    [newest] = struct.unpack_from(">q", stored, 35)
    [crc] = struct.unpack_from(">I", stored, 17)
    assert (attributes & 8, newest, crc) == (8, answer.log_append_time_ms, crc32c(stored[21:]))


async def test_a_duplicate_is_answered_with_the_time_under_which_it_is_stored(ask: Asker, name: str) -> None:
    """R-098, R-104."""
    await ask.create(name, **{"message_timestamp_type": "LogAppendTime"})
    one = batch(b"once", producer_id=await ask.producer_id(), producer_epoch=0, base_sequence=0)
    first = await ask.produce(name, one)
    while SystemClock().wall_ms() == first.log_append_time_ms:
        await asyncio.sleep(0.001)
    again = await ask.produce(name, one)
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 0, first.log_append_time_ms)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
async def test_stored_bytes_are_the_received_ones_apart_from_offset_and_epoch(
    ask: Asker, topic: str, codec: Codec
) -> None:
    """R-038, R-119: and they stand bare in the answer."""
    sent = batch(b"1", None, b"", b"x" * 3000, codec=codec)
    await ask.produce(topic, batch())
    await ask.produce(topic, sent)
    stored = records_in(await ask.fetch(topic, 1))
    assert stored[8:12] == sent[8:12]
    assert stored[16:] == sent[16:]
    assert struct.unpack_from(">qii", stored)[::2] == (1, 0)


async def test_times_far_in_the_future_are_refused(ask: Asker, topic: str) -> None:
    now = SystemClock().wall_ms()
    late = [NewRecord(value=b"v", timestamp=at) for at in (now, now + 2 * 3600_000, -1, now + 3 * 3600_000)]
    for codec in (Codec.NONE, Codec.GZIP):
        answer = await ask.produce(topic, build_batch(late, codec=codec))
        assert (answer.error_code, [one.batch_index for one in answer.record_errors]) == (32, [1, 3])
    assert (await ask.produce(topic, batch(at=now + 1800_000))).error_code == 0
    assert (await ask.produce(topic, batch(at=0))).error_code == 0


async def test_the_largest_record_fits_and_one_byte_more_does_not(ask: Asker, name: str) -> None:
    await ask.create(name, max_message_bytes="2000")
    overhead = len(batch(bytes(1900))) - 1900
    assert (await ask.produce(name, batch(bytes(2000 - overhead)))).error_code == 0
    assert (await ask.produce(name, batch(bytes(2001 - overhead)))).error_code == 10


async def test_a_transactional_id_is_refused_at_once(ask: Asker, topic: str) -> None:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch())])]
    answer = await ask.call(PRODUCE, 9, ProduceRequest(transactional_id="t", acks=-1, topic_data=data))
    assert answer.responses[0].partition_responses[0].error_code == 48
    assert await end_of(ask, topic) == 0
