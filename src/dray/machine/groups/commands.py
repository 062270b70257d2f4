"""The commands of classic groups, and those that groups of both kinds share."""

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Meta

from dray.machine.command import MAX_ROWS, Count, Int32, Packed, Part, SessionField
from dray.machine.groups.names import (
    UNSAID,
    BytesField,
    GroupField,
    InstanceField,
    MemberField,
    SeenField,
    TextField,
    TimeoutField,
)
from dray.machine.names import NOBODY

MAX_PROTOCOLS: Final = 10_000
MAX_ASSIGNMENTS: Final = 100_000


class JoinClassic(Packed, frozen=True, kw_only=True):
    """Be in the next generation of a group."""

    number = 27
    since = 2

    group: GroupField
    member: MemberField
    new: bool
    """The caller had no id: this one was made for it."""
    must_know: bool
    """A new dynamic member is only given its id, and must come again with it."""
    instance: InstanceField | None
    client_id: TextField
    client_host: TextField
    session_ms: TimeoutField
    rebalance_ms: TimeoutField
    protocol_type: TextField
    protocols: Annotated[tuple[tuple[TextField, BytesField], ...], Meta(max_length=MAX_PROTOCOLS)]
    """By preference: name and metadata."""
    topics: Annotated[tuple[TextField, ...], Meta(max_length=MAX_PROTOCOLS)] | None
    """What the member reads; None: its metadata does not tell."""
    delay_ms: TimeoutField
    """How long the first members of an empty group wait for others."""
    max_size: Annotated[int, Meta(ge=1, le=1_000_000)]
    tells_leader: bool
    """The caller takes a leader's answer that asks for no assignment."""


class EndPhase(Packed, frozen=True, kw_only=True):
    """The time of a phase is over."""

    number = 28
    since = 2

    group: GroupField
    tick: Count


class AssignClassic(Packed, frozen=True, kw_only=True):
    """The leader's word on who does what in this generation."""

    number = 29
    since = 2

    group: GroupField
    member: MemberField
    instance: InstanceField | None
    generation: Int32
    protocol_type: TextField | None
    protocol: TextField | None
    rows: Annotated[tuple[tuple[MemberField, BytesField], ...], Meta(max_length=MAX_ASSIGNMENTS)]


class Removal(IntEnum):
    """Why a member goes."""

    LEFT = 0
    AWAY = 1
    """A static member says that it will be back (epoch -2)."""
    EXPIRED = 2
    PENDING = 3
    UNSYNCED = 4
    UNREVOKED = 5


class RemovalRow(Part, frozen=True, kw_only=True):
    """A member as it was when somebody decided that it should go."""

    member: MemberField
    """Empty: whoever has the instance id."""
    instance: InstanceField | None = None
    home: SessionField = NOBODY
    since: Int32 = -1
    """The generation or epoch in which it was seen."""
    seen: SeenField = UNSAID
    """The last entry that was applied where this was said or decided (G10)."""


class RemoveMembers(Packed, frozen=True, kw_only=True):
    """Take members out of a group, each if it is still as it was seen (G4)."""

    number = 30
    since = 2

    group: GroupField
    reason: Removal
    rows: Annotated[tuple[RemovalRow, ...], Meta(max_length=MAX_ROWS)]

    def needs(self) -> int:
        return max(1, len(self.rows))


class Rehome(Packed, frozen=True, kw_only=True):
    """The entry's session hears these members now (G5)."""

    number = 31
    since = 2

    group: GroupField
    members: Annotated[tuple[MemberField, ...], Meta(max_length=MAX_ROWS)]

    def needs(self) -> int:
        return max(1, len(self.members))


class DropGroup(Packed, frozen=True, kw_only=True):
    """Forget an empty group and its committed offsets; the name is free at once."""

    number = 35
    since = 2

    group: GroupField
    revision: Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)] = -1
    """Of the group that was looked at, which must have no offsets either; -1: any, with its offsets."""
