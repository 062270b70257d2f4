"""One server and what it is asked; every answer is kept under the name of its shape."""

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from dray.records import NewRecord, build_batch
from dray.servers.kafka.codec import Message
from dray.servers.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from dray.servers.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.servers.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.index import MODULES
from dray.servers.kafka.messages.init_producer_id import InitProducerIdRequest
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.servers.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.golden.asking import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    Asker,
    schema,
)
from tests.golden.comparison.rendering import Mask, Tree, render

_PATIENCE_S = 60
_NOT_YET = (5, 6, 14, 15, 16)
"""What a server says while it makes a leader or a coordinator; it is asked again."""
_OFFERS = 40
CLOSED = "the connection is closed"
NO_API = "no_api"
"""Of what is no request."""

Scene = Callable[["Talk"], Awaitable[None]]
Spot = tuple[int, int] | tuple[int, int, int] | tuple[int, int, int, int]
"""Partition, offset, and if they matter the most bytes and the leader epoch."""


class Talk:
    """A server under comparison."""

    def __init__(self, address: str, *, prefix: str, now_ms: int) -> None:
        self.address = address
        self.prefix = prefix
        self.now_ms = now_ms
        """An hour ago, the same for both servers."""
        self.answers: dict[str, Tree] = {}
        self.apis: dict[str, str] = {}
        """Which API each shape asks."""
        self.asked: set[tuple[int, int]] = set()
        """Keys and versions."""
        self.ids: dict[str, bytes] = {}
        self._mask = Mask(prefix, now_ms)
        self._names = itertools.count(1)
        self._asker: Asker | None = None
        self._scene = ""
        self._wide = ""
        """A topic with a partition for each batch that the scene offers."""
        self._offered = itertools.count()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._hang_up()

    async def play(self, scene: Scene) -> None:
        """Every scene has a connection of its own, and names of its own."""
        self._scene = scene.__name__.replace("_", " ")
        self._names, self._offered, self._wide = itertools.count(1), itertools.count(), ""
        self._mask.forget()
        await scene(self)
        await self._hang_up()

    # -- asking ------------------------------------------------------------

    async def ask(
        self,
        shape: str,
        key: int,
        version: int,
        message: Message,
        *,
        waits_ms: int = 0,
        patient: bool = True,
        only: "Callable[[Message], Message] | None" = None,
    ) -> Message | None:
        """Send a request and keep the answer.

        `waits_ms`: also whether it took that long. `patient`: ask again while the server makes a leader.
        `only`: what of the answer is kept.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self.asked.add((key, version))
        answer = await (self.settled if patient else self.call)(key, version, message)
        if answer is not None and only is not None:
            answer = only(answer)
        tree: Tree = CLOSED if answer is None else render(answer, self._mask)
        if waits_ms and isinstance(tree, dict):
            tree["answered"] = "at its time" if (loop.time() - begun) * 1000 > 0.95 * waits_ms else "at once"
        self.keep(shape, tree, key)
        return answer

    def park(self, key: int, version: int, message: Message) -> "asyncio.Task[Message]":
        """Send a request that is answered later, on a connection of its own; `answered` keeps what comes."""
        self.asked.add((key, version))
        return asyncio.create_task(self._aside(key, version, message), name=str(key))

    async def _aside(self, key: int, version: int, message: Message) -> Message:
        async with Asker(self.address) as asker:
            answer = await asker.call(key, version, message)
        assert isinstance(answer, Message)
        return answer

    async def answered(self, shape: str, call: "asyncio.Task[Message]") -> Message:
        answer = await call
        self.keep(shape, render(answer, self._mask), int(call.get_name()))
        return answer

    async def until(
        self, shape: str, key: int, version: int, message: Message, is_so: Callable[[Message], bool]
    ) -> Message:
        """Ask again until the answer is like that, and keep it."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                answer = await self.settled(key, version, message)
                assert answer is not None
                if is_so(answer):
                    break
                await asyncio.sleep(0.05)
        self.asked.add((key, version))
        self.keep(shape, render(answer, self._mask), key)
        return answer

    async def ask_raw(self, shape: str, frame: bytes) -> bytes | None:
        """Send bytes and keep whether an answer came."""
        asker = await self.connected()
        asker.writer.write(frame)
        answer = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await asker.frame()
        except (ConnectionError, asyncio.IncompleteReadError):
            await self._hang_up()
        [key] = struct.unpack_from(">h", frame, 4)
        self.keep(shape, CLOSED if answer is None else {"correlation_id": struct.unpack_from(">i", answer)[0]}, key)
        return answer

    def keep(self, shape: str, tree: Tree, key: int) -> None:
        name = f"{self._scene}: {shape}"
        assert name not in self.answers, f"two shapes are called {name!r}"
        self.answers[name] = tree
        self.apis[name] = MODULES.get(key, NO_API)

    async def call(self, key: int, version: int, message: Message) -> Message | None:
        """The answer, or None if the connection was closed instead."""
        asker = await self.connected()
        try:
            return await asker.call(key, version, message)
        except (ConnectionError, asyncio.IncompleteReadError):
            await self._hang_up()
            return None

    async def send(self, key: int, version: int, message: Message) -> None:
        """A request whose answer nobody waits for."""
        (await self.connected()).send(schema(key), version, message)

    async def connected(self) -> Asker:
        if self._asker is None:
            self._asker = await Asker(self.address).__aenter__()
        return self._asker

    async def _hang_up(self) -> None:
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    async def settled(self, key: int, version: int, message: Message) -> Message | None:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                answer = await self.call(key, version, message)
                if answer is None or not _codes(answer) & set(_NOT_YET):
                    return answer
                await asyncio.sleep(0.05)

    # -- setting up --------------------------------------------------------

    def name(self, tag: str = "topic") -> str:
        """A name that only this scene of this run uses."""
        return f"{self.prefix}{self._scene.replace(' ', '-')[:60]}-{tag}-{next(self._names)}"

    async def topic(self, partitions: int = 1, name: str = "", **configs: str) -> str:
        """A topic that can be written to."""
        name = name or self.name()
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        answer = await self.settled(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000))
        assert answer is not None
        [made] = answer.topics
        assert made.error_code == 0, made
        self.ids[name] = made.topic_id
        self._mask.know(made.topic_id, name)
        await self.leads(name, partitions)
        return name

    async def leads(self, name: str, partitions: int) -> None:
        """Return when so many partitions of a topic can be written to."""
        await self._until(lambda: self._is_led(name, partitions))

    async def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
        await self.settled(DELETE_TOPICS, 6, request)
        await self._until(lambda: self._is_gone(name))

    async def filled(self, partitions: int = 1, batches: int = 5, size: int = 100, **configs: str) -> str:
        """A topic whose partitions have some batches of two records each."""
        name = await self.topic(partitions, **configs)
        for partition in range(partitions):
            for _ in range(batches):
                await self.store(name, self.batch(b"x" * size, b"y" * size), partition=partition)
        return name

    async def store(self, name: str, records: bytes, *, partition: int = 0) -> None:
        answer = await self.settled(PRODUCE, 9, produce_request((name, [(partition, records)])))
        assert answer is not None
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    async def producer(self) -> int:
        answer = await self.settled(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
        assert answer is not None
        return int(answer.producer_id)

    async def group(self) -> str:
        """A group whose coordinator is there."""
        name = self.name("group")
        await self.coordinator(name)
        return name

    async def coordinator(self, key: str, kind: int = 0) -> None:
        """Have Kafka make the topic in which it keeps groups or transactions."""
        await self.settled(FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))

    def batch(self, *values: bytes | None, at: int = 0, key: bytes | None = b"k", **options) -> bytes:
        """Records a millisecond apart, `at` ms from the run's time on."""
        rows = [
            NewRecord(key=key, value=one, timestamp=self.now_ms + at + n) for n, one in enumerate(values or (b"v",))
        ]
        return build_batch(rows, **options)

    async def _is_led(self, name: str, partitions: int) -> bool:
        asked = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])
        answer = await self.call(LIST_OFFSETS, 6, request)
        return answer is not None and all(one.error_code == 0 for one in answer.topics[0].partitions)

    async def _is_gone(self, name: str) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        answer = await self.call(METADATA, 12, request)
        return answer is not None and answer.topics[0].error_code == 3

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while not await condition():
                await asyncio.sleep(0.01)

    # -- often asked -------------------------------------------------------

    async def produce(self, shape: str, name: str, records: bytes | None, *, version: int = 9, **options) -> None:
        await self.ask(shape, PRODUCE, version, produce_request((name, [(0, records)]), **options))

    async def offer(self, shape: str, records: bytes, *, version: int = 9, **options) -> None:
        """Produce to a partition that nobody has written to: what was taken before does not show."""
        self._wide = self._wide or await self.topic(_OFFERS)
        request = produce_request((self._wide, [(next(self._offered), records)]), **options)
        await self.ask(shape, PRODUCE, version, request)

    async def fetch(
        self, shape: str, *places: tuple[str, Sequence[Spot]], version: int = 12, waits_ms: int = 0, **options
    ) -> None:
        request = fetch_request(self.ids, places, by_id=version >= 13, **{"max_wait_ms": waits_ms} | options)
        await self.ask(shape, FETCH, version, request, waits_ms=waits_ms)

    async def offsets(
        self,
        shape: str,
        *places: tuple[str, Sequence[tuple[int, int] | tuple[int, int, int]]],
        version: int = 10,
        **options,
    ) -> None:
        topics = [ListOffsetsTopic(name=name, partitions=[_asked(*one) for one in spots]) for name, spots in places]
        await self.ask(shape, LIST_OFFSETS, version, ListOffsetsRequest(replica_id=-1, topics=topics, **options))


