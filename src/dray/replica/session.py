"""This process's own session in one domain, and the time that its entries carry (Q3, Q7)."""

from dataclasses import dataclass

from dray.machine.names import SessionId


@dataclass(slots=True, kw_only=True)
class OwnSession:
    """An open session. n moves only when a verdict was seen by following (Q3)."""

    id: SessionId
    opened_ms: int
    """Machine time when the Open was applied."""
    opened_boot_ns: int
    next_n: int = 1
    next_counter: int = 0

    def take_counter(self) -> int:
        """A number for the name of a new object, never given twice in a session (W1)."""
        self.next_counter += 1
        return self.next_counter

    def time_ms(self, boot_ns: int) -> int:
        """Machine time as this writer may claim it: the opening's time plus what has elapsed since (Q7)."""
        return self.opened_ms + max(0, boot_ns - self.opened_boot_ns) // 1_000_000


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
    """Vouches for this machine's clock after a long stop."""
