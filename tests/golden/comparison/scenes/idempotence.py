"""Producers with an id: sequences, epochs, duplicates."""

import asyncio

from dray.servers.kafka.messages.init_producer_id import InitProducerIdRequest
from tests.golden.asking import INIT_PRODUCER_ID
from tests.golden.comparison.talking import Talk


async def idempotent_sequences(talk: Talk) -> None:
    topic, producer = await talk.topic(), await talk.producer()

    async def send(shape: str, sequence: int, count: int = 1, epoch: int = 0) -> None:
        numbers = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        await talk.produce(shape, topic, talk.batch(*[b"v"] * count, **numbers))

    await send("the first three", 0, 3)
    await send("the same again", 0, 3)
    await send("a gap", 9)
    await send("the next", 3)
    await send("an overlap", 2, 2)
    await send("a part of the first", 0, 1)
    for sequence in range(4, 10):
        await send(f"sequence {sequence}", sequence)
    await send("five back", 5)
    await send("six back", 4)
    await send("another epoch in the middle", 5, epoch=1)
    await send("another epoch from 0", 0, epoch=1)
    await send("the old epoch", 10)
    await send("the new epoch again", 0, epoch=1)


async def idempotent_strangers(talk: Talk) -> None:
    producer = await talk.producer()
    for shape, number, epoch, sequence in (
        ("begins at 7", producer, 0, 7),
        ("an id nobody gave", 987_654_321, 0, 0),
        ("no id, epoch 0, sequence 0", -1, 0, 0),
        ("no id, epoch 5, sequence 9", -1, 5, 9),
        ("id -2", -2, 0, 0),
        ("an id without an epoch", 7, -1, 0),
        ("an id without a sequence", 7, 0, -1),
    ):
        numbers = {"producer_id": number, "producer_epoch": epoch, "base_sequence": sequence}
        await talk.offer(shape, talk.batch(**numbers))


async def idempotent_duplicates_and_append_time(talk: Talk) -> None:
    topic, producer = await talk.topic(message_timestamp_type="LogAppendTime"), await talk.producer()
    one = talk.batch(producer_id=producer, producer_epoch=0, base_sequence=0)
    await talk.produce("the first time", topic, one)
    await asyncio.sleep(0.02)  # another time than the first would show
    await talk.produce("the second time", topic, one)


async def idempotent_after_a_topic_is_made_again(talk: Talk) -> None:
    topic, producer = await talk.topic(), await talk.producer()
    for sequence in range(2):
        await talk.store(topic, talk.batch(producer_id=producer, producer_epoch=0, base_sequence=sequence))
    await talk.delete(topic)
    await talk.topic(name=topic)
    for turn, sequence in enumerate((2, 3, 3, 9), 1):
        one = talk.batch(producer_id=producer, producer_epoch=0, base_sequence=sequence)
        await talk.produce(f"{turn}. sequence {sequence}", topic, one)


async def producer_ids(talk: Talk) -> None:
    transaction = talk.name("transaction")
    await talk.coordinator(transaction, kind=1)
    for version in range(6):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        await talk.ask(f"version {version}", INIT_PRODUCER_ID, version, request)
    for shape, options in (
        ("an id and an epoch", {"producer_id": 5, "producer_epoch": 3}),
        ("an id without an epoch", {"producer_id": 5}),
        ("an epoch without an id", {"producer_epoch": 5}),
        ("an empty transactional id", {"transactional_id": ""}),
        ("a transactional id", {"transactional_id": transaction}),
        ("no timeout", {"transaction_timeout_ms": 0}),
    ):
        request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000} | options)
        await talk.ask(shape, INIT_PRODUCER_ID, 4, request)


SCENES = (
    idempotent_sequences,
    idempotent_strangers,
    idempotent_duplicates_and_append_time,
    idempotent_after_a_topic_is_made_again,
    producer_ids,
)
