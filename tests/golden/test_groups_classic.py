"""Classic groups on the bare protocol: what Kafka 4.3 was seen to answer, field by field."""

import asyncio

import pytest

from dray.servers.kafka.messages.delete_groups import DeleteGroupsRequest
from dray.servers.kafka.messages.describe_groups import DescribeGroupsRequest
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest
from dray.servers.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.servers.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.servers.kafka.messages.list_groups import ListGroupsRequest
from dray.servers.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from dray.servers.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from dray.testing.broker import TestBroker
from tests.golden.asking import Asker
from tests.golden.test_offsets import commit

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, OFFSET_DELETE = 11, 12, 13, 14, 15, 16, 42, 47


def joining(group: str, member: str = "", **fields) -> JoinGroupRequest:
    given = {
        "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    } | fields  # fmt: skip
    return JoinGroupRequest(group_id=group, member_id=member, **given)


async def join(ask: Asker, group: str, member: str = "", version: int = 9, **fields):
    """Joined, by way of the id that newer versions must ask for first."""
    answer = await ask.call(JOIN, version, joining(group, member, **fields))
    if answer.error_code == 79:
        answer = await ask.call(JOIN, version, joining(group, answer.member_id, **fields))
    return answer


async def sync(ask: Asker, group: str, joined, assignment: bytes = b"work", version: int = 5, **fields):
    given = {"protocol_type": "consumer", "protocol_name": "range"} | fields
    request = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)], **given,
    )  # fmt: skip
    return await ask.call(SYNC, version, request)


async def beat(ask: Asker, group: str, member: str, generation: int, version: int = 4, **fields) -> int:
    request = HeartbeatRequest(group_id=group, member_id=member, generation_id=generation, **fields)
    return (await ask.call(HEARTBEAT, version, request)).error_code


async def describe(ask: Asker, group: str, version: int = 6):
    [found] = (await ask.call(DESCRIBE, version, DescribeGroupsRequest(groups=[group]))).groups
    return found


async def stable(ask: Asker, group: str):
    joined = await join(ask, group)
    assert (await sync(ask, group, joined)).error_code == 0
    return joined


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_in_every_version(ask: Asker, name: str, version: int) -> None:
    """R-079, R-173: from 4 on it is given its id first; skip_assignment and the type come later."""
    first = await ask.call(JOIN, version, joining(name))
    if version >= 4:
        assert (first.error_code, first.generation_id, first.leader, first.members) == (79, -1, "", [])
        assert first.member_id
        assert first.protocol_name == (None if version >= 7 else "")
        first = await ask.call(JOIN, version, joining(name, first.member_id))
    assert (first.error_code, first.generation_id, first.protocol_name) == (0, 1, "range")
    assert first.leader == first.member_id
    assert first.protocol_type == ("consumer" if version >= 7 else None)
    [told] = first.members
    assert (told.member_id, bytes(told.metadata)) == (first.member_id, b"meta")


@pytest.mark.parametrize("version", range(6))
async def test_an_assignment_is_told_in_every_version(ask: Asker, name: str, version: int) -> None:
    """R-079, R-174, R-175"""
    joined = await join(ask, name)
    answer = await sync(ask, name, joined, version=version)
    assert (answer.error_code, bytes(answer.assignment)) == (0, b"work")
    assert answer.protocol_name == ("range" if version >= 5 else None)
    for beating in range(5):
        assert await beat(ask, name, joined.member_id, 1, version=beating) == 0


async def test_the_errors_of_a_join_in_their_order(ask: Asker, name: str) -> None:
    """R-173"""
    for code, request in (
        (24, joining("", session_timeout_ms=1)),
        (26, joining(name, session_timeout_ms=5_999)),
        (26, joining(name, session_timeout_ms=1_800_001)),
        (23, joining(name, protocol_type="")),
        (23, joining(name, protocols=[])),
        (25, joining(name, "nobody")),
    ):
        answer = await ask.call(JOIN, 9, request)
        assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (code, -1, "", [])
        assert (answer.member_id, answer.protocol_type, answer.protocol_name) == (request.member_id, None, None)
    await stable(ask, name)
    other = JoinGroupRequestProtocol(name="other", metadata=b"")
    for fields in ({"protocol_type": "connect"}, {"protocols": [other]}):
        assert (await ask.call(JOIN, 9, joining(name, **fields))).error_code == 23


async def test_the_errors_of_a_sync_and_a_heartbeat_in_their_order(ask: Asker, name: str) -> None:
    """R-174, R-175"""
    joined = await join(ask, name)
    stranger = SyncGroupRequest(
        group_id=name, generation_id=1, member_id="x", protocol_type="consumer", protocol_name="range"
    )
    assert (await ask.call(SYNC, 5, stranger)).error_code == 25
    assert (await sync(ask, "", joined)).error_code == 24
    assert (await sync(ask, name, joined, protocol_type=None)).error_code == 23
    assert (await sync(ask, "", joined, protocol_name=None)).error_code == 23, "before the group is looked at"
    assert (await sync(ask, name, joined, protocol_name="other")).error_code == 23
    assert (await sync(ask, name, joined, group_instance_id="i")).error_code == 25
    later = SyncGroupRequest(
        group_id=name, generation_id=2, member_id=joined.member_id, protocol_type="consumer", protocol_name="range"
    )
    assert (await ask.call(SYNC, 5, later)).error_code == 22
    assert await beat(ask, "", joined.member_id, 1) == 24
    assert await beat(ask, name, "x", 7) == 25
    assert await beat(ask, name, joined.member_id, 7) == 22
    assert await beat(ask, name, joined.member_id, 1) == 0, "between join and sync too"


