"""Trying again: jittered pauses that grow, and a deadline.

Invariants
    CR1  A call whose outcome is unknown is repeated only if to repeat it is
         harmless.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from dray.client.errors import ClientError

FIRST_S: Final = 0.05
LONGEST_S: Final = 5.0
_T = TypeVar("_T")


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
