"""The memory that all connections of a process may hold together.

Requests and receive buffers are charged here. Over the limit nobody with a
large request is read from; connections wait in line and go on when something
was released. Small requests have a reserve beyond the limit, so that a few
who send half of a large request stop nobody but each other.

Half-received frames alone could fill the budget, and then no request would
ever finish and release anything. So while requests under way hold less than
half of the limit, one connection at a time may pass it to complete its frame.

Invariants
    KP9  What is held exceeds the limit by at most the reserve, by what one
         connection may hold, and by what was already under way when the
         limit was reached.
    KP10  While connections wait with half a frame, requests under way hold
          half of the limit, or one of the connections may go on.
    KP18  Until the reserve is used up too, a request that is not larger than
          SMALL_BYTES is read, however much is held by larger ones.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

SMALL_BYTES: Final = 64 * 1024
RESERVE_SHARE: Final = 8
"""One part in so many is added to the limit for small requests."""


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
        self._most_bytes = limit_bytes + limit_bytes // RESERVE_SHARE
        self._request_bytes = 0
        self._line: deque[Waiter] = deque()
        self._small_line: deque[Waiter] = deque()
        self._waiting: set[Waiter] = set()
        self._exempt: Waiter | None = None
        self._waking = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_over(self) -> bool:
        return self.held_bytes >= self.limit_bytes

    def roomy(self) -> bool:
        """Whether memory may be taken for speed alone."""
        return 2 * self.held_bytes < self.limit_bytes

    def admits(self, waiter: Waiter, unfinished: bool, size: int = 0) -> bool:
        """Whether `waiter` may take more; `unfinished`: it has part of a frame, whose size is 0 if not known yet.

        If not, its `go_on` is called when that may have changed.
        """
        if self.held_bytes < self.limit_bytes or self._exempt is waiter:
            return True  # KP9
        if size <= SMALL_BYTES and self.held_bytes < self._most_bytes:
            return True  # KP18
        if unfinished and self._may_exempt():
            self._exempt = waiter  # KP10
            return True
        if waiter not in self._waiting:
            self._waiting.add(waiter)
            (self._small_line if size <= SMALL_BYTES else self._line).append(waiter)
        return False

    def begin_request(self, size: int, waiter: Waiter) -> None:
        """A whole request is held from now on; an exempt connection has what it was exempt for."""
        self.held_bytes += size
        self._request_bytes += size
        self.requests += 1
        if self._exempt is waiter:
            self._exempt = None

    def end_requests(self, count: int, size: int) -> None:
        """So many requests are answered, which were charged `size` together."""
        self.requests -= count
        self._request_bytes -= size
        self.charge(-size)

    def charge(self, size: int) -> None:
        """Hold more, or less if `size` is negative."""
        self.held_bytes += size
        if size < 0 and self._waiting:
            self._wake_soon()

    def leave(self, waiter: Waiter) -> None:
        """`waiter` is gone; what it held was released by it."""
        self._waiting.discard(waiter)
        if self._exempt is waiter:
            self._exempt = None
        if self._waiting:
            self._wake_soon()

    def _may_exempt(self) -> bool:
        return self._exempt is None and 2 * self._request_bytes < self.limit_bytes

    def _wake_soon(self) -> None:
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        for _ in range(len(self._small_line)):  # who is refused again is in line again, behind
            if self.held_bytes >= self._most_bytes and not self._may_exempt():
                break
            self._call(self._small_line)
        for _ in range(len(self._line)):
            if self.is_over and not self._may_exempt():
                return
            self._call(self._line)

    def _call(self, line: deque[Waiter]) -> None:
        waiter = line.popleft()
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            waiter.go_on()
