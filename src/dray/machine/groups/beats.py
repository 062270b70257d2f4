"""The commands of consumer groups (KIP-848), and what is answered to them."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from dray.machine.command import Count, Int32, Packed, Part, TopicField
from dray.machine.groups.masks import MAX_PARTITIONS
from dray.machine.groups.names import (
    MAX_TIMEOUT_MS,
    UNSAID,
    GroupField,
    InstanceField,
    MemberField,
    SeenField,
    TextField,
)
from dray.machine.names import ZERO_TOPIC, TopicId
from dray.machine.verdict import Verdict

MAX_NAMES: Final = 10_000
"""Topics in one subscription, and in what a member says that it owns; who wants more uses a pattern."""
MAX_TARGET_MEMBERS: Final = 1_000
MAX_TARGET_PARTITIONS: Final = 5_000
"""What one slice of a target may carry."""
NAMES_A_ROW: Final = 10
"""A name is a count in a dict: this many weigh as much as a row."""

Names: TypeAlias = Annotated[tuple[TextField, ...], Meta(max_length=MAX_NAMES)]


class TopicRow(Part, frozen=True, kw_only=True):
    """What the catalog has under a name; without partitions: nothing."""

    name: TextField
    topic_id: TopicField = ZERO_TOPIC
    partitions: Annotated[int, Meta(ge=0, le=MAX_PARTITIONS)] = 0


class OwnedRow(Part, frozen=True, kw_only=True):
    """Partitions of a topic that a member says it owns."""

    topic_id: TopicField
    mask: Annotated[bytes, Meta(max_length=MAX_PARTITIONS // 8)]


class Beat(Packed, frozen=True, kw_only=True):
    """A member joins, says what changed or what it owns, and comes nearer to its target."""

    number = 32
    since = 2

    group: GroupField
    member: MemberField
    epoch: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
    """0: it joins."""
    instance: InstanceField | None = None
    rack: TextField | None = None
    client_id: TextField = ""
    client_host: TextField = ""
    rebalance_ms: Annotated[int, Meta(ge=-1, le=MAX_TIMEOUT_MS)] = -1
    """Here and below -1, or nothing: as it was."""
    names: Names | None = None
    regex: TextField | None = None
    """Empty: no pattern any more."""
    assignor: TextField | None = None
    owned: Annotated[tuple[OwnedRow, ...], Meta(max_length=MAX_NAMES)] | None = None
    alien: bool = False
    """It also says that it owns what the group knows nothing of."""
    topics: Annotated[tuple[TopicRow, ...], Meta(max_length=MAX_NAMES)] = ()
    catalog: Count = 0
    """The position of the catalog at which those were so."""
    max_size: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    seen: SeenField = UNSAID
    """The last entry that was applied where the call came in, when it came in (G10)."""

    def needs(self) -> int:
        return 1 + (len(self.names or ()) + len(self.topics) + len(self.owned or ())) // NAMES_A_ROW


class RegexRow(Part, frozen=True, kw_only=True):
    """The topics whose names a pattern matches."""

    regex: TextField
    names: Names


class SetTopics(Packed, frozen=True, kw_only=True):
    """What the catalog has for the topics of a group, and for its patterns (G8)."""

    number = 33
    since = 2

    group: GroupField
    catalog: Count
    topics: Annotated[tuple[TopicRow, ...], Meta(max_length=MAX_NAMES)] = ()
    regexes: Annotated[tuple[RegexRow, ...], Meta(max_length=1_000)] = ()

    def needs(self) -> int:
        return 1 + (len(self.topics) + sum(1 + len(row.names) for row in self.regexes)) // NAMES_A_ROW


class TargetPart(Part, frozen=True, kw_only=True):
    topic_id: TopicField
    partitions: Annotated[bytes, Meta(max_length=4 * MAX_TARGET_PARTITIONS)]
    """Packed (`masks.pack`)."""


class TargetRow(Part, frozen=True, kw_only=True):
    """What a member is to own, or a part of it; what earlier slices of the same target said is added to."""

    member: MemberField
    parts: Annotated[tuple[TargetPart, ...], Meta(max_length=MAX_TARGET_PARTITIONS)] = ()


class SetTarget(Packed, frozen=True, kw_only=True):
    """What members are to own at an epoch, in slices; it counts when the last one is there (G8).

    Members that are not named keep their target.
    """

    number = 34
    since = 2

    group: GroupField
    epoch: Int32
    slice: Count
    """0 begins a target anew."""
    last: bool
    rows: Annotated[tuple[TargetRow, ...], Meta(max_length=MAX_TARGET_MEMBERS)]

    def needs(self) -> int:
        return max(1, len(self.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten(Verdict):
    """How a member stands after its heartbeat."""

    epoch: int
    position: int
    """Of its entry: what the member says next is said after it."""
    assigned: tuple[tuple[TopicId, int], ...]
    """What it may use now."""
    sent: bool
    """It must be told of what it may use."""
    behind: bool
    """A newer target is being computed."""
    settled: bool
    """It has all that it is to own, and nothing to let go of."""
