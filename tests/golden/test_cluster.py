"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, OffsetForLeaderEpoch and DescribeProducers."""

import pytest

from dray.servers.kafka.messages import describe_producers
from dray.servers.kafka.messages.describe_cluster import DescribeClusterRequest
from dray.servers.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
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
from tests.golden.asking import Asker, batch

CLUSTER, TOPIC_PARTITIONS, LOG_DIRS, LEADER_EPOCH, PRODUCERS = 60, 75, 35, 23, 61


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_told_as_metadata_tells_it(ask: Asker, version: int) -> None:
    """R-198."""
    told, known = await ask.call(CLUSTER, version, DescribeClusterRequest()), await ask.metadata()
    assert (told.error_code, told.error_message, told.cluster_id) == (0, None, known.cluster_id)
    assert told.controller_id == known.controller_id
    assert [(one.broker_id, one.host, one.port, one.rack, one.is_fenced) for one in told.brokers] == [
        (one.node_id, one.host, one.port, one.rack, False) for one in known.brokers
    ]


async def test_there_are_only_brokers_to_ask_about(ask: Asker) -> None:
    """R-198."""
    for kind, code in ((2, 114), (0, 115), (7, 115)):
        told = await ask.call(CLUSTER, 2, DescribeClusterRequest(endpoint_type=kind))
        assert (told.error_code, bool(told.error_message), list(told.brokers)) == (code, True, [])


async def pages(ask: Asker, *names: str, limit: int) -> list[list[tuple[str | None, int, list[int]]]]:
    """Name, code and partitions of the topics of each page."""
    found, cursor = [], None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        answer = await ask.call(TOPIC_PARTITIONS, 0, request)
        found.append(
            [(one.name, one.error_code, [part.partition_index for part in one.partitions]) for one in answer.topics]
        )
        if answer.next_cursor is None:
            return found
        cursor = Cursor(topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index)


async def test_partitions_are_told_page_by_page(ask: Asker, name: str) -> None:
    """E-9: each once, by name, wherever a page ends."""
    one, two = f"{name}-a", f"{name}-b"
    made = await ask.create(one, 3)
    await ask.create(two, 2)
    both = [(one, 0, [0, 1, 2]), (two, 0, [0, 1])]
    assert await pages(ask, two, one, one, limit=2_000) == [both]
    assert await pages(ask, one, two, limit=5) == [both]
    assert await pages(ask, one, two, limit=4) == [[both[0], (two, 0, [0])], [(two, 0, [1])]]
    assert await pages(ask, one, two, limit=3) == [[both[0]], [both[1]]]
    assert await pages(ask, one, limit=0) == [[(one, 0, [number])] for number in range(3)]
    assert await pages(ask, f"{name}-c", one, limit=9) == [[both[0], (f"{name}-c", 3, [])]]
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=one)])
    [told] = (await ask.call(TOPIC_PARTITIONS, 0, request)).topics
    assert told.topic_id == made.topic_id
    part, known = told.partitions[0], (await ask.metadata(one)).topics[0].partitions[0]
    assert (part.leader_id, part.leader_epoch) == (known.leader_id, known.leader_epoch)
    assert (part.eligible_leader_replicas, part.last_known_elr) == ((), ())


async def test_all_topics_are_told_if_none_is_named(ask: Asker, name: str) -> None:
    """E-9."""
    await ask.create(name, 2)
    answers = [page for page in await pages(ask, limit=1_000) for page in page]
    assert (name, 0, [0, 1]) in answers
    assert [one[0] for one in answers] == sorted(one[0] for one in answers)


async def test_a_cursor_that_leads_nowhere_is_refused(ask: Asker, name: str) -> None:
    await ask.create(name)
    for place in (Cursor(topic_name=name, partition_index=-1), Cursor(topic_name="elsewhere")):
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)], cursor=place)
        assert [one.error_code for one in (await ask.call(TOPIC_PARTITIONS, 0, request)).topics] == [42]


