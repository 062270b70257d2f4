"""What a call is told of a classic group, from its state alone.

A parked call looks here whenever the group changes, at any broker, and so
does `apply`: whoever asks is told the same.

Invariants
    G9  A commit is taken only from the generation, or from an epoch at or
        after the partition's own.
"""

from dray.machine.groups.codes import GroupCode, Joined, JoinedMember
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.groups.roster import ClassicMember, Completing, Empty, Preparing, Roster, Stable


def find(group: Roster, member: MemberId, instance: str | None) -> ClassicMember | GroupCode:
    """The member that a caller says it is."""
    if instance is not None:
        holder = group.statics.get(InstanceId(instance))
        if holder is None:
            return GroupCode.UNKNOWN_MEMBER
        if holder != member:
            return GroupCode.FENCED_INSTANCE
    return group.members.get(member, GroupCode.UNKNOWN_MEMBER)


def joined(
    group: Roster, member: ClassicMember, *, as_follower: bool = False, skip: bool = False,
    leader: MemberId | None = None,
) -> Joined:  # fmt: skip
    """The answer to a JoinGroup, in the present generation. The leader is told of everyone, unless it is to be one."""
    leads = member.id == group.leader and not as_follower
    return Joined(
        member=member.id, generation=group.generation, protocol_type=group.protocol_type, protocol=group.protocol,
        leader=leader or group.leader or member.id,
        members=tuple(
            JoinedMember(member=one.id, instance=one.instance, metadata=one.metadata(group.protocol))
            for one in group.members.values()
        ) if leads else (),
        skip_assignment=skip and leads,
    )  # fmt: skip


def join_outcome(group: Roster, member: MemberId, instance: str | None) -> Joined | GroupCode | None:
    """What a parked JoinGroup is told; None: it waits on.

    It is answered with the generation it waited for even if the next rebalance has begun: its SyncGroup will tell.
    """
    found = _still(group, member, instance)
    if isinstance(found, GroupCode):
        return found
    return None if group.waits(found) else joined(group, found)


def synced(
    group: Roster, member: MemberId, instance: str | None, generation: int, protocol_type: str | None,
    protocol: str | None,
) -> bytes | GroupCode | None:  # fmt: skip
    """What a SyncGroup is told: an assignment; None: it waits for the leader's."""
    found = find(group, member, instance)
    if isinstance(found, GroupCode):
        return found
    if generation != group.generation:
        return GroupCode.OTHER_GENERATION
    other_type = protocol_type is not None and protocol_type != group.protocol_type
    other_name = protocol is not None and group.protocol is not None and protocol != group.protocol
    if other_type or other_name:
        return GroupCode.OTHER_PROTOCOL
    return _assignment(group, found)


def sync_outcome(group: Roster, member: MemberId, instance: str | None, generation: int) -> bytes | GroupCode | None:
    """What a parked SyncGroup is told; None: it waits on."""
    found = _still(group, member, instance)
    if isinstance(found, GroupCode):
        return found
    return _assignment(group, found) if group.generation == generation else GroupCode.REBALANCING


def beaten(group: Roster, member: MemberId, instance: str | None, generation: int) -> GroupCode:
    """What a Heartbeat is told."""
    found = find(group, member, instance)
    if isinstance(found, GroupCode):
        return found
    if generation != group.generation:
        return GroupCode.OTHER_GENERATION
    return GroupCode.REBALANCING if isinstance(group.state, Preparing) else GroupCode.ACCEPTED


def may_commit(group: Roster, member: MemberId, instance: str | None, generation: int) -> GroupCode:
    """What an OffsetCommit is told (G9)."""
    if generation < 0 and isinstance(group.state, Empty):
        return GroupCode.ACCEPTED
    if generation < 0 and not member and instance is None:
        return GroupCode.UNKNOWN_MEMBER
    found = find(group, member, instance)
    if isinstance(found, GroupCode):
        return found
    if generation != group.generation:
        return GroupCode.OTHER_GENERATION
    return GroupCode.REBALANCING if isinstance(group.state, Completing) else GroupCode.ACCEPTED


def _still(group: Roster, member: MemberId, instance: str | None) -> ClassicMember | GroupCode:
    """A member that waited, and may have been removed or replaced meanwhile."""
    found = group.members.get(member)
    if found is not None:
        return found
    replaced = instance is not None and InstanceId(instance) in group.statics
    return GroupCode.FENCED_INSTANCE if replaced else GroupCode.UNKNOWN_MEMBER


def _assignment(group: Roster, member: ClassicMember) -> bytes | GroupCode | None:
    match group.state:
        case Preparing():
            return GroupCode.REBALANCING
        case Stable():
            return member.assignment
        case _:
            return None
