"""Groups, as any Kafka broker tells them: who is in them, what they have read, and how far behind they are."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dray.kafka_client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from dray.kafka_client.errors import GroupInUse, NoSuchGroup, check
from dray.kafka_client.link import BrokerLink
from dray.servers.kafka.codec import Malformed, decode
from dray.servers.kafka.codes import ErrorCode
from dray.servers.kafka.messages.consumer_group_describe import SCHEMA as CONSUMER_GROUP_DESCRIBE
from dray.servers.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.servers.kafka.messages.consumer_protocol_assignment import CODEC as ASSIGNMENT
from dray.servers.kafka.messages.delete_groups import SCHEMA as DELETE_GROUPS
from dray.servers.kafka.messages.delete_groups import DeleteGroupsRequest
from dray.servers.kafka.messages.describe_groups import SCHEMA as DESCRIBE_GROUPS
from dray.servers.kafka.messages.describe_groups import DescribeGroupsRequest
from dray.servers.kafka.messages.list_groups import SCHEMA as LIST_GROUPS
from dray.servers.kafka.messages.list_groups import ListGroupsRequest
from dray.servers.kafka.messages.offset_commit import SCHEMA as OFFSET_COMMIT
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.servers.kafka.messages.offset_fetch import SCHEMA as OFFSET_FETCH
from dray.servers.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

IDLE: Final = ("Empty", "Dead")
"""States of a group that has no members."""
_BY_NAME: Final = 9
"""The newest version of OffsetFetch and OffsetCommit that names topics, not their ids."""
_VERSION: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """A group in a list."""

    group: str
    kind: str
    """classic or consumer; nothing where an old broker does not tell."""
    state: str
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A client in a group, and what it reads."""

    member: str
    instance: str | None
    client: str
    host: str
    owns: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a group has read one partition."""

    place: TopicPartition
    committed: int | None
    start: int | None
    end: int | None
    """None: the topic is gone."""

    @property
    def records(self) -> int | None:
        """What is still to be read; offsets that retention took are not."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - max(self.committed, self.start or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group with all that is known about it."""

    group: str
    kind: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]
    lags: tuple[Lag, ...]


