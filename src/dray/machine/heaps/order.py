"""Messages in an order: a binary heap of integers, of which some may be stale.

    key << 80 | arrival << 32 | slot          key: the rank of a ready message, the due time of a delayed one

Keys are unique, so the layout of a heap is never seen from outside, and a
heap that was built anew from rows goes on like the one that grew.

A message that leaves by its name (buried, dropped, purged) stays in the list:
its entry is stale, known by its row, which says something else by then.
`sweep` takes such entries out by their position, so many at a time that no
call is longer than its slice (Q8).

Invariants
    L5  A lease takes the best ready messages there are: by priority, then
        by arrival. A message keeps its arrival when it comes back.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

KEY_SHIFT: Final = 80
ARRIVAL_SHIFT: Final = 32
SLOT_MASK: Final = 0xFFFF_FFFF
ARRIVAL_MASK: Final = 0xFFFF_FFFF_FFFF
MAX_ARRIVAL: Final = ARRIVAL_MASK
BIAS: Final = 1 << 63
PIECE: Final = 100_000
"""Entries that are put in order at once: 5 ms."""
SWEEP: Final = 4
"""Entries that are looked at for each one that became stale: so at most about a quarter of them are."""


def entry_of(key: int, arrival: int, slot: int) -> int:
    return key << KEY_SHIFT | arrival << ARRIVAL_SHIFT | slot


def arrival_of(entry: int) -> int:
    return entry >> ARRIVAL_SHIFT & ARRIVAL_MASK


class MessageOrder:
    """Entries, the least first; `counts` tells of one whether its row still means it."""

    __slots__ = ("_counts", "_swept", "entries", "stale")

    def __init__(self, counts: Callable[[int], bool]) -> None:
        self.entries: list[int] = []
        self.stale = 0
        self._swept = 0
        self._counts = counts

    def __len__(self) -> int:
        return len(self.entries)

    def push(self, entry: int) -> None:
        heappush(self.entries, entry)

    def pop(self) -> int:
        return heappop(self.entries)

    def rebuild(self, entries: list[int]) -> None:
        """One call for all of them would hold everything else in this process for as long as it takes (Q8)."""
        if entries and entries[0] > entries[-1]:
            entries.reverse()  # each would go to the top; from the other end hardly any does
        made = entries[:PIECE]
        heapify(made)
        for at in range(PIECE, len(entries)):
            heappush(made, entries[at])
        self.entries, self.stale, self._swept = made, 0, 0

    def clear(self) -> None:
        """Nobody is left: whatever is here is stale."""
        self.entries.clear()
        self.stale = self._swept = 0

    def left(self) -> None:
        """One of its messages went by its name: its entry is stale now."""
        self.stale += 1
        self.sweep(SWEEP)

    def sweep(self, limit: int) -> None:
        """Take stale entries out, looking at no more than `limit`."""
        entries, at = self.entries, self._swept
        while limit and entries and self.stale:
            limit -= 1
            if at >= len(entries):
                at = 0
            if self._counts(entries[at]):
                at += 1
                continue
            self.stale -= 1
            last = entries.pop()
            if at < len(entries):
                entries[at] = last
                _sift(entries, at)
        self._swept = at

    def best(self, limit: int) -> list[int]:
        """The entries that count, the least first, without taking them: a walk from the root."""
        found: list[int] = []
        edge = [(self.entries[0], 0)] if self.entries else []
        while edge and len(found) < limit:
            entry, at = heappop(edge)
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(self.entries):
                    heappush(edge, (self.entries[child], child))
            if self._counts(entry) and found[-1:] != [entry]:
                found.append(entry)
        return found


def _sift(entries: list[int], at: int) -> None:
    """Put the entry at `at` in its place: up if it is small, else down."""
    entry = entries[at]
    while at and entries[(at - 1) >> 1] > entry:
        entries[at] = entries[(at - 1) >> 1]
        at = (at - 1) >> 1
    size = len(entries)
    while (child := 2 * at + 1) < size:
        if child + 1 < size and entries[child + 1] < entries[child]:
            child += 1
        if entries[child] >= entry:
            break
        entries[at] = entries[child]
        at = child
    entries[at] = entry
