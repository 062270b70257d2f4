"""confluent-kafka (librdkafka) as the workload's clients.

The library blocks, so its calls run in threads; delivery reports come on a
thread of their own and are passed to the loop. That only makes recorded
intervals longer, never shorter (HC1).
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as RdProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dray.testing.history.clients import ClientFailed, Consumer, Fetched, Producer
from dray.testing.history.events import Partition, ProducerOpened, number_of, partition, topic_of
from dray.testing.history.outcomes import Outcome, classify

_CALL_TIMEOUT_S: Final = 10.0
_POLL_RECORDS: Final = 500
_T = TypeVar("_T")


class ConfluentKit:
    """Clients of librdkafka, on its defaults apart from what a producer promises."""

    name = "confluent-kafka"

    def __init__(self, bootstrap: str, *, delivery_timeout_ms: int = 20_000) -> None:
        self._bootstrap = bootstrap
        self._delivery_timeout_ms = delivery_timeout_ms
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    async def producer(self, promises: ProducerOpened) -> Producer:
        config: dict[str, str | int | bool] = {
            "bootstrap.servers": self._bootstrap,
            "acks": "all",
            "enable.idempotence": promises.idempotent,
            "message.timeout.ms": self._delivery_timeout_ms,
        }
        if not promises.retries:
            config["retries"] = 0
        if promises.ordered and not promises.idempotent:
            config["max.in.flight.requests.per.connection"] = 1
        return _Producer(RdProducer(config), asyncio.get_running_loop(), single_attempt=not promises.retries)

    async def consumer(self, group: str) -> Consumer:
        return _Consumer(
            RdConsumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 100,
                }
            )
        )

    async def create_topic(self, topic: str, partitions: int) -> str:
        futures = self._admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
        await _in_thread(lambda: futures[topic].result(_CALL_TIMEOUT_S))
        return ""


class _Producer:
    def __init__(self, producer: RdProducer, loop: asyncio.AbstractEventLoop, *, single_attempt: bool) -> None:
        self._producer = producer
        self._loop = loop
        self._single_attempt = single_attempt
        self._closed = threading.Event()
        self._reports = threading.Thread(target=self._serve_reports, daemon=True)
        self._reports.start()

    async def send(self, tp: Partition, payload: bytes) -> asyncio.Future[int | None]:
        future: asyncio.Future[int | None] = self._loop.create_future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._loop.call_soon_threadsafe(self._settle, future, error, message.offset())

        try:
            self._producer.produce(topic_of(tp), payload, partition=number_of(tp), on_delivery=delivered)
        except BufferError as full:
            raise ClientFailed(Outcome.FAIL, "the queue of the producer is full") from full
        except KafkaException as problem:
            raise _failed(problem) from problem
        return future

    async def close(self, timeout_s: float) -> None:
        await asyncio.to_thread(self._producer.flush, timeout_s)
        self._closed.set()
        await asyncio.to_thread(self._reports.join)

    def _serve_reports(self) -> None:
        while not self._closed.is_set():
            # A fatal error is raised here, once; what it means for each record comes in that record's own report.
            with suppress(KafkaException):
                self._producer.poll(0.05)

    def _settle(self, future: asyncio.Future[int | None], error: KafkaError | None, offset: int | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(offset)
        else:
            outcome = classify(error.code(), single_attempt=self._single_attempt)
            future.set_exception(ClientFailed(outcome, error.name()))


class _Consumer:
    def __init__(self, consumer: RdConsumer) -> None:
        self._consumer = consumer
        self._assigned: list[Partition] = []

    async def assign(self, positions: Mapping[Partition, int]) -> None:
        self._assigned = list(positions)
        wanted = [TopicPartition(topic_of(tp), number_of(tp), at) for tp, at in positions.items()]
        await _in_thread(lambda: self._consumer.assign(wanted))

    async def poll(self, timeout_s: float) -> Fetched:
        messages = await _in_thread(lambda: self._consumer.consume(_POLL_RECORDS, timeout_s))
        records: dict[Partition, list[tuple[int, bytes]]] = {}
        for message in messages:
            topic, number, offset = message.topic(), message.partition(), message.offset()
            # An error in the place of a record moves no position: what is there comes later.
            if message.error() is None and topic is not None and number is not None and offset is not None:
                value = message.value()
                raw = value if isinstance(value, bytes) else b""
                records.setdefault(partition(topic, number), []).append((offset, raw))
        ends = {tp: self._end(tp) for tp in self._assigned}
        return Fetched(records=records, ends={tp: end for tp, end in ends.items() if end >= 0})

    async def latest(self, tp: Partition) -> int:
        return (await self._watermarks(tp))[1]

    async def earliest(self, tp: Partition) -> int:
        return (await self._watermarks(tp))[0]

    async def commit(self, tp: Partition, offset: int) -> None:
        wanted = [TopicPartition(topic_of(tp), number_of(tp), offset)]
        done = await _in_thread(lambda: self._consumer.commit(offsets=wanted, asynchronous=False))
        for entry in done:
            if entry.error is not None:
                raise ClientFailed(classify(entry.error.code()), entry.error.name())

    async def committed(self, tp: Partition) -> int:
        wanted = [TopicPartition(topic_of(tp), number_of(tp))]
        [entry] = await _in_thread(lambda: self._consumer.committed(wanted, _CALL_TIMEOUT_S))
        if entry.error is not None:
            raise ClientFailed(Outcome.INFO, entry.error.name())
        return max(entry.offset, -1)

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)

    def _end(self, tp: Partition) -> int:
        """The high watermark of the last fetch; negative where there was none."""
        return self._consumer.get_watermark_offsets(TopicPartition(topic_of(tp), number_of(tp)), cached=True)[1]

    async def _watermarks(self, tp: Partition) -> tuple[int, int]:
        wanted = TopicPartition(topic_of(tp), number_of(tp))
        return await _in_thread(lambda: self._consumer.get_watermark_offsets(wanted, _CALL_TIMEOUT_S))


async def _in_thread(call: Callable[[], _T]) -> _T:
    try:
        return await asyncio.to_thread(call)
    except KafkaException as problem:
        raise _failed(problem) from problem


def _failed(problem: KafkaException) -> ClientFailed:
    error = problem.args[0] if problem.args else None
    if isinstance(error, KafkaError):
        return ClientFailed(classify(error.code()), error.name())
    return ClientFailed(Outcome.INFO, type(problem).__name__)
