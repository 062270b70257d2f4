"""Three client libraries that nobody here wrote, each with the same few words: write, read, seek.

All run on their defaults; what is set is what a test is about. kafka-python's
producer is idempotent by default, the other two are not.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import kafka
import kafka.codec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from dray.clock import SystemClock

DEADLINE_S = 60
AT_MS = SystemClock().wall_ms() - 3_600_000
"""An hour ago: what is older than a week may be gone by retention before a test has read it."""
Headers = tuple[tuple[str, bytes | None], ...]


class Written(NamedTuple):
    """A record as an application sees it; None and b"" differ."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class Found(NamedTuple):
    offset: int
    record: Written


def confluent_write(bootstrap: str, topic: str, records: Sequence[Written], codec: str = "none", **more) -> list[int]:
    config = {"bootstrap.servers": bootstrap, "compression.type": codec, "message.max.bytes": 1_048_588, **more}
    producer = Producer(config)
    offsets: list[int] = []

    def delivered(error, message) -> None:
        if error is not None:
            raise KafkaException(error)
        offsets.append(message.offset())

    for one in records:
        producer.produce(
            topic,
            key=one.key,
            value=one.value,
            partition=0,
            timestamp=one.timestamp,
            headers=list(one.headers),
            on_delivery=delivered,
        )
    assert producer.flush(DEADLINE_S) == 0
    return offsets


def confluent_consumer(bootstrap: str, **more) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "by-hand", "enable.auto.commit": False, **more})


def confluent_read(bootstrap: str, topic: str, start: int, count: int) -> list[Found]:
    consumer = confluent_consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        found: list[Found] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), DEADLINE_S)
            assert messages, "nothing more came"
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                headers = tuple((name, value) for name, value in message.headers() or ())
                record = Written(message.key(), message.value(), message.timestamp()[1], headers)
                found.append(Found(message.offset(), record))
        return found
    finally:
        consumer.close()


def confluent_at(bootstrap: str, topic: str, timestamp: int) -> int | None:
    consumer = confluent_consumer(bootstrap)
    try:
        [place] = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], DEADLINE_S)
        return None if place.offset < 0 else place.offset
    finally:
        consumer.close()


def aiokafka_write(bootstrap: str, topic: str, records: Sequence[Written], codec: str = "none", **more) -> list[int]:
    async def write() -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            max_request_size=1_048_588,
            **more,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    one.value,
                    key=one.key,
                    partition=0,
                    timestamp_ms=one.timestamp,
                    headers=list(one.headers),
                )
                for one in records
            ]
            return [(await future).offset for future in sent]
        finally:
            await producer.stop()

    return asyncio.run(asyncio.wait_for(write(), DEADLINE_S))


def aiokafka_read(bootstrap: str, topic: str, start: int, count: int) -> list[Found]:
    async def read() -> list[Found]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, max_partition_fetch_bytes=1 << 22)
        await consumer.start()
        try:
            place = AioPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, start)
            found = []
            while len(found) < count:
                message = await consumer.getone()
                record = Written(message.key, message.value, message.timestamp, tuple(message.headers))
                found.append(Found(message.offset, record))
            return found
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


def aiokafka_at(bootstrap: str, topic: str, timestamp: int) -> int | None:
    async def look() -> int | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            place = AioPartition(topic, 0)
            found = (await consumer.offsets_for_times({place: timestamp}))[place]
            return None if found is None else found.offset
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(look(), DEADLINE_S))


def kafka_python_write(
    bootstrap: str, topic: str, records: Sequence[Written], codec: str = "none", **more
) -> list[int]:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        max_request_size=1_048_588,
        **more,
    )
    try:
        sent = [
            producer.send(
                topic, one.value, key=one.key, partition=0, timestamp_ms=one.timestamp, headers=list(one.headers)
            )
            for one in records
        ]
        return [future.get(DEADLINE_S).offset for future in sent]
    finally:
        producer.close()


def kafka_python_read(bootstrap: str, topic: str, start: int, count: int) -> list[Found]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, consumer_timeout_ms=DEADLINE_S * 1000, max_partition_fetch_bytes=1 << 22
    )
    try:
        place = kafka.TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, start)
        found: list[Found] = []
        while len(found) < count:
            message = next(consumer)
            record = Written(message.key, message.value, message.timestamp, tuple(message.headers))
            found.append(Found(message.offset, record))
        return found
    finally:
        consumer.close()


def kafka_python_at(bootstrap: str, topic: str, timestamp: int) -> int | None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        place = kafka.TopicPartition(topic, 0)
        found = consumer.offsets_for_times({place: timestamp})[place]
        return None if found is None else found.offset
    finally:
        consumer.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A client library."""

    name: str
    null_headers: bool = True
    """Whether its producer takes a header without a value; all read them."""
    write: Callable[..., list[int]]
    read: Callable[[str, str, int, int], list[Found]]
    at: Callable[[str, str, int], int | None]


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFLUENT = Kind(name="confluent-kafka", write=confluent_write, read=confluent_read, at=confluent_at)
AIOKAFKA = Kind(name="aiokafka", write=aiokafka_write, read=aiokafka_read, at=aiokafka_at)
KAFKA_PYTHON = Kind(
    name="kafka-python",
    null_headers=False,
    write=kafka_python_write,
    read=kafka_python_read,
    at=kafka_python_at,
)
KINDS = (CONFLUENT, AIOKAFKA, KAFKA_PYTHON)