def produce_request(
    *topics: tuple[str, Sequence[tuple[int, bytes | None]]], acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        transactional_id=transactional_id,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=at, records=one) for at, one in parts]
            )
            for name, parts in topics
        ],
    )


def fetch_request(
    ids: dict[str, bytes], places: Sequence[tuple[str, Sequence[Spot]]], *, by_id: bool, **options
) -> FetchRequest:
    """Topics that are not known are asked for under an id that nobody has."""
    topics = [
        FetchTopic(
            topic="" if by_id else name,
            topic_id=ids.get(name, b"\x07" * 16) if by_id else bytes(16),
            partitions=[_wanted(*spot) for spot in spots],
        )
        for name, spots in places
    ]
    return FetchRequest(**{"max_bytes": 1 << 26, "topics": topics} | options)


def _wanted(partition: int, offset: int, max_bytes: int = 1 << 20, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )


def _asked(partition: int, timestamp: int, epoch: int = -1) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)


def _codes(answer: object) -> set[int]:
    """Every error code in an answer, however deep."""
    if isinstance(answer, list | tuple):
        return set().union(*map(_codes, answer))
    if not isinstance(answer, Message):
        return set()
    found = {int(answer.error_code)} if hasattr(answer, "error_code") else set()
    return found.union(*(_codes(getattr(answer, field)) for field in answer.__struct_fields__))
