"""Fair writers: whoever has won lets others have a chance.

Whoever lost a race must read what the winner wrote before it can put the next
version, and the winner need not: so the winner of one race would win all that
follow. After so many wins in a row a writer waits for about as long as a loser
needs. If somebody used the pause, pauses come after fewer wins, at last after
each; if nobody did, after more. A writer that is alone pauses seldom.
"""

from typing import Final

from dray.clock import Clock

_MOST_WINS: Final = 64
_FIRST_WINS: Final = 8
_PUTS_OF_A_LOSER: Final = 2.5
"""What a loser needs, in times of a put: it reads, and puts."""
_LONGEST_S: Final = 0.5
_SMOOTH: Final = 0.2


class FairTurns:
    """When a writer of a log may put its next commit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wins = 0
        self._allowed = _FIRST_WINS
        self._put_s = 0.0
        self._won_ns = 0

    @property
    def pause_s(self) -> float:
        """How long to wait before the next put; 0: go on."""
        if self._wins < self._allowed:
            return 0.0
        pause_s = min(_LONGEST_S, _PUTS_OF_A_LOSER * self._put_s)
        return max(0.0, pause_s - (self._clock.boot_ns() - self._won_ns) / 1e9)

    def won(self, put_s: float) -> None:
        self._put_s = put_s if not self._put_s else (1 - _SMOOTH) * self._put_s + _SMOOTH * put_s
        self._wins += 1
        self._won_ns = self._clock.boot_ns()

    def lost(self) -> None:
        """Somebody else was faster: there are several of us."""
        self._wins, self._allowed = 0, 1

    def paused(self, *, used: bool) -> None:
        """A pause is over, and somebody made use of it or nobody did."""
        self._wins = 0
        self._allowed = 1 if used else min(_MOST_WINS, 2 * self._allowed)