async def test_who_must_join_again_is_told_so_and_may_still_commit(dray: TestBroker, ask: Asker, name: str) -> None:
    """R-174, R-175, R-185, K-076: 27 to a heartbeat and a sync, and no error to the commit of what was done."""
    await ask.create(name, 1)
    joined = await stable(ask, name)
    mine = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    async with Asker(dray.bootstrap) as other:
        coming = asyncio.create_task(join(other, name))
        while await beat(ask, name, joined.member_id, 1) == 0:
            await asyncio.sleep(0.01)
        assert await beat(ask, name, joined.member_id, 1) == 27
        assert (await sync(ask, name, joined)).error_code == 27
        assert await commit(ask, name, name, {0: 5}, **mine) == [0]
        again = await ask.call(JOIN, 9, joining(name, joined.member_id))
        newcomer = await coming
        assert (again.generation_id, newcomer.generation_id) == (2, 2)
        assert sorted(len(one.members) for one in (again, newcomer)) == [0, 2]
        assert await commit(ask, name, name, {0: 6}, **mine) == [22]
        now = {"generation_id_or_member_epoch": 2, "member_id": joined.member_id}
        assert await commit(ask, name, name, {0: 6}, **now) == [27], "the generation has no assignment yet"


@pytest.mark.parametrize(("version", "missing"), [(8, 22), (9, 69)])
async def test_the_errors_of_a_commit(ask: Asker, name: str, version: int, missing: int) -> None:
    """R-185, R-186"""
    await ask.create(name, 1)
    someone = {"generation_id_or_member_epoch": 1, "member_id": "m"}
    assert await commit(ask, name, name, {0: 1}, version=version, **someone) == [missing]
    joined = await stable(ask, name)
    for code, fields in (
        (25, {}), (25, someone), (22, {"generation_id_or_member_epoch": 2, "member_id": joined.member_id}),
        (0, {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}),
    ):  # fmt: skip
        assert await commit(ask, name, name, {0: 1}, version=version, **fields) == [code]


async def test_a_static_member_that_starts_again_keeps_its_work(ask: Asker, name: str) -> None:
    """R-176: version 9 tells a leader to skip its assignment; below it the answer names the old leader."""
    first = await ask.call(JOIN, 9, joining(name, group_instance_id="i"))
    assert (first.error_code, first.generation_id) == (0, 1)
    assert first.member_id.startswith("i-")
    assert (await sync(ask, name, first, group_instance_id="i")).error_code == 0
    second = await ask.call(JOIN, 9, joining(name, group_instance_id="i"))
    assert (second.error_code, second.generation_id, second.skip_assignment) == (0, 1, True)
    assert (second.leader, len(second.members)) == (second.member_id, 1)
    third = await ask.call(JOIN, 5, joining(name, group_instance_id="i"))
    assert (third.error_code, third.generation_id, third.leader, third.members) == (0, 1, second.member_id, [])
    assert bytes((await sync(ask, name, third, group_instance_id="i")).assignment) == b"work"
    assert await beat(ask, name, first.member_id, 1, group_instance_id="i") == 82
    assert (await ask.call(JOIN, 9, joining(name, first.member_id, group_instance_id="i"))).error_code == 82


@pytest.mark.parametrize("version", range(6))
async def test_members_leave_in_every_version(ask: Asker, name: str, version: int) -> None:
    """R-176"""
    joined = await stable(ask, name)
    if version < 3:
        for member, code in (("x", 25), (joined.member_id, 0)):
            answer = await ask.call(LEAVE, version, LeaveGroupRequest(group_id=name, member_id=member))
            assert answer.error_code == code
    else:
        members = [MemberIdentity(member_id="x"), MemberIdentity(member_id=joined.member_id)]
        answer = await ask.call(LEAVE, version, LeaveGroupRequest(group_id=name, members=members))
        assert (answer.error_code, [one.error_code for one in answer.members]) == (0, [25, 0])
    assert (await describe(ask, name)).group_state == "Empty"
    assert (await ask.call(LEAVE, version, LeaveGroupRequest(group_id=""))).error_code == 24


async def test_an_operator_takes_out_a_static_member_by_its_instance(ask: Asker, name: str) -> None:
    """R-176"""
    await ask.call(JOIN, 9, joining(name, group_instance_id="i"))
    members = [MemberIdentity(member_id="", group_instance_id=instance) for instance in ("i", "j")]
    answer = await ask.call(LEAVE, 5, LeaveGroupRequest(group_id=name, members=members))
    assert [(one.group_instance_id, one.error_code) for one in answer.members] == [("i", 0), ("j", 25)]


