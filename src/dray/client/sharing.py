"""When to send a list, and when to wait for more to share it.

A list costs both sides far more than a message in it. While one is being
synced and the next waits for that, a third gains nothing by going early: what
comes meanwhile shares it. It goes when one of them is answered, when it is
full, or after `LINGER_S`, since the others may wait for something slow.
"""

import asyncio
from collections.abc import Callable
from typing import Final

LIST_ITEMS: Final = 256
LISTS: Final = 32
"""Lists that are unanswered at a time."""
EARLY_LISTS: Final = 2
"""Lists that are unanswered while another is sent that is not full."""
LINGER_S: Final = 0.01


class Sharing:
    """Of one stream of lists, written by one task."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._late = False

    def is_worth_it(self, unanswered: int, *, full: bool) -> bool:
        """Whether a list of what waits may go now."""
        return unanswered < EARLY_LISTS or (unanswered < LISTS and (full or self._late))

    def linger(self) -> None:
        """Something waits that was not worth it: the task is woken when it has waited for long enough."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._hurry)

    def begin_anew(self) -> None:
        """A list has gone, or none will."""
        self._late = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hurry(self) -> None:
        self._late = True
        self._wake()
