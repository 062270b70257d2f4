"""What this replica's digest was at recent positions (Q6).

Every entry names the position and digest that its writer had applied. A
replica that had another digest there has missed an entry, folds another log,
or computes another state: it stops instead of answering.
"""

from collections import OrderedDict
from typing import Final

KEPT: Final = 16_384
"""Positions remembered; an entry that has seen something older is not checked."""


class Digests:
    """A bounded memory of (position, digest), oldest first."""

    def __init__(self) -> None:
        self._at: OrderedDict[int, int] = OrderedDict()

    def remember(self, position: int, digest: int) -> None:
        self._at[position] = digest
        if len(self._at) > KEPT:
            self._at.popitem(last=False)

    def contradict(self, position: int, digest: int) -> bool:
        """Whether a writer that had `digest` at `position` folds another log than this replica."""
        mine = self._at.get(position)
        if mine is not None:
            return mine != digest
        # A position behind the oldest remembered, but not among them, is an entry this replica never saw.
        return bool(self._at) and next(iter(self._at)) < position

    def at(self, position: int) -> int | None:
        return self._at.get(position)

    def clear(self) -> None:
        self._at.clear()
