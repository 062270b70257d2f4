"""Produce: where to, with which acks, in which version; and times."""

from dray.records import Codec, NewRecord, build_batch
from dray.servers.kafka.messages.produce import ProduceRequest
from tests.golden.asking import PRODUCE, schema
from tests.golden.comparison.scenes.shaping import changed
from tests.golden.comparison.talking import Talk, produce_request
from tests.kafka.wire import request_bytes


async def produce_in_every_version(talk: Talk) -> None:
    topic = await talk.topic()
    for version in range(3, 13):
        await talk.produce(f"version {version}", topic, talk.batch(), version=version)
    for version in (3, 6, 7):
        await talk.produce(f"zstd in version {version}", topic, talk.batch(codec=Codec.ZSTD), version=version)


async def produce_in_a_version_before_batches(talk: Talk) -> None:
    frame = request_bytes(schema(PRODUCE), 3, ProduceRequest(acks=1, timeout_ms=1000), 7)
    await talk.ask_raw("version 2", frame[:6] + b"\0\2" + frame[8:])


async def produce_to_many_places(talk: Talk) -> None:
    topic, nowhere = await talk.topic(3), talk.name("nowhere")
    one, broken = talk.batch(), talk.batch()[:-1] + b"?"
    request = produce_request((topic, [(0, one), (7, one), (1, broken), (-1, one), (2, one)]), (nowhere, [(0, one)]))
    await talk.ask("good and bad partitions", PRODUCE, 9, request)
    await talk.ask("no topics", PRODUCE, 9, produce_request())
    await talk.ask("no partitions", PRODUCE, 9, produce_request((topic, [])))
    await talk.ask("one partition twice", PRODUCE, 9, produce_request((topic, [(0, one), (0, talk.batch(b"1", b"2"))])))
    await talk.ask("one topic twice", PRODUCE, 9, produce_request((topic, [(0, one)]), (topic, [(1, one)])))
    bad_names = produce_request(("a/b", [(0, one)]), ("", [(0, one)]), ("x" * 300, [(0, one)]))
    await talk.ask("names that no topic can have", PRODUCE, 9, bad_names)


async def produce_with_acks(talk: Talk) -> None:
    topic = await talk.topic()
    for acks in (1, 2, -2):
        await talk.produce(f"acks {acks}", topic, talk.batch(), acks=acks)
    await talk.send(PRODUCE, 9, produce_request((topic, [(0, talk.batch())]), acks=0))
    await talk.produce("after one with acks 0", topic, talk.batch())
    refused = produce_request((talk.name("nowhere"), [(0, talk.batch())]), acks=0)
    await talk.ask_raw("acks 0 to a topic that is not there", request_bytes(schema(PRODUCE), 9, refused, 8))


async def produce_in_a_transaction(talk: Talk) -> None:
    await talk.offer("a transactional id", talk.batch(), transactional_id="t")
    await talk.offer("an empty transactional id", talk.batch(), transactional_id="")
    await talk.offer("the transactional bit", changed(talk.batch(), attributes=0x10))
    await talk.offer("the control bit", changed(talk.batch(), attributes=0x20))


async def produce_times(talk: Talk) -> None:
    def of(*times: int) -> bytes:
        return build_batch([NewRecord(key=b"k", value=b"v", timestamp=at) for at in times])

    now, later = talk.now_ms, talk.now_ms + 3 * 3_600_000
    await talk.offer("no time", of(-1))
    await talk.offer("time -2", of(-2))
    await talk.offer("time 0", of(0))
    await talk.offer("half an hour ahead", of(now + 3_600_000 + 1_800_000))
    await talk.offer("two hours ahead", of(now, later, -1, later))
    await talk.offer("two hours ahead in version 7", of(later), version=7)
    await talk.produce("older than the topic takes", await talk.topic(message_timestamp_before_max_ms="1000"), of(now))
    far = await talk.topic(message_timestamp_after_max_ms="9223372036854775807")
    await talk.produce("beyond the year 9999", far, of(253_402_300_800_000))
    keyed = await talk.topic(cleanup_policy="compact,delete")
    await talk.produce("a record without a key to a compacted topic", keyed, talk.batch(b"1", b"2", key=None))


async def produce_append_times(talk: Talk) -> None:
    stamped = await talk.topic(message_timestamp_type="LogAppendTime")
    await talk.offer("the bit on a topic with the producer's times", changed(talk.batch(), attributes=8))
    await talk.produce("a batch", stamped, talk.batch(b"1", b"2", at=-1000))
    await talk.fetch("what is stored", (stamped, [(0, 0)]))
    await talk.produce("a time of 1970", stamped, build_batch([NewRecord(value=b"v", timestamp=-5)]), acks=2)


async def produce_append_times_of_compressed_batches(talk: Talk) -> None:
    topic = await talk.topic(message_timestamp_type="LogAppendTime")
    await talk.produce("zstd", topic, talk.batch(b"1", b"2", at=-1000, codec=Codec.ZSTD))
    await talk.fetch("what is stored", (topic, [(0, 0)]))


async def produce_sizes(talk: Talk) -> None:
    topic = await talk.topic(max_message_bytes="10000")
    exact = talk.batch(b"x" * (10_000 - len(talk.batch(b"x" * 9_000)) + 9_000))
    assert len(exact) == 10_000
    await talk.produce("as large as may be", topic, exact)
    await talk.produce("one byte more", topic, talk.batch(b"x" * (10_001 - len(talk.batch(b"x" * 9_000)) + 9_000)))
    await talk.produce("small when compressed", topic, talk.batch(b"x" * 20_000, codec=Codec.GZIP))


SCENES = (
    produce_in_every_version,
    produce_in_a_version_before_batches,
    produce_to_many_places,
    produce_with_acks,
    produce_in_a_transaction,
    produce_times,
    produce_append_times,
    produce_append_times_of_compressed_batches,
    produce_sizes,
)
