"""aiokafka as the workload's clients."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from dray.testing.history.clients import ClientFailed, Consumer, Fetched, Producer
from dray.testing.history.events import Partition, ProducerOpened, number_of, partition, topic_of
from dray.testing.history.outcomes import Outcome, classify

_CALL_TIMEOUT_S: Final = 10.0
_POLL_RECORDS: Final = 500
_T = TypeVar("_T")


class AiokafkaKit:
    """Clients of aiokafka. Its producers always retry and keep one request per partition in flight."""

    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def producer(self, promises: ProducerOpened) -> Producer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, acks="all", enable_idempotence=promises.idempotent
        )
        await _settled(producer.start())
        return _Producer(producer)

    async def consumer(self, group: str) -> Consumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        await _settled(consumer.start())
        return _Consumer(consumer)

    async def create_topic(self, topic: str, partitions: int) -> str:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await _settled(admin.start())
        try:
            await _settled(admin.create_topics([NewTopic(topic, partitions, 1)]))
        finally:
            await admin.close()
        return ""


class _Producer:
    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._waits: set[asyncio.Task[int | None]] = set()

    async def send(self, tp: Partition, payload: bytes) -> asyncio.Future[int | None]:
        accepted = await _settled(self._producer.send(topic_of(tp), payload, partition=number_of(tp)))
        wait = asyncio.ensure_future(self._offset(accepted))
        self._waits.add(wait)
        wait.add_done_callback(self._waits.discard)
        return wait

    async def close(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self._producer.stop(), timeout_s)
        except (TimeoutError, KafkaError):
            return  # what it had in flight stays unknown

    async def _offset(self, accepted: asyncio.Future[object]) -> int | None:
        metadata = await _settled(accepted)
        offset = getattr(metadata, "offset", None)
        return offset if isinstance(offset, int) else None


class _Consumer:
    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._assigned: list[Partition] = []

    async def assign(self, positions: Mapping[Partition, int]) -> None:
        self._assigned = list(positions)
        self._consumer.assign([_native(tp) for tp in positions])
        for tp, at in positions.items():
            self._consumer.seek(_native(tp), at)

    async def poll(self, timeout_s: float) -> Fetched:
        got = await _settled(self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=_POLL_RECORDS))
        records = {
            partition(tp.topic, tp.partition): [(message.offset, message.value or b"") for message in messages]
            for tp, messages in got.items()
        }
        ends = {tp: self._consumer.highwater(_native(tp)) for tp in self._assigned}
        return Fetched(records=records, ends={tp: end for tp, end in ends.items() if end is not None})

    async def latest(self, tp: Partition) -> int:
        found = await _settled(self._consumer.end_offsets([_native(tp)]))
        return int(found[_native(tp)])

    async def earliest(self, tp: Partition) -> int:
        found = await _settled(self._consumer.beginning_offsets([_native(tp)]))
        return int(found[_native(tp)])

    async def commit(self, tp: Partition, offset: int) -> None:
        await _settled(self._consumer.commit({_native(tp): offset}))

    async def committed(self, tp: Partition) -> int:
        found = await _settled(self._consumer.committed(_native(tp)))
        return -1 if found is None else int(found)

    async def close(self) -> None:
        await _settled(self._consumer.stop())


def _native(tp: Partition) -> TopicPartition:
    return TopicPartition(topic_of(tp), number_of(tp))


async def _settled(call: Awaitable[_T]) -> _T:
    try:
        return await asyncio.wait_for(call, _CALL_TIMEOUT_S * 3)
    except TimeoutError as late:
        raise ClientFailed(Outcome.INFO, "no answer in time") from late
    except KafkaError as problem:
        code = getattr(problem, "errno", -1)
        raise ClientFailed(classify(code if isinstance(code, int) else -1), type(problem).__name__) from problem
