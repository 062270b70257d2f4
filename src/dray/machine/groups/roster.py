"""The members of a classic group: who they are, what they offer, who waits.

The rules that move a group are in `classic`; what a call is told of it in
`told`. Here its parts are kept consistent with each other.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.names import SessionId

CONSUMER: Final = "consumer"
"""The protocol type of consumers, whose subscriptions can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """Nobody is a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """Members join; who does not is dropped."""

    initial: bool = False
    """The first join of an empty group: it waits for others, even if all that are known have joined."""
    newcomers: bool = False
    """Somebody joined since the delay began: it may be extended."""
    delay_ms: int = 0
    left_ms: int = 0
    """How far the delay may still be extended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completing:
    """The generation has its members, and waits for the leader's assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stable:
    """Everyone has an assignment."""


State: TypeAlias = Empty | Preparing | Completing | Stable

STATES: Final[dict[type[State], str]] = {
    Empty: "Empty", Preparing: "PreparingRebalance", Completing: "CompletingRebalance", Stable: "Stable",
}  # fmt: skip
"""As people know them."""


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """One member."""

    id: MemberId
    instance: InstanceId | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    topics: tuple[str, ...] | None
    home: SessionId
    heard: int
    """The entry that last named it."""
    assignment: bytes = b""
    joined: int = 0
    """The round in which it waits; 0: in none."""
    generation: int = 0
    """The last one that it was part of."""

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMember:
    """An id that was given to somebody who has not come back with it."""

    home: SessionId
    session_ms: int


class Roster:
    """The state of a classic group."""

    __slots__ = (
        "awaiting", "generation", "id", "leader", "members", "pending", "protocol", "protocol_type", "revision",
        "round", "since_ms", "state", "statics", "support", "tick", "topics",
    )  # fmt: skip

    def __init__(self, group: str, *, generation: int = 0, since_ms: int = 0) -> None:
        self.id = group
        self.state: State = Empty()
        self.round = 0
        self.tick = 0
        self.generation = generation
        self.revision = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: MemberId | None = None
        self.members: dict[MemberId, ClassicMember] = {}
        """In the order of joining, which decides who leads next."""
        self.pending: dict[MemberId, PendingMember] = {}
        self.topics: tuple[str, ...] | None = None
        """What the generation reads; None: nobody can tell."""
        self.since_ms = since_ms
        # Derived from the members, and not dumped:
        self.statics: dict[InstanceId, MemberId] = {}
        self.support: dict[str, int] = {}
        """How many members have a protocol."""
        self.awaiting = 0

    @property
    def is_empty(self) -> bool:
        return isinstance(self.state, Empty)

    @property
    def state_name(self) -> str:
        return STATES[type(self.state)]

    @property
    def tells_topics(self) -> bool:
        return isinstance(self.state, Stable) and self.topics is not None

    def subscribes(self, topic: str) -> bool:
        return self.topics is not None and topic in self.topics

    @property
    def is_idle(self) -> bool:
        return self.is_empty and not self.pending

    @property
    def last_generation(self) -> int:
        return self.generation

    def waits(self, member: ClassicMember) -> bool:
        """Whether a member waits for the end of the present round (G3)."""
        return isinstance(self.state, Preparing) and member.joined == self.round

    @property
    def rebalance_ms(self) -> int:
        """How long a phase may take."""
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def choose(self) -> str | None:
        """The protocol that most prefer among those that all have; of equals, the greater name."""
        everyone = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self.support[name] == everyone:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=lambda name: (votes[name], name), default=None)

    def subscribed(self) -> tuple[str, ...] | None:
        names: set[str] = set()
        for member in self.members.values():
            if member.topics is None or self.protocol_type != CONSUMER:
                return None
            names.update(member.topics)
        return tuple(sorted(names))

    def enter(self, member: ClassicMember) -> None:
        """Put a member into its places, last in order."""
        self.members[member.id] = member
        if member.instance is not None:
            self.statics[member.instance] = member.id
        self.count_protocols(member, 1)

    def forget(self, member: ClassicMember) -> None:
        """Take a member out of its places; whoever does it settles the group afterwards."""
        if self.waits(member):
            self.awaiting -= 1
        self.leave(member)
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def leave(self, member: ClassicMember) -> None:
        """Take a member out of its places, and leave it the lead."""
        del self.members[member.id]
        if member.instance is not None:
            del self.statics[member.instance]
        self.count_protocols(member, -1)

    def count_protocols(self, member: ClassicMember, change: int) -> None:
        """A member offers its protocols (1), or does not any more (-1)."""
        for name in dict.fromkeys(name for name, _ in member.protocols):
            count = self.support.get(name, 0) + change
            if count:
                self.support[name] = count
            else:
                del self.support[name]

    def shared(self, protocols: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
        """Members mostly say the same: it is kept once."""
        first = next(iter(self.members.values()), None)
        return first.protocols if first is not None and first.protocols == protocols else protocols

    def home_of(self, member: MemberId) -> SessionId | None:
        found = self.members.get(member) or self.pending.get(member)
        return None if found is None else found.home
