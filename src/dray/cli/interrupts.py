"""Ctrl-C and SIGTERM, for commands that finish what they have begun."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SHELL: Final = 128
"""Shells tell the end by a signal as this and its number."""


class Interrupts:
    """What was asked of this process since it began."""

    def __init__(self) -> None:
        self.code = 0
        """The exit code of a process that a signal ended; 0: none came."""
        self.times = 0

    def hear(self, number: int, _: FrameType | None) -> None:
        self.code = _SHELL + number
        self.times += 1


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Signals are noted, not obeyed: the command looks when it can."""
    heard = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield heard  # signals come to the main thread alone
        return
    before = {number: signal.signal(number, heard.hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
