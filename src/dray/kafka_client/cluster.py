"""A cluster: its brokers, who coordinates a group, who leads partitions and where their ends are."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from dray.errors import NotFound, Unavailable
from dray.kafka_client.errors import NoBroker, NoLeader, check
from dray.kafka_client.link import BrokerLink
from dray.servers.kafka.codes import ErrorCode
from dray.servers.kafka.messages.find_coordinator import SCHEMA as FIND_COORDINATOR
from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.list_offsets import SCHEMA as LIST_OFFSETS
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.servers.kafka.messages.metadata import SCHEMA as METADATA
from dray.servers.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

EARLIEST: Final = -2
LATEST: Final = -1
TRIES: Final = 50
PAUSE_S: Final = 0.2
"""Between tries: a new cluster needs seconds until it has coordinators."""
TOPICS_AT_ONCE: Final = 500
_METADATA: Final = 12
_COMMITTED: Final = 1
"""Kafka's number for the isolation of reads that stop before open transactions."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition, by the name of its topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBroker:
    """A broker, as the cluster tells of it."""

    node: int
    host: str
    port: int
    rack: str | None


class Cluster:
    """Connections to the brokers of one cluster, made when they are needed."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]]) -> None:
        self._bootstrap = tuple(bootstrap)
        self._open: dict[tuple[str, int], BrokerLink] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self.id: str | None = None
        self.controller: int | None = None
        """Whom to ask for changes; any broker serves where nobody is named."""
        self.brokers: dict[int, ClusterBroker] = {}

    async def __aenter__(self) -> Self:
        answer = await (await self.first()).ask(METADATA, MetadataRequest(topics=[]), most=_METADATA)
        self.id = answer.cluster_id
        self.brokers = {
            one.node_id: ClusterBroker(node=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in sorted(answer.brokers, key=lambda broker: broker.node_id)
        }
        self.controller = answer.controller_id if answer.controller_id in self.brokers else None
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._open.values():
            connection.close()

    async def first(self) -> BrokerLink:
        """The first of the brokers that were named that answers."""
        *others, last = self._bootstrap
        for address in others:
            try:
                return await self._at(address)
            except NoBroker:
                continue
        return await self._at(last)

    async def all(self) -> list[BrokerLink]:
        """Every broker."""
        return [await self.broker(node) for node in self.brokers]

    async def broker(self, node: int) -> BrokerLink:
        """One broker.

        Raises:
            NotFound: the cluster has none of this number.
        """
        if node not in self.brokers:
            raise NotFound("the cluster has no such broker", broker=node)
        return await self._at((self.brokers[node].host, self.brokers[node].port))

    async def admin(self) -> BrokerLink:
        """Whoever carries out changes."""
        return await (self.first() if self.controller is None else self.broker(self.controller))

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

    async def topics(
        self, names: Iterable[str] | None = None, of: BrokerLink | None = None
    ) -> dict[str, MetadataResponseTopic]:
        """What a broker tells of all topics, or of those of these names that exist."""
        broker = of or await self.first()
        if names is None:
            return self._learn(await broker.ask(METADATA, MetadataRequest(topics=None), most=_METADATA))
        found: dict[str, MetadataResponseTopic] = {}
        wanted = sorted(set(names))
        for start in range(0, len(wanted), TOPICS_AT_ONCE):
            some = [MetadataRequestTopic(name=name) for name in wanted[start : start + TOPICS_AT_ONCE]]
            request = MetadataRequest(topics=some, allow_auto_topic_creation=False)
            found |= self._learn(await broker.ask(METADATA, request, most=_METADATA))
        return found

    async def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The partitions of each topic that exists."""
        found = await self.topics(topics)
        return {name: sorted(one.partition_index for one in topic.partitions) for name, topic in found.items()}

    async def offsets_at(
        self, asked: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The offset of each partition at a time, at `EARLIEST` or at `LATEST`; -1 where nothing is that late.

        Partitions must be of topics that were asked for before.
        """
        found: dict[TopicPartition, int] = {}
        for tries_left in reversed(range(TRIES)):
            left = {place: moment for place, moment in asked.items() if place not in found}
            try:
                await self._find_offsets(left, found, committed=committed)
                break
            except NoLeader:
                if not tries_left:
                    raise
            await asyncio.sleep(PAUSE_S)
            await self.topics({place.topic for place in left})
        if missing := asked.keys() - found.keys():
            raise NotFound("the broker told no offset", partition=min(missing))
        return found

    async def _find_offsets(
        self, asked: Mapping[TopicPartition, int], found: dict[TopicPartition, int], *, committed: bool
    ) -> None:
        """Put into `found` what is told.

        Raises:
            NoLeader: of at least one; the others of its leader may be found.
        """
        for connection, ours in await self.by_leader(asked):
            answer = await connection.ask(LIST_OFFSETS, _question(ours, asked, committed=committed), most=7)
            told = [
                (TopicPartition(topic.name, one.partition_index), one)
                for topic in answer.topics
                for one in topic.partitions
            ]
            found.update({place: one.offset for place, one in told if one.error_code == ErrorCode.NONE})
            for place, one in told:
                check(one.error_code, topic=place.topic, partition=place.partition)

    async def by_leader(self, places: Iterable[TopicPartition]) -> list[tuple[BrokerLink, list[TopicPartition]]]:
        """Who leads what; partitions of topics that were asked for before.

        Raises:
            NoLeader: one of them has none.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for one in sorted(places):
            by_leader.setdefault(self._leaders[one], []).append(one)
        for leader, ours in by_leader.items():
            if leader not in self.brokers:
                raise NoLeader("a partition has no leader", topic=ours[0].topic, partition=ours[0].partition)
        return [(await self.broker(leader), ours) for leader, ours in by_leader.items()]

    def _learn(self, answer: MetadataResponse) -> dict[str, MetadataResponseTopic]:
        found: dict[str, MetadataResponseTopic] = {}
        for topic in answer.topics:
            assert isinstance(topic, MetadataResponseTopic)  # bytes are for sending alone
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            check(topic.error_code, topic=topic.name)
            found[topic.name] = topic
            for one in topic.partitions:
                self._leaders[TopicPartition(topic.name, one.partition_index)] = one.leader_id
        return found

    async def _at(self, address: tuple[str, int]) -> BrokerLink:
        connection = self._open.get(address)
        if connection is None:
            connection = self._open[address] = await BrokerLink.open(*address)
        return connection


def _question(
    partitions: Sequence[TopicPartition], at: Mapping[TopicPartition, int], *, committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for one in partitions:
        wanted = ListOffsetsPartition(partition_index=one.partition, timestamp=at[one])
        topics.setdefault(one.topic, []).append(wanted)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=_COMMITTED if committed else 0,
        topics=[ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in topics.items()],
    )
