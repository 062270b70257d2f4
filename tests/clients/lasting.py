"""Consumers that stay open while things happen to their broker and their topic; one class for each library."""

import asyncio
from typing import Protocol, Self

import kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition

PATIENCE_S = 120
"""A client may need a while to find its broker or its topic again; only a hang takes this long."""


class Lasting(Protocol):
    """A consumer of partition 0 that begins where its group is, or at the first record."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def read(self) -> tuple[int, bytes]:
        """Offset and value of the next record."""
        ...

    def commit(self, offset: int) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        self._consumer = Consumer({**config, "auto.offset.reset": "earliest"})
        self._topic = topic

    def __enter__(self) -> Self:
        self._consumer.assign([TopicPartition(self._topic, 0)])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self) -> tuple[int, bytes]:
        for _ in range(PATIENCE_S):
            message = self._consumer.poll(1)
            if message is not None and message.error() is None:  # outages are told as errors, and pass
                return message.offset(), message.value()
        raise TimeoutError("nothing came")

    def commit(self, offset: int) -> None:
        self._consumer.commit(offsets=[TopicPartition(self._topic, 0, offset)], asynchronous=False)


class AioKafka:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._runner = asyncio.Runner()
        self._settings = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "metadata_max_age_ms": 1_000,
        }
        self._place = AioPartition(topic, 0)

    def __enter__(self) -> Self:
        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(**self._settings)
            await consumer.start()
            consumer.assign([self._place])
            return consumer

        self._consumer = self._runner.run(start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()

    def read(self) -> tuple[int, bytes]:
        message = self._runner.run(asyncio.wait_for(self._consumer.getone(), PATIENCE_S))
        return message.offset, message.value

    def commit(self, offset: int) -> None:
        self._runner.run(self._consumer.commit({self._place: offset}))


class KafkaPython:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metadata_max_age_ms=1_000,
            consumer_timeout_ms=PATIENCE_S * 1_000,
        )
        self._place = kafka.TopicPartition(topic, 0)

    def __enter__(self) -> Self:
        self._consumer.assign([self._place])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close(autocommit=False)

    def read(self) -> tuple[int, bytes]:
        message = next(self._consumer)
        return message.offset, message.value

    def commit(self, offset: int) -> None:
        self._consumer.commit({self._place: kafka.OffsetAndMetadata(offset, "", -1)})


KINDS: dict[str, type[Lasting]] = {"confluent": Confluent, "aiokafka": AioKafka, "kafka-python": KafkaPython}
