"""What a shard answers to its hot commands: one packed answer a row.

A verdict copies what it says: a row may be another message's when its caller
wakes.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from dray.machine.verdict import Verdict

# Instead of a slot, for a message that was not taken.
DUPLICATE: Final = -1
FULL: Final = -2
INLINE_FULL: Final = -3
DEDUP_FULL: Final = -4
CLOSED: Final = -5
MALFORMED: Final = -6
TORN: Final = -7
UNDECIDED: Final = -8
HISTORY_FULL: Final = -9

# Of a settlement, and of a message that an operator named.
DONE: Final = 0
ALREADY: Final = 1
LOST: Final = 2
GONE: Final = 3
DIED: Final = 4


class MessageGiven(NamedTuple):
    """The answer to one message: where it lies and what its id is made of, or a code."""

    slot: int
    """A code if it is negative. Of `TORN`, `number` is the row that tore the batch, and `seq` the code of why."""
    number: int = 0
    begun_ms: int = 0
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Enqueued(Verdict):
    """One answer for each row of an `Enqueue`."""

    given: list[MessageGiven]


class GrantedMessage(NamedTuple):
    """One message of a lease."""

    slot: int
    arrival: int
    priority: int
    attempts: int
    partition: int
    flags: int
    number: int
    begun_ms: int
    seq: int
    enqueued_ms: int
    max_retries: int
    place: int
    """The object's ordinal + 1; 0: the body is here."""
    position: int
    length: int
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Granted(Verdict):
    """What a lease took, the best first."""

    messages: list[GrantedMessage]
    lease_ms: int = 0
    """From when it is applied."""


@dataclass(frozen=True, slots=True)
class Settled(Verdict):
    """A code for each row of a `Settle`; by row, what is left of a lease that was prolonged, or until a message
    that failed comes back."""

    codes: list[int]
    left_ms: dict[int, int]
