"""Admin clients, and how quickly clients end."""

import asyncio
import time

import kafka
import kafka.admin
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioTopic
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.kinds import confluent_consumer, confluent_write
from tests.clients.test_matrix import RECORDS

QUICK_S = 30
"""Far above what a close takes, far below the 45 s of a consumer that finds no coordinator."""


def partitions_of(bootstrap: str, name: str) -> int:
    topic = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics.get(name)
    return 0 if topic is None else len(topic.partitions)


def test_librdkafka_makes_and_deletes_topics(bootstrap: str, name: str) -> None:
    """R-191, R-193."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(name, num_partitions=4, replication_factor=1, config={"retention.ms": "60000"})
    admin.create_topics([wanted])[name].result(20)
    assert partitions_of(bootstrap, name) == 4
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([wanted])[name].result(20)
    bad = NewTopic(f"{name}-bad", num_partitions=1, replication_factor=1, config={"retention.ms": "soon"})
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        admin.create_topics([bad])[bad.topic].result(20)
    admin.delete_topics([name])[name].result(20)
    assert partitions_of(bootstrap, name) == 0


async def test_aiokafka_makes_and_deletes_topics(bootstrap: str, name: str) -> None:
    """R-191, R-193."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([AioTopic(name, 3, 1)])
        assert await asyncio.to_thread(partitions_of, bootstrap, name) == 3
        await admin.delete_topics([name])
        assert await asyncio.to_thread(partitions_of, bootstrap, name) == 0
    finally:
        await admin.close()


def test_kafka_python_makes_and_deletes_topics(bootstrap: str, name: str) -> None:
    """R-191, R-193."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([kafka.admin.NewTopic(name, 2, 1)])
        assert partitions_of(bootstrap, name) == 2
        with pytest.raises(kafka.errors.TopicAlreadyExistsError):
            admin.create_topics([kafka.admin.NewTopic(name, 2, 1)])
        admin.delete_topics([name])
        assert partitions_of(bootstrap, name) == 0
    finally:
        admin.close()


@pytest.mark.slow
def test_committed_offsets_of_assigned_consumers_are_kept(bootstrap: str, name: str) -> None:
    """R-186, R-187: by librdkafka, without joining a group; read by kafka-python."""
    confluent_write(bootstrap, name, RECORDS)
    first = confluent_consumer(bootstrap, **{"group.id": name})
    first.assign([TopicPartition(name, 0, 0)])
    first.commit(offsets=[TopicPartition(name, 0, 7, "so far")], asynchronous=False)
    first.close()
    second = confluent_consumer(bootstrap, **{"group.id": name})
    [place] = second.committed([TopicPartition(name, 0)], 20)
    assert place.offset == 7
    second.assign([TopicPartition(name, 0)])  # no offset: where the group was
    message = second.poll(20)
    assert (message.error(), message.offset()) == (None, 7)
    second.close()
    other = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False)
    assert other.committed(kafka.TopicPartition(name, 0)) == 7
    other.close()


def close_librdkafka(bootstrap: str, name: str):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.assign([TopicPartition(name, 0, 0)])
    assert consumer.poll(20) is not None
    return consumer.close


def close_kafka_python(bootstrap: str, name: str):
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=name)
    consumer.assign([kafka.TopicPartition(name, 0)])
    consumer.seek_to_beginning()
    assert next(consumer) is not None
    return consumer.close


@pytest.mark.parametrize("opened", [close_librdkafka, close_kafka_python])
def test_a_consumer_with_auto_commit_closes_quickly(bootstrap: str, name: str, opened) -> None:
    """The close commits, so it needs a coordinator; without one it takes 45 s."""
    confluent_write(bootstrap, name, RECORDS)
    close = opened(bootstrap, name)
    before = time.perf_counter()
    close()
    assert time.perf_counter() - before < QUICK_S


async def test_aiokafka_closes_quickly(bootstrap: str, name: str) -> None:
    await asyncio.to_thread(confluent_write, bootstrap, name, RECORDS)
    async with asyncio.timeout(QUICK_S):
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await producer.start()
        await consumer.start()
        await producer.stop()
        await consumer.stop()


def test_a_producer_flushes_and_ends_quickly(bootstrap: str, name: str) -> None:
    before = time.perf_counter()
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"v")
    assert producer.flush(60) == 0
    del producer
    assert time.perf_counter() - before < QUICK_S
