"""What groups of every kind have in common: what the noun asks of them, and what they are told.

Classic groups and consumer groups have rules of their own. Removal, rehoming,
commits and deletion are asked of any group, and each kind answers for itself.

Invariants
    G10  A word of a member, or about its silence, names the last entry that
         was applied where it was said. It counts only if the member was not
         heard since: what a client says at one broker, and then goes on at
         another, changes nothing when it comes late.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import ClassVar, Protocol

from dray.machine.groups.codes import GroupCode
from dray.machine.groups.commands import RemoveMembers
from dray.machine.groups.names import UNSAID, MemberId
from dray.machine.names import SessionId
from dray.machine.noun import Fields
from dray.machine.offsets import CommitOffsets
from dray.machine.packing import Writer
from dray.machine.step import Named, Step


class Housed(Protocol):
    """A member of a group of any kind."""

    id: MemberId
    home: SessionId
    heard: int
    """The entry that last named it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The entry that is applied, as a group sees it."""

    step: Step
    time_ms: int
    live: Container[SessionId]
    """Sessions that have not ended."""

    @property
    def session(self) -> SessionId:
        """Of the entry: the home of whoever it names (G5)."""
        return self.step.session

    @property
    def position(self) -> int:
        return self.step.position

    def welcome(self, group: str, member: Housed) -> None:
        """The entry names a member: its session is the home now (G5)."""
        self.step.named.append(Named(group, member.id, came=member.home != self.session))
        member.home = self.session  # G5
        member.heard = self.position  # G10


def is_late(member: Housed, seen: int) -> bool:
    """Whether a member was heard since something about it was said (G10)."""
    return seen != UNSAID and member.heard > seen


class Group(Protocol):
    """One group, of either kind."""

    kind: ClassVar[str]
    id: str
    revision: int
    """The position of the last change of members or subscriptions: never the same twice, even after a drop."""
    since_ms: int
    """Machine time of the last change of state; only the expiry of offsets reads it."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members; ids that were only given are none."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nobody is a member or about to be one."""
        ...

    @property
    def last_generation(self) -> int:
        """Its generation or epoch: where a group of another kind goes on (G1)."""
        ...

    @property
    def state_name(self) -> str:
        """Its state, as people know it."""
        ...

    @property
    def tells_topics(self) -> bool:
        """Whether what its members read can be told now."""
        ...

    def subscribes(self, topic: str) -> bool:
        """Whether members of the group read a topic, as far as anyone can tell."""
        ...

    def home_of(self, member: MemberId) -> SessionId | None:
        """The session that hears a member, or that gave an id; None: there is no such one."""
        ...

    def remove(self, moment: Moment, command: RemoveMembers) -> tuple[GroupCode, ...]:
        """Judge each row, and take out those who may go (G4)."""
        ...

    def rehome(self, moment: Moment, member: MemberId) -> GroupCode:
        """The member is heard by the entry's session now (G5)."""
        ...

    def may_commit(self, command: CommitOffsets) -> GroupCode:
        """Whether it takes such a commit (G9)."""
        ...

    def commit(self, moment: Moment, command: CommitOffsets) -> GroupCode:
        """The same; and whose commit it takes is heard by the entry's session, where the protocol says so (G5)."""
        ...

    def dump(self, out: Writer) -> None: ...

    def show(self) -> Fields: ...
