"""Requests written by hand with the generated codec, sent over a socket, and what comes back."""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Self

from dray.clock import SystemClock
from dray.records import NewRecord, build_batch
from dray.servers.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from dray.servers.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.servers.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.servers.kafka.messages.index import MODULES
from dray.servers.kafka.messages.init_producer_id import InitProducerIdRequest
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.servers.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kafka.wire import Client

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 18, 19, 20, 22
NOW_MS = SystemClock().wall_ms() - 3_600_000
"""An hour ago: what is older than a week may be gone by retention before a test has read it."""


def schema(key: int):
    return import_module(f"dray.servers.kafka.messages.{MODULES[key]}").SCHEMA


def batch(*values: bytes | None, at: int = NOW_MS, **options) -> bytes:
    """A batch of records with these values, a millisecond apart."""
    rows = [NewRecord(key=b"k", value=value, timestamp=at + n) for n, value in enumerate(values or (b"v",))]
    return build_batch(rows, **options)


class Asker(Client):
    """A connection with a sentence for each thing a test wants to say."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._correlation = 0

    async def __aenter__(self) -> Self:
        host, port = self._bootstrap.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 27)
        super().__init__(reader, writer)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def call(self, key: int, version: int, message):
        self._correlation += 1
        async with asyncio.timeout(30):
            return await self.ask(schema(key), version, message, self._correlation)

    async def create(self, name: str, partitions: int = 1, version: int = 7, **configs: str):
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        [result] = (await self.call(CREATE_TOPICS, version, CreateTopicsRequest(topics=[topic]))).topics
        assert result.error_code == 0, result
        return result

    async def delete(self, name: str) -> int:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        [result] = (await self.call(DELETE_TOPICS, 6, request)).responses
        return result.error_code

    async def metadata(self, *names: str, version: int = 12, create: bool = False):
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create
        )
        return await self.call(METADATA, version, request)

    async def produce(self, name: str, records: bytes, *, partition: int = 0, acks: int = -1, version: int = 9):
        request = produce_request(name, {partition: records}, acks=acks)
        [topic] = (await self.call(PRODUCE, version, request)).responses
        [answer] = topic.partition_responses
        return answer

    async def fetch(self, name: str, offset: int = 0, *, version: int = 12, partition: int = 0, **options):
        """The answer about one partition; its records are joined."""
        request = fetch_request([(name, partition, offset)], **options)
        response = await self.call(FETCH, version, request)
        assert response.error_code == 0
        [topic] = response.responses
        [answer] = topic.partitions
        return answer

    async def offset_at(self, name: str, timestamp: int, *, version: int = 10, partition: int = 0):
        return (await self.offsets_at(name, [(partition, timestamp)], version=version))[0]

    async def offsets_at(self, name: str, asked: Sequence[tuple[int, int]], *, version: int = 10):
        wanted = [ListOffsetsPartition(partition_index=number, timestamp=at) for number, at in asked]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        [topic] = (await self.call(LIST_OFFSETS, version, request)).topics
        return topic.partitions

    async def producer_id(self, version: int = 4) -> int:
        answer = await self.call(INIT_PRODUCER_ID, version, InitProducerIdRequest(transactional_id=None))
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        return answer.producer_id


def produce_request(name: str, batches: dict[int, bytes], acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=records) for number, records in batches.items()]
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name=name, partition_data=data)])


def fetch_request(
    places: Sequence[tuple[str, int, int]],
    *,
    topic_id: bytes = bytes(16),
    max_bytes: int = 1 << 26,
    partition_max_bytes: int = 1 << 26,
    epoch: int = -1,
    **options,
) -> FetchRequest:
    """`places` are (topic, partition, offset); those of one topic follow each other."""
    topics: dict[str, list[FetchPartition]] = {}
    for name, partition, offset in places:
        asked = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=epoch,
        )
        topics.setdefault(name, []).append(asked)
    wanted = [FetchTopic(topic=name, topic_id=topic_id, partitions=parts) for name, parts in topics.items()]
    return FetchRequest(max_bytes=max_bytes, topics=wanted, **options)


def records_in(answer) -> bytes:
    """The bytes of a partition's records; never null."""
    assert answer.records is not None
    records = answer.records
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else b"".join(records)
