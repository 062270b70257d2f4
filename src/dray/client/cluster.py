"""A cluster: its brokers, who coordinates a group, where the ends of partitions are."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from dray.client.errors import check
from dray.client.link import BrokerLink
from dray.errors import NotFound, Unavailable
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.messages.find_coordinator import SCHEMA as FIND_COORDINATOR
from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.list_offsets import SCHEMA as LIST_OFFSETS
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.servers.kafka.messages.metadata import SCHEMA as METADATA
from dray.servers.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic

EARLIEST: Final = -2
LATEST: Final = -1
TRIES: Final = 50
PAUSE_S: Final = 0.2
"""Between tries: a new cluster needs seconds until it has coordinators."""
TOPICS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition, by the name of its topic."""

    topic: str
    partition: int


class Cluster:
    """Connections to the brokers of one cluster, made when they are needed."""

    def __init__(self, host: str, port: int) -> None:
        self._bootstrap = (host, port)
        self._open: dict[tuple[str, int], BrokerLink] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> Self:
        answer = await (await self.first()).ask(METADATA, MetadataRequest(topics=[]), most=8)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._open.values():
            connection.close()

    async def first(self) -> BrokerLink:
        """The broker that was named."""
        return await self._at(self._bootstrap)

    async def all(self) -> list[BrokerLink]:
        """Every broker."""
        return [await self._at(address) for address in self._brokers.values()]

    async def coordinator(self, group: str) -> BrokerLink:
        """Who keeps a group."""
        request = FindCoordinatorRequest(key=group)
        for _ in range(TRIES):
            answer = await (await self.first()).ask(FIND_COORDINATOR, request, most=3)
            if answer.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                check(answer.error_code, group=group)
                return await self._at((answer.host, answer.port))
            await asyncio.sleep(PAUSE_S)
        raise Unavailable("nobody coordinates the group yet", group=group)

    async def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The partitions of each topic that exists."""
        found: dict[str, list[int]] = {}
        names = sorted(set(topics))
        for start in range(0, len(names), TOPICS_AT_ONCE):
            wanted = [MetadataRequestTopic(name=name) for name in names[start : start + TOPICS_AT_ONCE]]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
            for topic in (await (await self.first()).ask(METADATA, request, most=8)).topics:
                assert isinstance(topic, MetadataResponseTopic)  # bytes are for sending alone
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                    continue
                check(topic.error_code, topic=topic.name)
                found[topic.name] = sorted(one.partition_index for one in topic.partitions)
                for one in topic.partitions:
                    self._leaders[TopicPartition(topic.name, one.partition_index)] = one.leader_id
        return found

    async def offsets_at(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of each partition at a time, at `EARLIEST` or at `LATEST`; -1 where nothing is that late.

        Partitions must be of topics that `partitions` has found.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for one in sorted(asked):
            by_leader.setdefault(self._leaders[one], []).append(one)
        found: dict[TopicPartition, int] = {}
        for leader, ours in by_leader.items():
            if leader not in self._brokers:
                raise Unavailable("a partition has no leader", topic=ours[0].topic, partition=ours[0].partition)
            connection = await self._at(self._brokers[leader])
            answer = await connection.ask(LIST_OFFSETS, _question(ours, asked), most=7)
            for topic in answer.topics:
                for told in topic.partitions:
                    check(told.error_code, topic=topic.name, partition=told.partition_index)
                    found[TopicPartition(topic.name, told.partition_index)] = told.offset
        if missing := asked.keys() - found.keys():
            raise NotFound("the broker told no offset", partition=min(missing))
        return found

    async def _at(self, address: tuple[str, int]) -> BrokerLink:
        connection = self._open.get(address)
        if connection is None:
            connection = self._open[address] = await BrokerLink.open(*address)
        return connection


def _question(partitions: Sequence[TopicPartition], at: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for one in partitions:
        wanted = ListOffsetsPartition(partition_index=one.partition, timestamp=at[one])
        topics.setdefault(one.topic, []).append(wanted)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in topics.items()]
    )
