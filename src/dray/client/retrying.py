"""Trying again: jittered pauses that grow, and deadlines.

Invariants
    CR1  A call whose outcome is unknown is repeated only if to repeat it is
         harmless.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from dray.client.errors import ClientError

FIRST_S: Final = 0.05
LONGEST_S: Final = 5.0
_T = TypeVar("_T")
_H = TypeVar("_H", bound=Hashable)


class Pauses:
    """Between 50 ms and 5 s, each drawn from below twice the one before."""

    def __init__(self) -> None:
        self._most_s = FIRST_S

    def begin_anew(self) -> None:
        self._most_s = FIRST_S

    def next_s(self) -> float:
        drawn = random.uniform(self._most_s / 2, self._most_s)
        self._most_s = min(self._most_s * 2, LONGEST_S)
        return drawn

    async def wait(self) -> None:
        await asyncio.sleep(self.next_s())


def now_s() -> float:
    """Seconds that never run back."""
    return time.monotonic()


class Deadlines(Generic[_H]):
    """Tells of what is not done in its time. All of it shares one timer: one for each call costs more than the call."""

    def __init__(self, late: Callable[[_H], None]) -> None:
        self._late = late
        self._open: dict[_H, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_s = math.inf

    def add(self, one: _H, until_s: float) -> None:
        """Say `late(one)` then, unless it is done."""
        self._open[one] = until_s
        if until_s < self._rings_s:
            self._set(until_s)

    def done(self, one: _H) -> None:
        self._open.pop(one, None)

    def close(self) -> None:
        """Tell of nothing any more."""
        self._open.clear()
        self._rings_s = math.inf
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, until_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_s = until_s
        self._timer = asyncio.get_running_loop().call_later(max(0.0, until_s - now_s()), self._ring)

    def _ring(self) -> None:
        at_s = now_s()
        late = [one for one, until_s in self._open.items() if until_s <= at_s]
        for one in late:
            del self._open[one]
        self._rings_s = math.inf
        if self._open:
            self._set(min(self._open.values()))
        for one in late:
            self._late(one)


async def keep_trying(call: Callable[[float], Awaitable[_T]], timeout: float, *, harmless: bool) -> _T:
    """`call(seconds)` until it answers, fails for good, or the time is over; then its last error."""
    until_s = now_s() + timeout
    pauses = Pauses()
    while True:
        try:
            return await call(max(0.05, until_s - now_s()))
        except ClientError as error:
            again = error.retryable and (harmless or not error.may_have_happened)  # CR1
            pause_s = pauses.next_s()
            if not again or now_s() + pause_s >= until_s:
                raise
        await asyncio.sleep(pause_s)
