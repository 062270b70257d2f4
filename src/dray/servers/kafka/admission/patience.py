"""Who stands still: what is seen of a connection from one look to the next.

Invariants
    KP16  Nobody is cut for being slow, only for standing still: a client
          that has taken no byte for `write_timeout`, or, while others wait
          for the memory of its answers, less than `slowest_rate` over
          `CROWDED_S`.
    KP19  While connections wait for memory, half requests that have come
          slower than `slowest_rate` for QUIET_NS are dropped, the quietest
          first, until the limit is kept.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Protocol

from dray.servers.kafka.admission.budget import Budget
from dray.servers.kafka.settings import Limits

QUIET_NS: Final = 2_000_000_000
CROWDED_S: Final = 15.0
"""Long enough that a slow reader is seen to read: its system takes megabytes at a time."""
_SECOND_NS: Final = 1_000_000_000


class Times:
    """How long a connection of one server may do nothing, in nanoseconds."""

    def __init__(self, limits: Limits) -> None:
        self.idle_ns: Final = _ns(limits.idle_timeout)
        self.first_ns: Final = _ns(limits.first_request_timeout)
        self.frame_ns: Final = _ns(limits.frame_timeout)
        self.write_ns: Final = _ns(limits.write_timeout)
        self.crowded_ns: Final = min(self.write_ns, int(CROWDED_S * _SECOND_NS))
        self.slowest_rate: Final = limits.slowest_rate


class Patience:
    """What was seen of one connection, and since when."""

    __slots__ = (
        "_active_ns",
        "_half",
        "_half_bytes",
        "_half_ns",
        "_looked_ns",
        "_made_ns",
        "_stalled",
        "_times",
        "quiet_ns",
    )

    def __init__(self, times: Times, now_ns: int) -> None:
        self._times = times
        self._made_ns = self._active_ns = self._looked_ns = now_ns
        self._half = -1  # the number of the frame that is being watched
        self._half_bytes = 0
        self._half_ns = 0
        self.quiet_ns = 0
        """How long its half request has come slower than `slowest_rate`, while it was read from."""
        self._stalled: tuple[int, int] = (-1, 0)  # what the client had taken, and since when

    def is_late(self, now_ns: int) -> bool:
        """Whether a first valid request should be here."""
        return now_ns - self._made_ns > self._times.first_ns

    def is_idle(self, now_ns: int, *, active: bool) -> bool:
        """Whether nothing has happened for so long that nobody is there."""
        if active:
            self._active_ns = now_ns
        return now_ns - self._active_ns > self._times.idle_ns

    def is_half(self, now_ns: int, *, frame: int, unread: int, reading: bool, crowded: bool) -> bool:
        """Whether frame number `frame`, of which so much is here, will not be complete any more."""
        passed_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        before, self._half_bytes = self._half_bytes, unread
        if not unread or self._half != frame:
            self._half, self._half_ns, self.quiet_ns = (frame if unread else -1), 0, 0
            return False
        if not reading:
            return False
        self._half_ns += passed_ns
        slow = (unread - before) * _SECOND_NS < self._times.slowest_rate * passed_ns
        self.quiet_ns = self.quiet_ns + passed_ns if slow else 0
        # Large requests may take longer, but not while others wait for the memory they hold.
        extra = 0 if crowded else unread * _SECOND_NS // self._times.slowest_rate
        return self._half_ns > self._times.frame_ns + extra

    def is_stalled(self, now_ns: int, *, unsent: int, taken: int, crowded: bool) -> bool:
        """Whether the client takes nothing, or too little while others wait for the memory of its answers (KP16)."""
        before, since_ns = self._stalled
        least = self._times.slowest_rate * (now_ns - since_ns) // _SECOND_NS if crowded else 0
        if not unsent or before < 0 or (not crowded and taken > before):
            self._stalled = (taken, now_ns)
        elif now_ns - since_ns > (self._times.crowded_ns if crowded else self._times.write_ns):
            if taken - before <= least:
                return True
            self._stalled = (taken, now_ns)
        return False


class Shedding(Protocol):
    """A connection that may have half a request."""

    @property
    def quiet_ns(self) -> int: ...

    def shed(self) -> None:
        """Give the memory of the half request back, and end."""
        ...


def shed(connections: Iterable[Shedding], budget: Budget) -> None:
    """While others wait for memory, the half requests that progress least go (KP19)."""
    if not budget.waiting:
        return
    quiet = [connection for connection in connections if connection.quiet_ns >= QUIET_NS]
    for connection in sorted(quiet, key=lambda one: one.quiet_ns, reverse=True):
        if not budget.is_over:
            return
        connection.shed()


def _ns(time: timedelta) -> int:
    return int(time.total_seconds() * 1e9)
