"""Groups as an administrator sees them: listed, described, dropped, their offsets deleted.

Every answer comes after a sync, at any broker. Only the list is told in parts:
each broker tells of the groups that clients are sent to it for, since clients
ask all brokers and put the lists together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dray.groups.errors import BadGroupId, GroupSaysNo
from dray.groups.offsets import Partition, check_group
from dray.groups.placement import domain_of_group
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.codes import Denied, GroupCode, GroupDropped
from dray.machine.groups.commands import DropGroup
from dray.machine.groups.group import Group
from dray.machine.groups.roster import CONSUMER, Stable
from dray.machine.offsets import ExpireOffsets, OffsetKey, OffsetReason
from dray.machine.verdict import Refused, Why
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.topics.service import TopicService

CLASSIC: Final = "classic"
TRIES: Final = 3
EMPTY: Final = "Empty"


class DeletionCode(Enum):
    """What became of one partition of a deletion of offsets."""

    DELETED = "there is none any more"
    UNKNOWN_PARTITION = "there is no such topic or partition"
    SUBSCRIBED = "members of the group read the topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in a list."""

    group: str
    protocol_type: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member of a classic group."""

    member: str
    instance: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A classic group, or one with offsets only."""

    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class GroupAdmin:
    """What handlers of ListGroups, DescribeGroups, DeleteGroups and OffsetDelete ask."""

    def __init__(self, *, domains: Domains, topics: TopicService) -> None:
        self._domains = domains
        self._topics = topics

    async def list(
        self, is_told: Callable[[str], bool], states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> list[ListedGroup]:
        """The groups of which whoever asks is told here, of these states and kinds; none: of all."""
        wanted_states = {state.casefold() for state in states}
        wanted_kinds = {kind.casefold() for kind in kinds}
        listed = []
        for _, replica in self._domains:
            await replica.sync()
            for name in replica.machine.groups.names():
                one = _listed(name, replica.machine.groups.find(name))
                fits_state = not wanted_states or one.state.casefold() in wanted_states
                fits_kind = not wanted_kinds or one.kind in wanted_kinds
                if fits_state and fits_kind and is_told(name):
                    listed.append(one)
        return listed

    async def describe(self, name: str) -> DescribedGroup | None:
        """A classic group; None: there is none of that name."""
        replica = self._of(name)
        await replica.sync()
        group = replica.machine.groups.find(name)
        if group is None:
            return DescribedGroup(state=EMPTY) if replica.machine.offsets.has(name) else None
        return _described(group) if isinstance(group, ClassicGroup) else None

    async def drop(self, name: str) -> None:
        """Forget a group without members, and its offsets.

        Raises:
            GroupSaysNo: it has members, or there is no such group.
            Unavailable, Unknown: repeat it.
        """
        check_group(name)
        match await self._of(name).propose(DropGroup(group=name)):
            case [GroupDropped()]:
                return
            case [Denied(code=code)]:
                raise GroupSaysNo(code, name)
            case verdicts:
                raise GroupSaysNo(GroupCode.MOVED, f"{name[:100]} {verdicts}")

    async def delete_offsets(self, name: str, partitions: Sequence[Partition]) -> dict[Partition, DeletionCode]:
        """Forget some offsets of a group; one code for each partition.

        Raises:
            BadGroupId, GroupSaysNo: there is no such group, or nobody can tell what its members read.
            Unavailable, Unknown: repeat it.
        """
        check_group(name)
        if not name:
            raise BadGroupId("the group has no name")
        for _ in range(TRIES):
            codes = await self._delete_offsets(name, partitions)
            if codes is not None:
                return codes
        raise GroupSaysNo(GroupCode.MOVED, name)

    async def _delete_offsets(self, name: str, partitions: Sequence[Partition]) -> dict[Partition, DeletionCode] | None:
        """None: the group moved on while it was looked at."""
        replica = self._of(name)
        await replica.sync()
        await self._domains.catalog.sync()
        groups, offsets = replica.machine.groups, replica.machine.offsets
        group = groups.find(name)
        if group is None and not offsets.has(name):
            raise GroupSaysNo(GroupCode.UNKNOWN_GROUP, name)
        if isinstance(group, ClassicGroup) and not group.is_empty and group.protocol_type != CONSUMER:
            raise GroupSaysNo(GroupCode.NOT_EMPTY, name)
        revision, rows = groups.revision(name), []
        codes: dict[Partition, DeletionCode] = {}
        for partition in partitions:
            topic = self._topics.peek(partition.topic)
            if topic is None or not 0 <= partition.number < topic.visible:
                codes[partition] = DeletionCode.UNKNOWN_PARTITION
            elif group is not None and group.subscribes(partition.topic):
                codes[partition] = DeletionCode.SUBSCRIBED
            else:
                codes[partition] = DeletionCode.DELETED
                found = offsets.find(name, topic.id, partition.number)
                if found is not None:
                    rows.append(
                        OffsetKey(
                            topic_id=topic.id, partition=partition.number, commit_position=found.commit_position
                        )
                    )  # fmt: skip
        if rows:
            command = ExpireOffsets(group=name, reason=OffsetReason.DELETED, rows=tuple(rows), revision=revision)
            match await replica.propose(command):
                case [Refused(why=Why.STALE)]:
                    return None
        return codes

    def _of(self, name: str) -> Replica:
        return self._domains[domain_of_group(name, self._domains.catalog.machine.head.group_domains)]


def _listed(name: str, group: Group | None) -> ListedGroup:
    if isinstance(group, ClassicGroup):
        return ListedGroup(
            group=name, protocol_type=group.protocol_type, state=group.state_name, kind=CLASSIC
        )  # fmt: skip
    if group is None:
        return ListedGroup(group=name, protocol_type="", state=EMPTY, kind=CLASSIC)
    return ListedGroup(group=name, protocol_type=CONSUMER, state=group.state_name, kind=group.kind)


def _described(group: ClassicGroup) -> DescribedGroup:
    stable = isinstance(group.state, Stable)
    return DescribedGroup(
        state=group.state_name,
        protocol_type=group.protocol_type,
        protocol=group.protocol or "" if stable else "",
        members=tuple(
            DescribedMember(
                member=one.id, instance=one.instance, client_id=one.client_id, client_host=one.client_host,
                metadata=one.metadata(group.protocol) if stable else b"", assignment=one.assignment,
            )
            for one in group.members.values()
        ),
    )  # fmt: skip
