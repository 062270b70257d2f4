"""What the machine answers: one verdict for each command of an entry.

A verdict is a value and says what happened; a service turns it into what its
caller does next. `Refused` always means that the command changed nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from dray.machine.names import ObjectId, ProducerId, SessionId, StreamId, TopicId


class Why(Enum):
    """Why a command was refused."""

    MALFORMED = "the bytes are not a command, or a field makes no sense"
    NOT_FOUND = "what it names does not exist"
    EXISTS = "what it would make exists"
    STATE = "what it names is in another state"
    STALE = "what it names has moved on since it was looked at"
    LIVE = "a live session holds the name"
    NEWER = "a newer session of that name was opened"
    VERSION = "the version does not fit"
    FOREIGN = "it belongs to another session, log or domain"
    PAUSED = "time jumped less than an hour ago"
    LIMIT = "it is more than the machine takes"
    INTERNAL = "a rule of the machine failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was changed."""

    why: Why
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It is so now, or it was so already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The session of a nonce. Its entries say `time_ms` + the time passed since this was seen."""

    session: SessionId
    nonce: bytes
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistered:
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """The streams to open, by partition, and what `OpenStream` must say about the name."""

    topic_id: TopicId
    streams: tuple[StreamId, ...]
    name_existed_before: bool
    producer_floor: ProducerId


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAltered:
    """`added` are the streams of new partitions, to open before `TopicReady`."""

    revision: int
    added: tuple[StreamId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """The streams to close, in their domains."""

    topic_id: TopicId
    streams: tuple[StreamId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamClosed:
    """`left` rows remain to be dropped; at 0 the stream is forgotten."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRaised:
    """`left` rows below the log start remain to be dropped: ask again. By time, more may be due even at 0."""

    start: int
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerAllocated:
    producer_id: ProducerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersExpired:
    """How many went, and the id to go on from; -1: all were looked at."""

    expired: int
    next_start: int


class OffsetCode(IntEnum):
    """What became of one row of `CommitOffsets`."""

    COMMITTED = 0
    METADATA_TOO_LARGE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    codes: tuple[OffsetCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsExpired:
    expired: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Whatever was alive at `position` stays in the store while the pin lives."""

    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """The objects that may be deleted now; the others named were not due."""

    objects: tuple[ObjectId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The batch is there already, at `base`."""

    base: int


class Rejected(Enum):
    """Why a batch got no offsets."""

    GAP = "the sequence does not follow the last one"
    FENCED = "the producer has a newer epoch"
    CLOSED = "the stream is closed"
    UNKNOWN_STREAM = "there is no such stream here"
    MALFORMED = "the row makes no sense"
    FULL = "an offset or a size would overflow"


BatchVerdict: TypeAlias = Accepted | Duplicate | Rejected

GAP: Final = -1
FENCED: Final = -2
CLOSED: Final = -3
UNKNOWN_STREAM: Final = -4
MALFORMED: Final = -5
FULL: Final = -6
FIRST_DUPLICATE: Final = -16
_REJECTED: Final = {
    GAP: Rejected.GAP,
    FENCED: Rejected.FENCED,
    CLOSED: Rejected.CLOSED,
    UNKNOWN_STREAM: Rejected.UNKNOWN_STREAM,
    MALFORMED: Rejected.MALFORMED,
    FULL: Rejected.FULL,
}


def batch_verdict(given: int) -> BatchVerdict:
    """The meaning of one packed answer: a base offset, a code, or FIRST_DUPLICATE - base."""
    if given >= 0:
        return Accepted(base=given)
    if given <= FIRST_DUPLICATE:
        return Duplicate(base=FIRST_DUPLICATE - given)
    return _REJECTED[given]


@dataclass(frozen=True, slots=True)
class Appended:
    """One packed answer for each row of an `Append`; iterate for their meaning."""

    given: list[int]

    def __iter__(self) -> Iterator[BatchVerdict]:
        return map(batch_verdict, self.given)

    def __len__(self) -> int:
        return len(self.given)


Verdict: TypeAlias = (
    Refused | Done | Opened | BrokerRegistered
    | TopicCreated | TopicAltered | TopicDeleted | StreamClosed | FloorRaised
    | ProducerAllocated | ProducersExpired | OffsetsCommitted | OffsetsExpired
    | Pinned | Marked | Appended
)  # fmt: skip

DONE: Final = Done()


def refused(why: Why, reason: str) -> Refused:
    return Refused(why=why, reason=reason)