async def test_a_group_is_described_in_each_of_its_states(ask: Asker, name: str) -> None:
    """R-178: protocol and metadata only when it is stable, the last assignment always."""
    unknown = await describe(ask, name)
    assert (unknown.error_code, unknown.group_state) == (69, "Dead")
    assert unknown.error_message
    old = await describe(ask, name, version=5)
    assert (old.error_code, old.group_state) == (0, "Dead")
    nameless = [await describe(ask, "", version=version) for version in (5, 6)]
    assert [(one.error_code, one.group_state) for one in nameless] == [(0, "Dead"), (69, "Dead")]
    joined = await join(ask, name)
    completing = await describe(ask, name)
    assert (completing.group_state, completing.protocol_type, completing.protocol_data) == (
        "CompletingRebalance", "consumer", "",
    )  # fmt: skip
    assert [bytes(one.member_metadata) for one in completing.members] == [b""]
    await sync(ask, name, joined)
    for version in range(7):
        found = await describe(ask, name, version=version)
        assert (found.group_state, found.protocol_data) == ("Stable", "range")
        [one] = found.members
        assert (one.member_id, one.client_host) == (joined.member_id, "/127.0.0.1")
        assert (bytes(one.member_metadata), bytes(one.member_assignment)) == (b"meta", b"work")


async def test_groups_are_listed_by_state_and_type(ask: Asker, name: str) -> None:
    """R-178: words are compared without case; unknown ones fit nothing."""
    await ask.create(name, 1)
    await stable(ask, f"{name}-members")
    assert await commit(ask, f"{name}-simple", name, {0: 1}) == [0]

    async def listed(version: int = 5, **filters):
        found = (await ask.call(LIST, version, ListGroupsRequest(**filters))).groups
        return {
            one.group_id: (one.protocol_type, one.group_state, one.group_type)
            for one in found
            if one.group_id.startswith(name)
        }

    members, simple = ("consumer", "Stable", "classic"), ("", "Empty", "classic")
    assert await listed() == {f"{name}-members": members, f"{name}-simple": simple}
    assert await listed(states_filter=["STABLE"]) == {f"{name}-members": members}
    assert await listed(states_filter=["nonsense"]) == {}
    assert await listed(types_filter=["Classic"], states_filter=["empty"]) == {f"{name}-simple": simple}
    assert await listed(types_filter=["consumer"]) == {}
    for version in range(5):
        assert set(await listed(version)) == {f"{name}-members", f"{name}-simple"}


async def test_a_group_may_have_any_name(ask: Asker, name: str) -> None:
    """R-167"""
    groups = [f"{name}{more}" for more in ("/", "%2F", "/../x", " ", "ü", "~", "x" * 300)]
    for group in groups:
        assert (await stable(ask, group)).generation_id == 1
    listed = (await ask.call(LIST, 5, ListGroupsRequest())).groups
    assert sorted(one.group_id for one in listed if one.group_id in groups) == sorted(groups)


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted_when_they_are_empty(ask: Asker, name: str, version: int) -> None:
    """R-178: a name is answered once; the empty name is a group if it has offsets."""
    joined = await stable(ask, name)

    async def delete(*names: str):
        answer = await ask.call(DELETE, version, DeleteGroupsRequest(groups_names=names))
        return [(one.group_id, one.error_code) for one in answer.results]

    assert await delete(name, name, f"{name}-no") == [(name, 68), (f"{name}-no", 69)]
    await ask.create(name)
    assert await commit(ask, "", name, {0: 1}) == [0]
    assert [await delete(""), await delete("")] == [[("", 0)], [("", 69)]]
    await ask.call(LEAVE, 0, LeaveGroupRequest(group_id=name, member_id=joined.member_id))
    assert await delete(name) == [(name, 0)]
    assert (await describe(ask, name)).group_state == "Dead"


async def test_offsets_are_deleted_unless_members_read_their_topic(ask: Asker, name: str) -> None:
    """R-188"""
    await ask.create(name, 2)
    await ask.create(f"{name}-other", 1)
    for topic in (name, f"{name}-other"):
        assert await commit(ask, name, topic, {0: 1}) == [0]

    async def delete(group: str, topic: str, *partitions: int):
        parts = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
        request = OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=parts)]
        )  # fmt: skip
        answer = await ask.call(OFFSET_DELETE, 0, request)
        return answer.error_code or [one.error_code for topic in answer.topics for one in topic.partitions]

    assert await delete("", name, 0) == 24
    assert await delete(f"{name}-no", name, 0) == 69
    subscription = b"\x00\x00" + b"\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name.encode() + b"\xff" * 4
    joined = await join(ask, name, protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)])
    await sync(ask, name, joined)
    assert await delete(name, name, 0, 5) == [86, 3]
    assert await delete(name, f"{name}-other", 0) == [0]
    assert await delete(name, f"{name}-other", 0) == [0], "also where there is none"
