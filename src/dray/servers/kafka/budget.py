"""The memory that all connections of a process may hold together.

Requests and receive buffers are charged here. Over the limit nobody is read
from; connections wait in line and go on when something was released.

Half-received frames alone could fill the budget, and then no request would
ever finish and release anything. So while no request is under way, one
connection at a time may pass the limit to complete its frame.

Invariants
    KP9  What is held exceeds the limit by at most what one connection may
         hold, and by what was already under way when the limit was reached.
    KP10  While connections wait with half a frame, a request is under way or
          one of them may go on.
"""

import asyncio
from collections import deque
from typing import Protocol


class Waiter(Protocol):
    """A connection in line."""

    def go_on(self) -> None:
        """Ask again whether it may go on."""
        ...


class Budget:
    """Bytes held against a limit, and who waits for them."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.requests = 0
        self._line: deque[Waiter] = deque()
        self._waiting: set[Waiter] = set()
        self._exempt: Waiter | None = None
        self._waking = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def roomy(self) -> bool:
        """Whether memory may be taken for speed alone."""
        return 2 * self.held_bytes < self.limit_bytes

    def admits(self, waiter: Waiter, unfinished: bool) -> bool:
        """Whether `waiter` may take more; `unfinished`: it has half a frame.

        If not, its `go_on` is called when that may have changed.
        """
        if self.held_bytes < self.limit_bytes or self._exempt is waiter:
            return True  # KP9
        if unfinished and self._exempt is None and self.requests == 0:
            self._exempt = waiter  # KP10
            return True
        if waiter not in self._waiting:
            self._waiting.add(waiter)
            self._line.append(waiter)
        return False

    def begin_request(self, size: int, waiter: Waiter) -> None:
        """A whole request is held from now on; an exempt connection has what it was exempt for."""
        self.held_bytes += size
        self.requests += 1
        if self._exempt is waiter:
            self._exempt = None

    def end_request(self, size: int) -> None:
        self.requests -= 1
        self.charge(-size)

    def charge(self, size: int) -> None:
        """Hold more, or less if `size` is negative."""
        self.held_bytes += size
        if size < 0 and self._line:
            self._wake_soon()

    def leave(self, waiter: Waiter) -> None:
        """`waiter` is gone; what it held was released by it."""
        self._waiting.discard(waiter)
        if self._exempt is waiter:
            self._exempt = None
        if self._line:
            self._wake_soon()

    def _wake_soon(self) -> None:
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        for _ in range(len(self._line)):  # who is refused again is in line again, behind
            if self.held_bytes >= self.limit_bytes and (self._exempt is not None or self.requests):
                return
            waiter = self._line.popleft()
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                waiter.go_on()