async def sizes(ask: Asker, topics: dict[str, list[int]] | None, version: int = 4) -> dict[tuple[str, int], int]:
    wanted = None
    if topics is not None:
        wanted = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
    answer = await ask.call(LOG_DIRS, version, DescribeLogDirsRequest(topics=wanted))
    [place] = answer.results
    assert (answer.error_code, place.error_code, place.log_dir) == (0, 0, "objects")
    return {
        (topic.name, part.partition_index): part.partition_size for topic in place.topics for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_partition_tells_the_bytes_of_its_batches(ask: Asker, name: str, version: int) -> None:
    """E-9, E-6."""
    await ask.create(name, 2)
    for _ in range(3):
        await ask.produce(name, batch(b"12345"))
    wanted = {(name, 0): 3 * len(batch(b"12345")), (name, 1): 0}
    assert await sizes(ask, {name: [0, 1, 7, -1], "nobody": [0]}, version) == wanted
    everything = await sizes(ask, None, version)
    assert {place: size for place, size in everything.items() if place[0] == name} == wanted
    assert await sizes(ask, {}, version) == {}


async def ends(ask: Asker, name: str, *asked: tuple[int, int, int], version: int = 4) -> list[tuple[int, int, int]]:
    """Code, epoch and end of each (partition, current epoch, epoch)."""
    wanted = [
        OffsetForLeaderPartition(partition=number, current_leader_epoch=current, leader_epoch=epoch)
        for number, current, epoch in asked
    ]
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=wanted)]
    )  # fmt: skip
    [topic] = (await ask.call(LEADER_EPOCH, version, request)).topics
    return [(one.error_code, one.leader_epoch, one.end_offset) for one in topic.partitions]


@pytest.mark.parametrize("version", range(2, 5))
async def test_the_present_epoch_ends_at_the_end(ask: Asker, name: str, version: int) -> None:
    """K-063."""
    await ask.create(name)
    await ask.produce(name, batch(b"1", b"2"))
    assert await ends(ask, name, (0, -1, 0), (0, 0, 0), version=version) == [(0, 0, 2), (0, 0, 2)]
    assert await ends(ask, name, (0, 1, 0), (0, -1, 1), (0, -1, -1), (7, -1, 0), version=version) == [
        (75, -1, -1), (0, -1, -1), (0, -1, -1), (3, -1, -1),
    ]  # fmt: skip
    assert await ends(ask, "nobody", (0, -1, 0), version=version) == [(3, -1, -1)]


async def test_partitions_tell_their_producers(ask: Asker, name: str) -> None:
    await ask.create(name, 2)
    first, second = await ask.producer_id(), await ask.producer_id()
    for producer, sequence in ((second, 0), (first, 0), (first, 2)):
        records = batch(b"1", b"2", producer_id=producer, producer_epoch=0, base_sequence=sequence)
        assert (await ask.produce(name, records)).error_code == 0
    topics = [
        describe_producers.TopicRequest(name=name, partition_indexes=[0, 1, 7]),
        describe_producers.TopicRequest(name="nobody", partition_indexes=[0]),
        describe_producers.TopicRequest(name="a/b", partition_indexes=[0]),
    ]
    answer = await ask.call(PRODUCERS, 0, describe_producers.DescribeProducersRequest(topics=topics))
    told = [[(one.error_code, len(one.active_producers)) for one in topic.partitions] for topic in answer.topics]
    assert told == [[(0, 2), (0, 0), (3, 0)], [(3, 0)], [(17, 0)]]
    states = answer.topics[0].partitions[0].active_producers
    assert [(one.producer_id, one.producer_epoch, one.last_sequence) for one in states] == [
        (first, 0, 3), (second, 0, 1),
    ]  # fmt: skip
    assert all(one.last_timestamp > 0 and one.current_txn_start_offset == -1 for one in states)
