"""This process's own session in one domain, and the time that its entries carry (Q3, Q7).

A session names its objects by a counter of 32 bits. Long before they run out
the session is spent: the writer opens the next one, which closes this one.

Invariants
    RP10  A session gives each counter once and none above its limit; the next
          session is opened while some are left.
"""

from dataclasses import dataclass
from typing import Final

from dray.errors import Unavailable
from dray.machine.command import MAX_TIME_MS
from dray.machine.names import SessionId
from dray.machine.timeline import proves

AGREE_MS: Final = 3_600_000
"""How far a clock and the log may be apart and still mean the same."""

COUNTERS: Final = 0xFFFF_FFFF
"""Objects that a session can name: the width of a walId's last part."""
_SPARE: Final = 8
"""The last of so many parts of the counters is kept for the time until the next session is open."""


class Spent(Unavailable):
    """The session can name no more objects: wait for the next one."""


@dataclass(slots=True, kw_only=True)
class OwnSession:
    """An open session. n moves only when a verdict was seen by following (Q3)."""

    id: SessionId
    opened_ms: int
    """Machine time when the Open was applied."""
    opened_boot_ns: int
    next_n: int = 1
    next_counter: int = 0
    counters: int = COUNTERS

    @property
    def spent(self) -> bool:
        """Whether it is time for another one."""
        return self.next_counter >= self.counters - self.counters // _SPARE

    @property
    def exhausted(self) -> bool:
        """Whether there is no counter left."""
        return self.next_counter >= self.counters

    def take_counter(self) -> int:
        """A number for the name of a new object, never given twice in a session (W1, RP10)."""
        if self.exhausted:
            raise Spent("the session has named as many objects as it can", session=self.id)
        self.next_counter += 1
        return self.next_counter

    def time_ms(self, boot_ns: int) -> int:
        """Machine time as this writer may claim it: the opening's time plus what has elapsed since (Q7)."""
        return self.opened_ms + max(0, boot_ns - self.opened_boot_ns) // 1_000_000

    def stamp_ms(self, wall_ms: int, boot_ns: int) -> int:
        """When something was made, such that its age can be told by the log's time (RT20).

        That is the clock where it agrees with the log, and the log's time where it does not.
        """
        log_ms = self.time_ms(boot_ns)
        return max(wall_ms, log_ms) if abs(wall_ms - log_ms) <= AGREE_MS else log_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDate:
    """What the object store said the time was, and when that was on this machine's boot clock (Q7)."""

    date_ms: int
    boot_ns: int

    def now_ms(self, boot_ns: int) -> int:
        return self.date_ms + max(0, boot_ns - self.boot_ns) // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who opens sessions: given by the node, the same for all domains."""

    name: str
    instance: bytes
    """16 bytes that stay the same when the same installation starts again."""
    kind: int
    owner: bool
    """Holds the lock of the data directory, so a live session of the same name is a dead process's (Q4)."""
    accept_clock: bool = False
    store_date: StoreDate | None = None
    """Vouches for this machine's clock after a long stop. Only of a store that has a clock of its own."""
    asks_for_lead: bool = False
    """Claim a clock that nobody vouches for, for the hour that machine time may lead by it (Q7). Nobody needs that,
    because what is kept is judged by time that was lived through, and a lead costs an hour's pause; the simulator
    does it, for the machine must stand it."""

    def is_vouched(self, wall_ms: int, boot_ns: int) -> bool:
        """Does anybody but this machine say that its clock is right?"""
        return proves(wall_ms, self.date_ms(boot_ns), accept_clock=self.accept_clock)

    def date_ms(self, boot_ns: int) -> int:
        """What an `Open` says of the store's date; -1: nothing."""
        return -1 if self.store_date is None else self.store_date.now_ms(boot_ns)

    def wall_ms(self, wall_ms: int, boot_ns: int, machine_ms: int) -> int:
        """What an `Open` says of this machine's clock."""
        believed = self.asks_for_lead or self.is_vouched(wall_ms, boot_ns)
        return min(max(wall_ms, 0), MAX_TIME_MS if believed else machine_ms)
