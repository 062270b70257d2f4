"""How often a domain may begin a flush: a token bucket, and a brake."""

from typing import Final

_BURST_S: Final = 1
_BRAKE_NS: Final = 250_000_000
"""While the index is nearly full, this long passes between two flushes of a domain."""


class Pace:
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
