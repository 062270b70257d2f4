"""Transactions are refused at once: no client waits until it gives up."""

import asyncio

import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException, Producer

GIVES_UP_S = 60
"""When a client that asks again and again would stop; a refusal is told at once."""


def test_librdkafka_is_told_that_there_are_no_transactions(bootstrap: str, name: str) -> None:
    """R-007, E-1: fatal, and the message names the cause."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    with pytest.raises(KafkaException, match="there are no transactions") as refused:
        producer.init_transactions(GIVES_UP_S)
    assert refused.value.args[0].fatal()


async def test_aiokafka_is_refused(bootstrap: str, name: str) -> None:
    """R-007, E-1."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    try:
        with pytest.raises(KafkaError):
            async with asyncio.timeout(GIVES_UP_S):
                await producer.start()
    finally:
        await producer.stop()


def test_kafka_python_is_refused(bootstrap: str, name: str) -> None:
    """R-007, E-1."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, max_block_ms=GIVES_UP_S * 1000)
    try:
        with pytest.raises(kafka.errors.KafkaError) as refused:
            producer.init_transactions()
        assert not isinstance(refused.value, kafka.errors.KafkaTimeoutError)
    finally:
        producer.close(timeout=1)
