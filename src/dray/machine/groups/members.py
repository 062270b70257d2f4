"""The members of a consumer group: who they are, what they want and hold.

The rules that move a group are in `consumer`; here its parts are kept
consistent with each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dray.machine.groups.codes import GroupCode
from dray.machine.groups.masks import Masks
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.groups.reconcile import Holding, MemberState, Standing, release
from dray.machine.groups.subscriptions import Subscriptions
from dray.machine.names import NOBODY, SessionId, TopicId

AWAY: Final = -2
"""The epoch of a static member that left and will be back: its partitions wait for it."""


class ConsumerState(Enum):
    """As Kafka calls them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True, kw_only=True)
class ConsumerMember(Holding):
    """One member: who it is, what it wants, what it holds."""

    id: MemberId
    instance: InstanceId | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_ms: int = -1
    names: tuple[str, ...] = ()
    regex: str = ""
    assignor: str = ""
    home: SessionId = NOBODY
    heard: int = 0
    """The entry that last named it."""

    def held_since(self, topic: TopicId, partition: int, epoch: int) -> bool:
        """Whether a partition is the member's own, or was not let go of yet, and was so at an epoch (G9)."""
        return any(
            mask >> partition & 1 and since <= epoch
            for runs in (self.assigned, self.revoking)
            for since, mask in runs.get(topic, ())
        )


@dataclass(slots=True, kw_only=True)
class Draft:
    """The first slices of a target (G8)."""

    session: SessionId
    """Of whoever sends it: two senders' slices are never mixed."""
    slices: int = 0
    rows: dict[MemberId, Masks]


class Membership:
    """The state of a consumer group."""

    __slots__ = (
        "assignment_epoch", "draft", "epoch", "id", "members", "owned", "revision", "since_ms", "statics", "topics",
    )  # fmt: skip

    def __init__(self, group: str, *, epoch: int = 1, since_ms: int = 0) -> None:
        self.id = group
        self.epoch = max(1, epoch)  # G1
        self.assignment_epoch = self.epoch
        self.revision = 0
        self.since_ms = since_ms
        self.members: dict[MemberId, ConsumerMember] = {}
        self.topics = Subscriptions()
        self.draft: Draft | None = None
        # Derived from the members, and not dumped:
        self.owned: Masks = {}
        self.statics: dict[InstanceId, MemberId] = {}

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_idle(self) -> bool:
        return not self.members

    @property
    def last_generation(self) -> int:
        return self.epoch

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def tells_topics(self) -> bool:
        return True

    def subscribes(self, topic: str) -> bool:
        return self.topics.wants(topic)

    @property
    def is_behind(self) -> bool:
        """Whether it waits for a target."""
        return self.epoch > self.assignment_epoch and not self.is_empty

    @property
    def state(self) -> ConsumerState:
        if self.is_empty:
            return ConsumerState.EMPTY
        if self.is_behind:
            return ConsumerState.ASSIGNING
        settled = all(
            member.state is MemberState.STABLE and member.epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return ConsumerState.STABLE if settled else ConsumerState.RECONCILING

    def subscribed(self, member: ConsumerMember) -> dict[TopicId, int]:
        """The topics that a member wants and that exist, with their partitions."""
        return self.topics.topics_of(member.names, member.regex)

    def standing(self, member: ConsumerMember, *, resubscribed: bool = False) -> Standing:
        return Standing(
            assignment_epoch=self.assignment_epoch, owned=self.owned, subscribed=self.subscribed(member),
            resubscribed=resubscribed,
        )  # fmt: skip

    def is_settled(self, member: ConsumerMember) -> bool:
        """Whether nothing is about to change for a member."""
        return (
            not self.is_behind
            and member.epoch == self.assignment_epoch
            and member.state is MemberState.STABLE
        )  # fmt: skip

    def forget(self, member: ConsumerMember) -> None:
        """Take a member out of all its places."""
        release(member, self.owned)  # G6
        self.topics.drop(member.names, member.regex)
        del self.members[member.id]
        if member.instance is not None:
            del self.statics[member.instance]

    def may_fetch(self, member: str | None, epoch: int) -> GroupCode:
        """Whether a fetch of offsets is of somebody who may ask as a member; with neither it is of anybody."""
        if member is None and epoch < 0:
            return GroupCode.ACCEPTED
        found = self.members.get(MemberId(member or ""))
        if found is None:
            return GroupCode.UNKNOWN_MEMBER
        return GroupCode.ACCEPTED if found.epoch == epoch else GroupCode.STALE_EPOCH

    def home_of(self, member: MemberId) -> SessionId | None:
        found = self.members.get(member)
        return None if found is None else found.home

    def homes(self) -> Iterator[SessionId]:
        return (member.home for member in self.members.values())
