"""Deadlines by key, on the boot clock: set, moved, taken when they are due.

Invariants
    GS3  Timers never fire for time in which their loop did not run: whoever
         slept heard nobody, and that says nothing about others.
"""

import heapq
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from dray.clock import Clock

LATE_NS: Final = 500_000_000
"""A loop that wakes later than this was asleep."""
TICK_S: Final = 0.5
"""Nobody sleeps longer than this while something is timed: what passes unseen within a sleep counts as lived."""
IDLE_S: Final = 10.0
_TICK_NS: Final = int(TICK_S * 1e9)

Key = TypeVar("Key", bound=Hashable)


class Timetable(Generic[Key]):
    """When things are due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_ns: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._ticket = 0
        self._planned_ns: int | None = None
        self._busy = False

    def __contains__(self, key: Key) -> bool:
        return key in self._due_ns

    def __len__(self) -> int:
        return len(self._due_ns)

    def set(self, key: Key, after_ms: int) -> bool:
        """The key is due so long from now, whatever was said before.

        Tells whether the loop must wake: because it is due before that, or because the loop had nothing timed and
        sleeps longer than it may from now on (GS3).
        """
        now_ns = self._clock.boot_ns()
        due_ns = now_ns + after_ms * 1_000_000
        self._due_ns[key] = due_ns
        self._push(key, due_ns)
        return self._planned_ns is not None and self._planned_ns > min(due_ns, now_ns + _TICK_NS)

    def clear(self, key: Key) -> None:
        self._due_ns.pop(key, None)

    def take(self) -> list[Key]:
        """What is due now, and so no more set."""
        now_ns = self._clock.boot_ns()
        self._catch_up(now_ns)
        self._planned_ns = now_ns + _TICK_NS if self._busy else None
        due = []
        while self._heap and self._heap[0][0] <= now_ns:
            due_ns, _, key = heapq.heappop(self._heap)
            meant_ns = self._due_ns.get(key)
            if meant_ns == due_ns:
                del self._due_ns[key]
                due.append(key)
        return due

    def tick(self) -> None:
        """Its loop works, and says so at least every `TICK_S`: whether it sleeps meanwhile is seen, too."""
        now_ns = self._clock.boot_ns()
        self._catch_up(now_ns)
        self._busy, self._planned_ns = True, now_ns + _TICK_NS

    def plan(self) -> float:
        """How many seconds its loop may sleep; the next `take` knows whether it slept longer."""
        now_ns = self._clock.boot_ns()
        if self._busy:
            self._catch_up(now_ns)
            self._busy = False
        while self._heap and self._due_ns.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # it was moved or cleared
        seconds = IDLE_S if not self._heap else min(TICK_S, max(0.0, (self._heap[0][0] - now_ns) / 1e9))
        self._planned_ns = now_ns + int(seconds * 1e9)
        return seconds

    def _catch_up(self, now_ns: int) -> None:
        if self._planned_ns is not None and now_ns - self._planned_ns > LATE_NS:
            self._move(now_ns - self._planned_ns)  # GS3

    def _push(self, key: Key, due_ns: int) -> None:
        self._ticket += 1
        heapq.heappush(self._heap, (due_ns, self._ticket, key))
        if len(self._heap) > 64 + 4 * len(self._due_ns):
            self._move(0)

    def _move(self, by_ns: int) -> None:
        """All deadlines come later; what was moved or cleared before leaves the heap."""
        self._due_ns = {key: due_ns + by_ns for key, due_ns in self._due_ns.items()}
        self._heap = [(due_ns, ticket, key) for ticket, (key, due_ns) in enumerate(self._due_ns.items())]
        self._ticket = len(self._heap)
        heapq.heapify(self._heap)
