"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, OffsetForLeaderEpoch and DescribeProducers."""

from collections.abc import Sequence

import msgspec

from dray.servers.kafka.codec import Message
from dray.servers.kafka.messages import describe_producers
from dray.servers.kafka.messages.describe_cluster import DescribeClusterRequest
from dray.servers.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from dray.servers.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from dray.servers.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.golden.comparison.talking import Talk

CLUSTER, TOPIC_PARTITIONS, LOG_DIRS, LEADER_EPOCH, PRODUCERS = 60, 75, 35, 23, 61


async def the_cluster(talk: Talk) -> None:
    for version in range(3):
        await talk.ask(f"version {version}", CLUSTER, version, DescribeClusterRequest())
    for kind in (0, 2, 3):
        await talk.ask(f"endpoints of type {kind}", CLUSTER, 2, DescribeClusterRequest(endpoint_type=kind))
    await talk.ask("fenced ones too", CLUSTER, 2, DescribeClusterRequest(include_fenced_brokers=True))
    allowed = DescribeClusterRequest(include_cluster_authorized_operations=True)
    await talk.ask("with authorized operations", CLUSTER, 2, allowed)


async def partitions_of_topics(talk: Talk) -> None:
    one, two, nowhere = await talk.topic(3, talk.name("a")), await talk.topic(2, talk.name("b")), talk.name("c-nowhere")

    async def ask(shape: str, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> None:
        place = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=place
        )
        await talk.ask(shape, TOPIC_PARTITIONS, 0, request)

    await ask("one", one)
    await ask("several", two, nowhere, one)
    await ask("one twice", one, one)
    await ask("a name that cannot be", "a/b", "")
    await ask("two partitions", one, two, limit=2)
    await ask("three partitions", one, two, limit=3)
    await ask("four partitions", one, two, limit=4)
    await ask("five partitions", one, two, limit=5)
    await ask("no partitions", one, limit=0)
    await ask("fewer than none", one, limit=-1)
    await ask("from the middle", one, two, cursor=(one, 1))
    await ask("from the middle, two", one, two, limit=2, cursor=(one, 2))
    await ask("from the second topic", one, two, cursor=(two, 1))
    await ask("from behind the first", one, two, cursor=(one, 3))
    await ask("from far behind the first", one, two, cursor=(one, 99))
    await ask("from before the first", one, two, cursor=(one, -1))
    await ask("from a topic that was not asked for", two, cursor=(one, 1))
    await ask("from a topic that is not there", one, two, nowhere, cursor=(nowhere, 0))
    await ask("from a name in between", one, two, cursor=(one + "x", 0))
    await ask("a limit, and one that is not there", nowhere, one, limit=1)
    await ask("a limit, and one that is not there first", one[:-1], one, limit=1)


def _only_ours(topics: Sequence[str]):
    """Kafka tells of internal topics too, and of its disk."""

    def only(answer: Message) -> Message:
        assert isinstance(answer, DescribeLogDirsResponse)
        results = []
        for one in answer.results:
            kept = [topic for topic in one.topics if topic.name in topics]
            room = (one.total_bytes > 0, one.usable_bytes > 0)
            results.append(
                msgspec.structs.replace(
                    one, log_dir="a place", topics=kept, total_bytes=int(room[0]), usable_bytes=int(room[1])
                )
            )
        return msgspec.structs.replace(answer, results=results)

    return only


async def log_dirs(talk: Talk) -> None:
    one, two, nowhere = await talk.filled(2), await talk.topic(2), talk.name("nowhere")
    only = _only_ours((one, two))

    async def ask(shape: str, topics: dict[str, list[int]] | None, version: int = 4) -> None:
        named = None
        if topics is not None:
            named = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
        await talk.ask(shape, LOG_DIRS, version, DescribeLogDirsRequest(topics=named), only=only)

    for version in range(1, 5):
        await ask(f"version {version}", {one: [0, 1], two: [1]}, version)
    await ask("everything", None)
    await ask("nothing", {})
    await ask("no partitions", {one: []})
    await ask("what is not there", {nowhere: [0], one: [7], two: [0]})


async def ends_of_epochs(talk: Talk) -> None:
    topic, empty, nowhere = await talk.filled(2), await talk.topic(), talk.name("nowhere")

    async def ask(
        shape: str, *topics: tuple[str, Sequence[tuple[int, int, int]]], version: int = 4, replica: int = -1
    ) -> None:
        named = [
            OffsetForLeaderTopic(
                topic=name,
                partitions=[
                    OffsetForLeaderPartition(partition=at, current_leader_epoch=current, leader_epoch=epoch)
                    for at, current, epoch in spots
                ],
            )
            for name, spots in topics
        ]
        request = OffsetForLeaderEpochRequest(replica_id=replica, topics=named)
        await talk.ask(shape, LEADER_EPOCH, version, request)

    for version in range(2, 5):
        await ask(f"version {version}", (topic, [(0, -1, 0), (1, 0, 0)]), version=version)
    await ask("an empty one", (empty, [(0, -1, 0)]))
    await ask("a later epoch", (topic, [(0, -1, 1)]))
    await ask("no epoch", (topic, [(0, -1, -1)]))
    await ask("epoch -2", (topic, [(0, -1, -2)]))
    await ask("a later current epoch", (topic, [(0, 1, 0)]))
    await ask("a current epoch below none", (topic, [(0, -5, 0)]))
    await ask("what is not there", (topic, [(9, -1, 0), (0, -1, 0)]), (nowhere, [(0, -1, 0)]))
    await ask("a partition twice", (topic, [(0, -1, 0), (0, -1, 1)]))
    await ask("no partitions", (topic, []))
    await ask("nothing")
    await ask("as a debugger", (topic, [(0, -1, 0)]), replica=-2)


async def producers_of_partitions(talk: Talk) -> None:
    topic, nowhere, producer = await talk.topic(2), talk.name("nowhere"), await talk.producer()
    records = [talk.batch(b"1", b"2", producer_id=producer, producer_epoch=0, base_sequence=first) for first in (0, 2)]
    for one in records:
        await talk.store(topic, one)

    async def ask(shape: str, *topics: tuple[str, Sequence[int]]) -> None:
        named = [describe_producers.TopicRequest(name=name, partition_indexes=numbers) for name, numbers in topics]
        await talk.ask(shape, PRODUCERS, 0, describe_producers.DescribeProducersRequest(topics=named))

    await ask("one", (topic, [0]))
    await ask("none", (topic, [1]))
    await ask("what is not there", (topic, [7, 0]), (nowhere, [0]))
    await ask("a name that cannot be", ("a/b", [0]))
    await ask("a partition twice", (topic, [1, 1]))
    await ask("no partitions", (topic, []))
    await ask("nothing")


SCENES = (the_cluster, partitions_of_topics, log_dirs, ends_of_epochs, producers_of_partitions)
