"""Consumer groups (KIP-848): answers as Apache Kafka 4.3.1 gives them, recorded once."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from dray.groups.assignors import Subscriber, assign_range
from dray.machine.groups.masks import partitions_of
from dray.machine.names import TopicId
from dray.servers.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.servers.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest
from dray.servers.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.servers.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.servers.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dray.servers.kafka.messages.sync_group import SyncGroupRequest
from tests.golden.asking import OFFSET_COMMIT, OFFSET_FETCH, Asker

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
BEAT, DESCRIBE = 68, 69
RANGES = json.loads((Path(__file__).parent / "ranges.json").read_text())
LONG_S = 20.0


async def beat(ask: Asker, group: str, member: str = "m", epoch: int = 0, version: int = 1, **more):
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)
    return await ask.call(BEAT, version, request)


async def join(ask: Asker, group: str, *names: str, member: str = "m", **more):
    given = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_names": list(names)} | more
    return await beat(ask, group, member, **given)


async def settled(ask: Asker, group: str, *names: str, member: str = "m", **more):
    """A member that has its partitions."""
    told = await join(ask, group, *names, member=member, **more)
    async with asyncio.timeout(LONG_S):
        while told.assignment is None or not told.assignment.topic_partitions:
            assert told.error_code == 0, told
            told = await beat(ask, group, member, told.member_epoch, topic_partitions=[])
    return told


async def describe(ask: Asker, *groups: str):
    return (await ask.call(DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=list(groups)))).groups


async def test_a_first_join_by_names_ends_at_epoch_two(ask: Asker, name: str) -> None:
    await ask.create(name, 3)
    told = await settled(ask, name, name)
    assert (told.member_id, told.member_epoch, told.heartbeat_interval_ms) == ("m", 2, 5_000)
    [row] = told.assignment.topic_partitions
    assert row.partitions == (0, 1, 2)

    again = await beat(ask, name, epoch=2, topic_partitions=told.assignment.topic_partitions)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 2, None), "nothing changed"
    full = await beat(
        ask, name, epoch=2, topic_partitions=told.assignment.topic_partitions, rebalance_timeout_ms=60_000,
        subscribed_topic_names=[name],
    )  # fmt: skip
    assert full.assignment == told.assignment, "a full request is told all"


async def test_a_join_without_topics_is_told_an_empty_assignment_and_not_null(ask: Asker, name: str) -> None:
    """R-183."""
    told = await join(ask, name)
    assert (told.error_code, told.member_epoch, told.assignment.topic_partitions) == (0, 1, [])


async def test_an_unknown_pattern_leaves_the_epoch_at_one_and_is_told_nothing_yet(ask: Asker, name: str) -> None:
    """R-183."""
    await ask.create(name, 2)
    given = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_regex": f"{name}.*"}
    told = await beat(ask, name, **given)
    assert (told.error_code, told.member_epoch, told.assignment.topic_partitions) == (0, 1, [])
    async with asyncio.timeout(LONG_S):
        while told.assignment is None or not told.assignment.topic_partitions:
            told = await beat(ask, name, epoch=told.member_epoch, topic_partitions=[])
    assert [row.partitions for row in told.assignment.topic_partitions] == [(0, 1)]
    [group] = await describe(ask, name)
    assert (group.members[0].subscribed_topic_regex, group.members[0].subscribed_topic_names) == (f"{name}.*", [])


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"instance_id": ""}, 42),
        ({"rack_id": ""}, 42),
        ({"member": ""}, 42),
        ({"member": "", "version": 0, "epoch": 1}, 42),
        ({"member": "", "version": 0, "epoch": -1}, 42),
        ({"rebalance_timeout_ms": -1}, 42),
        ({"topic_partitions": None}, 42),
        ({"topic_partitions": [TopicPartitions(topic_id=bytes(15) + b"1", partitions=(0,))]}, 42),
        ({"subscribed_topic_names": None}, 42),
        ({"epoch": -2}, 42),
        ({"epoch": -3}, 42),
        ({"server_assignor": "sticky"}, 112),
        ({"subscribed_topic_regex": "("}, 128),
        ({"subscribed_topic_regex": r"(a)\1"}, 128),
        ({"epoch": 1}, 69),
        ({"epoch": -1}, 69),
        ({"epoch": -2, "instance_id": "i"}, 69),
        ({"server_assignor": "sticky", "rebalance_timeout_ms": -1}, 42),
    ],
)
async def test_what_makes_no_sense_is_refused_before_the_group_is_asked(
    ask: Asker, name: str, given: Mapping[str, object], code: int
) -> None:
    """R-182."""
    told = await join(ask, name, "t", **given)
    assert (told.error_code, told.assignment) == (code, None)
    assert [group.error_code for group in await describe(ask, name)] == [69], "no group was made"


async def test_a_group_without_a_name_is_refused(ask: Asker) -> None:
    assert (await join(ask, "", "t")).error_code == 42


async def test_version_zero_gives_an_id(ask: Asker, name: str) -> None:
    told = await join(ask, name, member="", version=0)
    assert told.error_code == 0
    assert len(told.member_id) >= 20


async def test_leaving_is_answered_with_the_epoch_that_was_sent(ask: Asker, name: str) -> None:
    await join(ask, name)
    await join(ask, name, member="s", instance_id="i")
    left = await beat(ask, name, epoch=-1)
    away = await beat(ask, name, "s", -2, instance_id="i")
    for told, epoch in ((left, -1), (away, -2)):
        assert (told.error_code, told.member_epoch, told.heartbeat_interval_ms, told.assignment) == (0, epoch, 0, None)
    assert (await beat(ask, name, epoch=-1)).error_code == 25
    assert (await beat(ask, name, "s", 1, instance_id="i")).error_code == 110
    assert (await beat(ask, name, "x", 1, instance_id="i")).error_code == 82
    assert (await beat(ask, name, "x", 1, instance_id="nobody")).error_code == 25
    assert (await join(ask, name, member="s2", instance_id="i")).error_code == 0
    assert (await join(ask, name, member="s3", instance_id="i")).error_code == 111


async def test_a_group_is_described_in_each_state(ask: Asker, name: str) -> None:
    """R-184."""
    await ask.create(name, 2)
    told = await settled(ask, name, name)
    [group] = await describe(ask, name)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 2, 2)
    assert group.assignor_name == "uniform"
    [member] = group.members
    assert (member.member_id, member.member_epoch, member.member_type) == ("m", 2, 1)
    assert (member.client_host, list(member.subscribed_topic_names)) == ("/127.0.0.1", [name])
    assert member.subscribed_topic_regex == ""
    for assignment in (member.assignment, member.target_assignment):
        [row] = assignment.topic_partitions
        assert (row.topic_id, row.topic_name, row.partitions) == (
            told.assignment.topic_partitions[0].topic_id, name, (0, 1),
        )  # fmt: skip
    await beat(ask, name, epoch=-1)
    [group] = await describe(ask, name)
    assert (group.group_state, group.group_epoch, list(group.members)) == ("Empty", 3, [])


@pytest.mark.slow
async def test_what_a_member_is_to_let_go_of_is_still_shown_as_its_own(ask: Asker, name: str) -> None:
    await ask.create(name, 2)
    first = await settled(ask, name, name)
    await join(ask, name, name, member="n")
    async with asyncio.timeout(LONG_S):
        told = await beat(ask, name, epoch=first.member_epoch)
        while told.assignment is None:
            told = await beat(ask, name, epoch=told.member_epoch)
    [row] = told.assignment.topic_partitions
    assert len(row.partitions) == 1
    [group] = await describe(ask, name)
    assert group.group_state == "Reconciling"
    shown = {member.member_id: member for member in group.members}
    assert [row.partitions for row in shown["m"].assignment.topic_partitions] == [(0, 1)]
    assert [len(row.partitions) for row in shown["m"].target_assignment.topic_partitions] == [1]
    assert list(shown["n"].assignment.topic_partitions) == []


async def test_groups_that_cannot_be_described_say_why(ask: Asker, name: str) -> None:
    empty, unknown = await describe(ask, "", name)
    assert (empty.error_code, unknown.error_code) == (24, 69)
    assert unknown.error_message == f"Group {name} not found."


def classic_join(group: str, member: str = ""):
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member,
        protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )  # fmt: skip


async def test_a_group_with_members_keeps_its_protocol(ask: Asker, name: str) -> None:
    """R-170."""
    await join(ask, name)
    refused = await ask.call(JOIN, 9, classic_join(name, "m"))
    assert (refused.error_code, refused.member_id) == (23, ""), "an id of one protocol is none of the other"
    assert (await ask.call(JOIN, 3, classic_join(name))).error_code == 23
    assert (
        await ask.call(HEARTBEAT, 3, HeartbeatRequest(group_id=name, generation_id=1, member_id="m"))
    ).error_code == 25
    assert (await ask.call(SYNC, 3, SyncGroupRequest(group_id=name, generation_id=1, member_id="m"))).error_code == 25
    other = f"{name}-classic"
    member = (await ask.call(JOIN, 3, classic_join(other))).member_id
    told = await join(ask, other)
    assert told.error_code == 69
    [group] = await describe(ask, other)
    assert (group.error_code, group.error_message) == (69, f"Group {other} is not a consumer group.")
    await ask.call(LEAVE, 3, LeaveGroupRequest(group_id=other, members=[MemberIdentity(member_id=member)]))
    assert (await join(ask, other)).error_code == 0, "an empty group converts"


async def test_a_member_may_leave_by_the_classic_request(ask: Asker, name: str) -> None:
    await join(ask, name)
    request = LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id="m")])
    told = await ask.call(LEAVE, 3, request)
    assert (told.error_code, [member.error_code for member in told.members]) == (0, [0])
    assert (await beat(ask, name, epoch=1)).error_code == 25


async def commit(ask: Asker, group: str, topic: str, epoch: int, member: str = "m", version: int = 9) -> int:
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=epoch, member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[
            OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        ])],
    )  # fmt: skip
    return (await ask.call(OFFSET_COMMIT, version, request)).topics[0].partitions[0].error_code


async def fetch(ask: Asker, group: str, topic: str, member: str | None, epoch: int) -> tuple[int, ...]:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    asked = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
    [told] = (await ask.call(OFFSET_FETCH, 9, OffsetFetchRequest(groups=[asked]))).groups
    return told.error_code, *(one.committed_offset for row in told.topics for one in row.partitions)


async def test_offsets_are_committed_and_fetched_by_epoch(ask: Asker, name: str) -> None:
    """R-185."""
    await ask.create(name, 1)
    assert await commit(ask, name, name, 3) == 69
    assert await commit(ask, name, name, 3, version=8) == 22
    await settled(ask, name, name)
    assert await commit(ask, name, name, 2) == 0
    assert await commit(ask, name, name, 2, version=8) == 35
    assert await commit(ask, name, name, 1) == 113
    assert await commit(ask, name, name, 3) == 113
    assert await commit(ask, name, name, -1) == 113
    assert await commit(ask, name, name, 2, member="x") == 25
    assert await commit(ask, name, name, -1, member="") == 25
    assert await fetch(ask, name, name, "m", 2) == (0, 5)
    assert await fetch(ask, name, name, None, -1) == (0, 5)
    assert (await fetch(ask, name, name, "m", 1))[0] == 113
    assert (await fetch(ask, name, name, "", -1))[0] == 25
    assert (await fetch(ask, name, name, "x", 2))[0] == 25
    await beat(ask, name, epoch=-1)
    assert await commit(ask, name, name, -1, member="") == 0


@pytest.mark.slow
async def test_new_partitions_reach_a_group_without_a_word_of_its_members(ask: Asker, name: str) -> None:
    """R-183: also a topic that is made after it was subscribed."""
    told = await join(ask, name, name)
    assert told.error_code == 0
    await ask.create(name, 1)
    async with asyncio.timeout(LONG_S):
        while told.assignment is None or not told.assignment.topic_partitions:
            told = await beat(ask, name, epoch=told.member_epoch, topic_partitions=[])
    assert [row.partitions for row in told.assignment.topic_partitions] == [(0,)]


@pytest.mark.parametrize("case", RANGES, ids=range(len(RANGES)))
def test_range_is_what_kafka_computed(case) -> None:
    """R-180: targets recorded from Kafka, with and without instance ids, for equal and other subscriptions."""
    names = sorted({topic for member in case["members"] for topic in member["topics"]})
    ids = {name: TopicId(name.encode().ljust(16, b".")) for name in names}
    members = [
        Subscriber(id=one["id"], instance=one["instance"], topics=frozenset(ids[topic] for topic in one["topics"]))
        for one in case["members"]
    ]
    target = assign_range(members, {ids[name]: int(name[1:]) for name in names})
    told = {
        member: {name: partitions_of(mine[ids[name]]) for name in names if ids[name] in mine}
        for member, mine in target.items()
    }
    assert told == case["target"]
