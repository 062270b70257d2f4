"""Answers that are due: a producer that gave a second is told after a second that nobody knows yet.

Almost every answer comes within milliseconds, long before it is due, and a
timer for each of them would cost more than anything else a small request
needs. So an answer is only put into a list. A few times a second the list is
looked through: what was answered is dropped, and what is left is looked at
again when it is due, or a second later: nothing that was answered is held for
longer than that.

The batch itself goes on: it may be stored after its producer was told, and
what it holds is counted until then.

Invariants
    PR9  An answer that does not come is given as unknown (`TimedOut`) no
         earlier than it is due, and no later than two ticks after that.
"""

import asyncio
from operator import itemgetter
from typing import Final

from dray.produce.errors import TimedOut
from dray.produce.flush import fail
from dray.produce.receiver import Receiver

TICK_S: Final = 0.05
_LOOK_AGAIN_TICKS: Final = 20
_due: Final = itemgetter(1)


class Deadlines:
    """The answers of one process that somebody waits for, and how long."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tick_s: float = TICK_S) -> None:
        self._loop = loop
        self._tick_s = tick_s
        self._new: list[tuple[Receiver, int]] = []
        self._slow: dict[int, list[tuple[Receiver, int]]] = {}
        """What was not answered at the first look, and when it is due; by the tick at which to look again."""
        self._tick = 0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, answer: Receiver, timeout_ms: int) -> None:
        """Give up this answer when its time has passed; a time of 0 or less never passes."""
        if timeout_ms > 0:
            self._new.append((answer, timeout_ms))
            if self._timer is None:
                self._timer = self._loop.call_later(self._tick_s, self._look)

    def stop(self) -> None:
        """Look no more: whoever stops answers everyone anyway (PR8)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._new.clear()
        self._slow.clear()

    def _look(self) -> None:
        """A tick has passed."""
        self._tick += 1
        tick, ms = self._tick, int(self._tick_s * 1000)
        taken, self._new = self._new, []
        # They came at the last tick or later, so counting from this one is never too early (PR9).
        later = [(answer, tick - timeout_ms // -ms) for answer, timeout_ms in taken if not answer.done()]
        again = tick + _LOOK_AGAIN_TICKS
        if later and min(map(_due, later)) >= again:  # as a rule
            self._slow.setdefault(again, []).extend(later)
        else:
            for answer, due in later:
                self._wait(answer, due)
        for answer, due in self._slow.pop(tick, ()):
            if due <= tick:
                fail(answer, TimedOut("not stored in the time that was given: it may still be"))
            else:
                self._wait(answer, due)
        self._timer = None
        if self._new or self._slow:
            self._timer = self._loop.call_later(self._tick_s, self._look)

    def _wait(self, answer: Receiver, due: int) -> None:
        if not answer.done():
            self._slow.setdefault(min(due, self._tick + _LOOK_AGAIN_TICKS), []).append((answer, due))
