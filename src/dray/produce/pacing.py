"""When a domain may begin a flush: a token bucket, a brake, and a wait for company."""

from typing import Final

_BURST_S: Final = 1
_BRAKE_NS: Final = 250_000_000
"""While the index is nearly full, this long passes between two flushes of a domain."""


MANY: Final = 16
"""Batches without an answer from which on a crowd is at work."""
ENOUGH: Final = 64
"""A crowd's flush of as many waits for nobody: what it costs is shared by them all."""
CROWD_BYTES: Final = 512 * 1024
"""Nor does one of as many bytes."""


class Crowd:
    """Whether many small batches come, so that a short wait puts more of them into one object.

    Senders that wait for their answers come back together. Without a wait the
    first of them begins a flush that the others miss; small flushes cost each
    batch more than the wait does. So a flush waits until most of the crowd is
    there, but only for `linger_ns` after the last answers; who comes alone, or
    with a few, waits for nobody.
    """

    def __init__(self, linger_ns: int) -> None:
        self._linger_ns = linger_ns
        self._size = 0
        self._answered_ns = 0

    def wait_ns(self, batches: int, size: int, since_ns: int, now_ns: int) -> int:
        """How long a queue should wait whose oldest batch came at `since_ns`; 0 or less: not at all."""
        if self._size < MANY or batches >= min(ENOUGH, self._size * 7 // 8) or size >= CROWD_BYTES:
            return 0
        return max(since_ns, self._answered_ns) + self._linger_ns - now_ns

    def begin(self, unanswered: int) -> None:
        """A flush begins, and so many wait for answers. A crowd that does not come back is soon forgotten."""
        self._size = max(unanswered, self._size // 2)

    def answer(self, now_ns: int) -> None:
        """Some were answered: from now on they may come back."""
        self._answered_ns = now_ns


class Tokens:
    """Tokens come at a steady rate up to one second's worth, so a lone producer waits for none.

    Without it a thousand trickling partitions on a fast disk would write
    thousands of tiny objects a second, each an entry of the log.
    """

    def __init__(self, per_second: int, now_ns: int) -> None:
        self._interval_ns = 1_000_000_000 // per_second
        self._depth_ns = max(self._interval_ns, 1_000_000_000 * _BURST_S)
        self._empty_ns = now_ns - self._depth_ns
        """The moment at which the bucket would have been empty: each flush moves it on by one interval."""
        self._last_ns = now_ns - _BRAKE_NS

    def wait_ns(self, now_ns: int, *, braked: bool) -> int:
        """How long until the next flush may begin; 0 or less: now."""
        wait = self._empty_ns + self._interval_ns - now_ns
        return max(wait, self._last_ns + _BRAKE_NS - now_ns) if braked else wait

    def begin(self, now_ns: int) -> None:
        """A flush begins."""
        self._empty_ns = max(self._empty_ns, now_ns - self._depth_ns) + self._interval_ns
        self._last_ns = now_ns