async def list_groups(cluster: Cluster, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[GroupLine]:
    """The groups of all brokers, by name."""
    found: dict[str, GroupLine] = {}
    for connection in await cluster.all():
        version = connection.version_of(LIST_GROUPS, most=5)
        # An old broker has no filters, and would not take them.
        request = ListGroupsRequest(
            states_filter=states if version >= 4 else (), types_filter=kinds if version >= 5 else ()
        )
        answer = await connection.ask(LIST_GROUPS, request, most=5)
        check(answer.error_code, address=connection.address)
        for one in answer.groups:
            found[one.group_id] = GroupLine(
                group=one.group_id, kind=one.group_type.lower(), state=one.group_state, protocol=one.protocol_type
            )
    return [found[name] for name in sorted(found)]


async def describe_group(cluster: Cluster, group: str) -> GroupView:
    """State, members and lag.

    Raises:
        NoSuchGroup: it has neither members nor offsets.
    """
    connection = await cluster.coordinator(group)
    view = await _consumer_group(connection, group) or await _classic_group(connection, group)
    committed = await _committed(connection, group)
    if view.state == "Dead" and not committed:
        raise NoSuchGroup("there is no such group", group=group)
    owned = [place for member in view.members for place in member.owns]
    lags = await _lags(cluster, committed, owned)
    return GroupView(
        group=group, kind=view.kind, state=view.state, assignor=view.assignor, members=view.members, lags=lags
    )


async def move_offsets(cluster: Cluster, group: str, targets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members.

    Raises:
        GroupInUse: it has some; nothing was changed.
        LostAnswer: it may have happened; to repeat it does no harm.
    """
    connection = await cluster.coordinator(group)
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for place, offset in sorted(targets.items()):
        row = OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
        topics.setdefault(place.topic, []).append(row)
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()]
    )
    answer = await connection.ask(OFFSET_COMMIT, request, most=_BY_NAME, changes=True)
    for topic in answer.topics:
        for one in topic.partitions:
            check(one.error_code, group=group, topic=topic.name, partition=one.partition_index)


async def delete_group(cluster: Cluster, group: str) -> None:
    """Drop a group without members, with its offsets.

    Raises:
        NoSuchGroup: there is none.
        GroupInUse: it has members; nothing was changed.
        LostAnswer: it may have happened.
    """
    connection = await cluster.coordinator(group)
    request = DeleteGroupsRequest(groups_names=[group])
    answer = await connection.ask(DELETE_GROUPS, request, most=2, changes=True)
    for one in answer.results:
        check(one.error_code, group=group)


def refuse_members(view: GroupView) -> None:
    """Raise if a change of offsets would meet members."""
    if view.state not in IDLE:
        raise GroupInUse("the group has members", group=view.group, state=view.state, members=len(view.members))


async def _consumer_group(connection: BrokerLink, group: str) -> GroupView | None:
    """A group of the consumer protocol; None if it is none, or the broker has none."""
    if not connection.serves(CONSUMER_GROUP_DESCRIBE):
        return None
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    (told,) = (await connection.ask(CONSUMER_GROUP_DESCRIBE, request, most=1)).groups
    if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check(told.error_code, group=group)
    members = tuple(
        GroupMember(
            member=one.member_id,
            instance=one.instance_id,
            client=one.client_id,
            host=one.client_host,
            owns=tuple(
                TopicPartition(topic.topic_name, partition)
                for topic in one.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for one in told.members
    )
    return GroupView(
        group=group, kind="consumer", state=told.group_state, assignor=told.assignor_name, members=members, lags=()
    )


async def _classic_group(connection: BrokerLink, group: str) -> GroupView:
    request = DescribeGroupsRequest(groups=[group])
    (told,) = (await connection.ask(DESCRIBE_GROUPS, request, most=6)).groups
    if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:  # since version 6; before, a dead group is told
        return GroupView(group=group, kind="classic", state="Dead", assignor="", members=(), lags=())
    check(told.error_code, group=group)
    members = tuple(
        GroupMember(
            member=one.member_id,
            instance=one.group_instance_id,
            client=one.client_id,
            host=one.client_host,
            owns=_assigned(told.protocol_type, bytes(one.member_assignment)),
        )
        for one in told.members
    )
    return GroupView(
        group=group, kind="classic", state=told.group_state, assignor=told.protocol_data, members=members, lags=()
    )


def _assigned(protocol: str, assignment: bytes) -> tuple[TopicPartition, ...]:
    """What a member of a classic group owns; nothing where only its members know the form."""
    if protocol != "consumer" or len(assignment) < _VERSION.size:
        return ()
    (version,) = _VERSION.unpack_from(assignment)
    try:
        told, _, _ = decode(ASSIGNMENT.read[min(max(version, 0), max(ASSIGNMENT.read))], memoryview(assignment), 2)
    except Malformed:
        return ()
    return tuple(TopicPartition(one.topic, number) for one in told.assigned_partitions for number in one.partitions)


async def _committed(connection: BrokerLink, group: str) -> dict[TopicPartition, int]:
    if connection.version_of(OFFSET_FETCH, most=_BY_NAME) < 8:
        single = await connection.ask(OFFSET_FETCH, OffsetFetchRequest(group_id=group, topics=None), most=7)
        check(single.error_code, group=group)
        rows = [(topic.name, one.partition_index, one.committed_offset, one.error_code)
                for topic in single.topics for one in topic.partitions]  # fmt: skip
    else:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        (told,) = (await connection.ask(OFFSET_FETCH, request, most=_BY_NAME)).groups
        check(told.error_code, group=group)
        rows = [(topic.name, one.partition_index, one.committed_offset, one.error_code)
                for topic in told.topics for one in topic.partitions]  # fmt: skip
    found = {}
    for topic, partition, offset, code in rows:
        check(code, group=group, topic=topic, partition=partition)
        if offset >= 0:
            found[TopicPartition(topic, partition)] = offset
    return found


async def _lags(
    cluster: Cluster, committed: Mapping[TopicPartition, int], owned: Iterable[TopicPartition]
) -> tuple[Lag, ...]:
    places = sorted({*committed, *owned})
    there = await cluster.partitions(place.topic for place in places)
    known = [place for place in places if place.partition in there.get(place.topic, ())]
    starts = await cluster.offsets_at(dict.fromkeys(known, EARLIEST))
    ends = await cluster.offsets_at(dict.fromkeys(known, LATEST))
    return tuple(
        Lag(place=place, committed=committed.get(place), start=starts.get(place), end=ends.get(place))
        for place in places
    )
