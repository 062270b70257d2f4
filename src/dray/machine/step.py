"""One entry on its way through the machine: what it did, and to whom.

`Step` is filled while the commands of an entry are applied; `Applied` is what
the replica gets back, to answer callers and to wake those who wait.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from msgspec import Struct, field

from dray.machine.names import SessionId, StreamId
from dray.machine.verdict import Verdict


class Outcome(Enum):
    """What became of an entry as a whole."""

    EXECUTED = "its commands were judged, and n is used up"
    REPEAT = "its n was used up before"
    DEAD = "its session is not live: surely not applied, now or later"
    HOLE = "an n before it is missing"
    CLONED = "another entry used this n: its session is closed"
    TOO_NEW = "it is above the active version: its session is closed"
    BAD = "it is no entry; n is used up if its session is live"
    HALTED = "the active version is above this software: stop"


class EndReason(Enum):
    """How a session ended."""

    CLOSED = 0
    TAKEN_OVER = 1
    EXPIRED = 2
    CLONED = 3
    TOO_NEW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    session: SessionId
    reason: EndReason
    clock_ms: int = 0
    """What its clock showed last."""


class Named(NamedTuple):
    """A member of a group that an entry named (G5)."""

    group: str
    member: str
    came: bool
    """It was at home elsewhere before."""


class Step(Struct):  # made in C: there is one for every entry
    """The effects of one entry, collected while it is applied."""

    position: int
    session: SessionId
    seen: int = 0
    """The last entry that its writer had applied (Q6)."""
    spare: int = 0
    """Rows that the slices of this entry may still touch (M7)."""
    want: bool = False
    """Somebody waits for the verdicts: what only they say is worth putting together."""
    streams: list[StreamId] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    """Groups in which somebody's wait may have ended."""
    moved: list[str] = field(default_factory=list)
    """Groups in which something else changed, for whoever keeps them."""
    named: list[Named] = field(default_factory=list)
    """Members of groups that are at home with the entry's session now."""
    given: list[int] = field(default_factory=list)
    """The offsets and ids that apply gave: they go into the digest (Q6)."""
    ended: list[SessionEnd] = field(default_factory=list)
    catalog_changed: bool = False
    body_bytes: int = 0
    """Bodies of messages that the entry carried."""
    rows: int = 0
    """That its commands name: about what it costs to fold it."""


class Applied(Struct):
    """What the replica needs to know about an applied entry."""

    outcome: Outcome
    session: SessionId
    n: int
    verdicts: list[Verdict] | None = None
    """One for each command, if wanted; always for Genesis and Open."""
    streams: tuple[StreamId, ...] = ()
    """Streams whose end or start moved, or that opened or closed."""
    groups: tuple[str, ...] = ()
    """Groups in which somebody's wait may have ended."""
    moved: tuple[str, ...] = ()
    """Groups in which something else changed."""
    named: tuple[Named, ...] = ()
    """Members of groups that are at home with the session now."""
    ended: tuple[SessionEnd, ...] = ()
    catalog_changed: bool = False
    """A topic, a broker or the active version changed."""
    body_bytes: int = 0
    """Bodies of messages in the entry: no checkpoint is due for them, for it holds few of them."""
    rows: int = 0
    """That its commands name: about what it costs to fold it."""
