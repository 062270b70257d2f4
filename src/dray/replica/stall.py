"""Does the follower stand still? Pure: time comes in as a number.

A follower that shows nothing may have nothing to show: silence is no sign.
But the log tells of its entries in other ways too, by the answer to an append
and by its tail. An entry that was told of and is not shown, while nothing else
is shown either, means that the way it should come is cut. Every live replica
appends at least its beats, so no wire needs beats of its own.
"""


class StallWatch:
    """What was promised, how far the fold has come, and since when it has not moved."""

    def __init__(self, *, limit_ns: int) -> None:
        self.expected = 0
        """The highest position that the log has told of."""
        self._limit_ns = limit_ns
        self._at = -1
        self._since_ns = 0

    def expect(self, position: int) -> None:
        """The log has an entry there."""
        if position > self.expected:
            self.expected = position

    def stalled(self, position: int, now_ns: int) -> bool:
        """Asked now and then with where the fold is; True once for each limit that passes without a move."""
        if self.expected <= position or position != self._at:
            self._at, self._since_ns = position, now_ns
            return False
        if now_ns - self._since_ns < self._limit_ns:
            return False
        self._since_ns = now_ns
        return True
