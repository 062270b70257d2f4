"""Topics, as any Kafka broker tells them: what there is, how it is led, and changes of it."""

import asyncio
import base64
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dray.errors import Unavailable
from dray.kafka_client.cluster import PAUSE_S, TRIES, Cluster, TopicPartition
from dray.kafka_client.configs import ConfigOwner, ConfigRow, describe_configs
from dray.kafka_client.errors import NotServed, PartitionNotThere, TopicNotThere, TopicThere, check
from dray.kafka_client.places import Extent, what_they_hold
from dray.servers.kafka.codec import ZERO_UUID
from dray.servers.kafka.messages.create_partitions import SCHEMA as CREATE_PARTITIONS
from dray.servers.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from dray.servers.kafka.messages.create_topics import SCHEMA as CREATE_TOPICS
from dray.servers.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from dray.servers.kafka.messages.delete_records import SCHEMA as DELETE_RECORDS
from dray.servers.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dray.servers.kafka.messages.delete_topics import SCHEMA as DELETE_TOPICS
from dray.servers.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.servers.kafka.messages.metadata import MetadataResponseTopic

BROKERS_DEFAULT: Final = -1
"""As many partitions, or replicas, as the broker is set to."""
_TIMEOUT_MS: Final = 30_000
_BY_STATE: Final = 6
"""From this version on DeleteTopics takes names or ids; before, names alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLine:
    """A topic in a list."""

    topic: str
    partitions: int
    replication: int
    internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """A partition: who has it, and what it holds."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    held: Extent | None
    """None: it has no leader, so nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with all that is known about it."""

    topic: str
    id: str | None
    internal: bool
    replication: int
    partitions: tuple[PartitionView, ...]
    configs: tuple[ConfigRow, ...] | None
    """None: the broker does not tell configs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTopic:
    """What became of a wish for a topic."""

    partitions: int | None
    replication: int | None
    """None: an old broker does not tell."""
    created: bool


async def list_topics(cluster: Cluster, *, internal: bool = False) -> list[TopicLine]:
    """The topics of the cluster, by name."""
    found = await cluster.topics()
    return [
        TopicLine(
            topic=name,
            partitions=len(topic.partitions),
            replication=_replication(topic),
            internal=topic.is_internal,
        )
        for name, topic in sorted(found.items())
        if internal or not topic.is_internal
    ]


async def describe_topic(cluster: Cluster, name: str) -> TopicDescription:
    """Partitions, configs and what is held.

    Raises:
        TopicNotThere: there is none.
    """
    topic = await _topic(cluster, name)
    rows = sorted(topic.partitions, key=lambda one: one.partition_index)
    led = [TopicPartition(name, one.partition_index) for one in rows if one.leader_id in cluster.brokers]
    held = await what_they_hold(cluster, led)
    try:
        configs: tuple[ConfigRow, ...] | None = tuple(await describe_configs(cluster, ConfigOwner.TOPIC, name))
    except NotServed:
        configs = None
    return TopicDescription(
        topic=name,
        id=None if topic.topic_id == ZERO_UUID else base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
        internal=topic.is_internal,
        replication=_replication(topic),
        partitions=tuple(
            PartitionView(
                partition=one.partition_index,
                leader=one.leader_id if one.leader_id >= 0 else None,
                replicas=tuple(one.replica_nodes),
                in_sync=tuple(one.isr_nodes),
                held=held.get(TopicPartition(name, one.partition_index)),
            )
            for one in rows
        ),
        configs=configs,
    )


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKERS_DEFAULT,
    replication: int = BROKERS_DEFAULT,
    configs: Mapping[str, str] | None = None,
    only_check: bool = False,
    if_not_exists: bool = False,
) -> MadeTopic:
    """Make a topic, and wait until every broker knows it.

    Raises:
        TopicThere: the name is taken; with `if_not_exists` that is told instead.
        LostAnswer: it may have happened.
    """
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=only_check)
    (told,) = (await (await cluster.admin()).ask(CREATE_TOPICS, request, most=7, changes=not only_check)).topics
    try:
        check(told.error_code, told.error_message, topic=name)
    except TopicThere:
        if not if_not_exists:
            raise
        topic = await _topic(cluster, name)
        return MadeTopic(partitions=len(topic.partitions), replication=_replication(topic), created=False)
    if not only_check:
        await _until(cluster, name, lambda topic: topic is not None and _is_led(topic))
    return MadeTopic(
        partitions=told.num_partitions if told.num_partitions >= 0 else None,
        replication=told.replication_factor if told.replication_factor >= 0 else None,
        created=not only_check,
    )


async def delete_topic(cluster: Cluster, name: str) -> None:
    """Drop a topic with its records, and wait until no broker knows it.

    Raises:
        TopicNotThere: there is none.
        LostAnswer: it may have happened.
    """
    connection = await cluster.admin()
    if connection.version_of(DELETE_TOPICS, most=_BY_STATE) >= _BY_STATE:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
    else:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_TIMEOUT_MS)
    (told,) = (await connection.ask(DELETE_TOPICS, request, most=_BY_STATE, changes=True)).responses
    check(told.error_code, told.error_message, topic=name)
    await _until(cluster, name, lambda topic: topic is None)


async def count_partitions(cluster: Cluster, name: str) -> int:
    """How many partitions a topic has.

    Raises:
        TopicNotThere: there is none.
    """
    return len((await _topic(cluster, name)).partitions)


async def add_partitions(cluster: Cluster, name: str, total: int, *, only_check: bool = False) -> None:
    """Let a topic have more partitions, and wait until every broker knows them.

    Raises:
        LostAnswer: it may have happened; to repeat it does no harm.
    """
    wanted = CreatePartitionsTopic(name=name, count=total, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=only_check)
    answer = await (await cluster.admin()).ask(CREATE_PARTITIONS, request, most=3, changes=not only_check)
    for told in answer.results:
        check(told.error_code, told.error_message, topic=name)
    if not only_check:
        await _until(cluster, name, lambda topic: topic is not None and len(topic.partitions) >= total)


async def places_of(cluster: Cluster, name: str, partitions: Sequence[int] = ()) -> list[TopicPartition]:
    """The partitions of a topic: all, or those that are named.

    Raises:
        TopicNotThere: there is no such topic.
        PartitionNotThere: it has no such partition.
    """
    there = sorted(one.partition_index for one in (await _topic(cluster, name)).partitions)
    if missing := sorted(set(partitions) - set(there)):
        raise PartitionNotThere("the topic has no such partition", topic=name, partition=missing[0])
    return [TopicPartition(name, number) for number in there if not partitions or number in partitions]


async def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Drop the records before an offset of each partition; returns where each begins now.

    Raises:
        LostAnswer: it may have happened; to repeat it does no harm.
    """
    begins: dict[TopicPartition, int] = {}
    for connection, ours in await cluster.by_leader(before):
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for place in ours:
            row = DeleteRecordsPartition(partition_index=place.partition, offset=before[place])
            topics.setdefault(place.topic, []).append(row)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=rows) for name, rows in topics.items()],
            timeout_ms=_TIMEOUT_MS,
        )
        answer = await connection.ask(DELETE_RECORDS, request, most=2, changes=True)
        for topic in answer.topics:
            for one in topic.partitions:
                check(one.error_code, topic=topic.name, partition=one.partition_index)
                begins[TopicPartition(topic.name, one.partition_index)] = one.low_watermark
    return begins


async def _topic(cluster: Cluster, name: str) -> MetadataResponseTopic:
    found = (await cluster.topics([name])).get(name)
    if found is None:
        raise TopicNotThere("there is no such topic", topic=name)
    return found


def _replication(topic: MetadataResponseTopic) -> int:
    return max((len(one.replica_nodes) for one in topic.partitions), default=0)


def _is_led(topic: MetadataResponseTopic) -> bool:
    return all(one.leader_id >= 0 for one in topic.partitions)


async def _until(cluster: Cluster, name: str, there: Callable[[MetadataResponseTopic | None], bool]) -> None:
    """Wait until every broker tells it so: what comes next may ask any of them.

    Brokers of Kafka learn of a change after it was answered. It is made, so what is late is no error.
    """
    for connection in await cluster.all():
        for _ in range(TRIES):
            with contextlib.suppress(Unavailable):  # it has no leader yet
                if there((await cluster.topics([name], of=connection)).get(name)):
                    break
            await asyncio.sleep(PAUSE_S)
