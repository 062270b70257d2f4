"""OffsetCommit, OffsetFetch and FindCoordinator, without members."""

from collections.abc import Sequence

from dray.servers.kafka.codec import Message
from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.servers.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.golden.asking import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH
from tests.golden.comparison.talking import Talk

Mark = tuple[int, int] | tuple[int, int, str | None] | tuple[int, int, str | None, int]
"""Partition, offset, and if they matter the metadata and the leader epoch."""


async def commit(
    talk: Talk, shape: str, group: str, *topics: tuple[str, Sequence[Mark]], version: int = 9, **options
) -> None:
    wanted = [OffsetCommitRequestTopic(name=name, partitions=[_mark(*one) for one in marks]) for name, marks in topics]
    request = OffsetCommitRequest(
        **{"group_id": group, "generation_id_or_member_epoch": -1, "topics": wanted} | options
    )
    await talk.ask(shape, OFFSET_COMMIT, version, request)


def _mark(partition: int, offset: int, metadata: str | None = "", epoch: int = -1) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
    )


async def look(
    talk: Talk, shape: str, group: str, *topics: tuple[str, list[int]], every: bool = False, version: int = 9
) -> None:
    await talk.ask(shape, OFFSET_FETCH, version, _fetch_of(group, *topics, every=every, version=version))


def _fetch_of(group: str, *topics: tuple[str, list[int]], every: bool = False, version: int = 9) -> OffsetFetchRequest:
    if version >= 8:
        many = [OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None if every else many)])
    one = [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics]
    return OffsetFetchRequest(group_id=group, topics=None if every else one)


def _is_without_offsets(answer: Message) -> bool:
    """Apache Kafka forgets the offsets of a deleted topic a moment after the topic."""
    assert isinstance(answer, OffsetFetchResponse)
    return all(
        part.committed_offset == -1 for group in answer.groups for topic in group.topics for part in topic.partitions
    )


async def offsets_in_every_version(talk: Talk) -> None:
    topic, group = await talk.topic(2), await talk.group()
    for version in range(2, 10):
        await commit(talk, f"commit in version {version}", group, (topic, [(0, version)]), version=version)
    for version in range(1, 10):
        await look(talk, f"fetch in version {version}", group, (topic, [0, 1]), version=version)
    for version in (2, 5, 7, 8):
        await look(talk, f"fetch all in version {version}", group, every=True, version=version)


async def offsets_committed(talk: Talk) -> None:
    topic, group, nowhere = await talk.topic(3), await talk.group(), talk.name("nowhere")
    mixed = [(0, 5, "meta", 0), (1, 7, None), (9, 1)]
    await commit(talk, "good and bad", group, (topic, mixed), (nowhere, [(0, 1)]))
    await look(talk, "what was good and bad", group, (topic, [0, 1, 2, 9]), (nowhere, [0]))
    for shape, metadata in (
        ("4,096 letters", "x" * 4096),
        ("4,097 letters", "x" * 4097),
        ("2,049 letters of two bytes", "é" * 2049),
        ("4,096 letters of two bytes", "é" * 4096),
        ("4,096 letters of three bytes", "€" * 4096),
        ("2,048 letters of four bytes", "😀" * 2048),
        ("2,049 letters of four bytes", "😀" * 2049),
    ):
        await commit(talk, f"metadata of {shape}", group, (topic, [(2, 3, metadata)]))
    for offset in (-1, -5, 2**63 - 1):
        await commit(talk, f"offset {offset}", group, (topic, [(2, offset)]))
        await look(talk, f"after offset {offset}", group, (topic, [2]))
    await commit(talk, "a partition twice", group, (topic, [(0, 9), (0, 8)]))
    await look(talk, "after a partition twice", group, (topic, [0]))
    await look(talk, "a partition asked twice", group, (topic, [0, 0]))
    await commit(talk, "no topics", group)
    await commit(talk, "no partitions", group, (topic, []))
    await look(talk, "no topics asked", group)


async def offsets_of_strangers(talk: Talk) -> None:
    topic, group, other = await talk.topic(), await talk.group(), await talk.group()
    await look(talk, "an unknown group", other, (topic, [0]))
    await look(talk, "all of an unknown group", other, every=True)
    for version in (2, 5, 8, 9):
        member = {"generation_id_or_member_epoch": 3, "member_id": "m"}
        await commit(talk, f"a generation in version {version}", group, (topic, [(0, 1)]), version=version, **member)
    await commit(talk, "a member", group, (topic, [(0, 1)]), member_id="m")
    await commit(talk, "an instance", group, (topic, [(0, 1)]), group_instance_id="i")
    await commit(talk, "nobody", group, (topic, [(0, 1)]))
    for version in (8, 9):
        member = {"generation_id_or_member_epoch": 3, "member_id": "m"}
        await commit(
            talk, f"a generation after it in version {version}", group, (topic, [(0, 1)]), version=version, **member
        )
    await commit(talk, "the empty group", "", (topic, [(0, 1)]))
    await look(talk, "of the empty group", "", (topic, [0]))


async def offsets_after_a_topic_is_made_again(talk: Talk) -> None:
    topic, group = await talk.topic(), await talk.group()
    await commit(talk, "before", group, (topic, [(0, 5)]))
    await talk.delete(topic)
    await talk.until("while it is gone", OFFSET_FETCH, 9, _fetch_of(group, (topic, [0])), _is_without_offsets)
    await commit(talk, "while it is gone, again", group, (topic, [(0, 6)]))
    await talk.topic(name=topic)
    await look(talk, "of its successor", group, (topic, [0]))


async def coordinators(talk: Talk) -> None:
    for version in range(4):
        await talk.ask(f"version {version}", FIND_COORDINATOR, version, FindCoordinatorRequest(key="g"))
    for shape, version, kind, keys in (
        ("several groups", 4, 0, ["a", "", "a"]),
        ("no groups", 4, 0, []),
        ("a kind that is none", 4, 9, ["a"]),
        ("a transaction", 4, 1, ["t"]),
        ("a share group", 6, 2, ["a"]),
        ("version 6", 6, 0, ["g"]),
    ):
        await talk.ask(shape, FIND_COORDINATOR, version, FindCoordinatorRequest(key_type=kind, coordinator_keys=keys))


SCENES = (
    offsets_in_every_version,
    offsets_committed,
    offsets_of_strangers,
    offsets_after_a_topic_is_made_again,
    coordinators,
)
