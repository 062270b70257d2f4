"""What the machine answers about groups: codes of its own, and the verdicts that carry them.

Only servers turn a code into a number of the wire.
"""

from dataclasses import dataclass
from enum import Enum

from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.verdict import Verdict


class GroupCode(Enum):
    """How a group judges a call."""

    ACCEPTED = "it is so"
    UNKNOWN_MEMBER = "the group has no such member"
    UNKNOWN_GROUP = "there is no such group of this kind"
    FENCED_INSTANCE = "another member has the instance id now"
    OTHER_GENERATION = "the group is in another generation"
    OTHER_PROTOCOL = "the group has another type, or no protocol in common with its members"
    OTHER_KIND = "the group has members that speak the newer protocol"
    REBALANCING = "the group rebalances: join again"
    FULL = "the group has as many members as it may have"
    NOT_EMPTY = "the group has members"
    MOVED = "the group has moved on since it was looked at"
    FENCED_EPOCH = "the member is not at that epoch"
    STALE_EPOCH = "the partitions are the member's only since a later epoch"
    UNRELEASED_INSTANCE = "a live member has the instance id"
    NEEDS_NEWER_API = "a member of such a group speaks a newer version of the request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied(Verdict):
    """The group says no; nothing was changed but what made room for others."""

    code: GroupCode


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingJoin(Verdict):
    """An id was given: join again with it."""

    member: MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Verdict):
    """The member waits for the others; the state of the group will tell."""

    member: MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as its leader is told of it."""

    member: MemberId
    instance: InstanceId | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Verdict):
    """The member is in this generation."""

    member: MemberId
    generation: int
    protocol_type: str
    protocol: str | None
    leader: MemberId
    members: tuple[JoinedMember, ...]
    """All of them, for the leader; nobody, for others."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(Verdict):
    """What the member has to do in its generation."""

    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed(Verdict):
    """One code for each row of `RemoveMembers`."""

    codes: tuple[GroupCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehomed(Verdict):
    """One code for each member of `Rehome`."""

    codes: tuple[GroupCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDropped(Verdict):
    """The name is free."""
