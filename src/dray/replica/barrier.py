"""`sync`: one `tail()` in flight per domain, shared; then wait until it is applied here."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable


class SharedTail:
    """Coalesces callers: one call is in flight, whoever comes later shares the next one.

    A caller never shares a call that began before it came: that answer could be
    older than what the caller has already been told elsewhere (LG3). One caller
    of a round leads it, that is, makes the call; no task of its own is needed.
    """

    def __init__(self, tail: Callable[[], Awaitable[int]]) -> None:
        self._tail = tail
        self._led = False
        self._next: list[asyncio.Future[int | None]] = []
        self._sharers: list[asyncio.Future[int | None]] = []

    async def get(self) -> int:
        if self._led:
            position = await self._join()
            if position is not None:
                return position
        self._led = True
        return await self._lead()

    async def _join(self) -> int | None:
        """The answer of the next round, or None if this caller has to lead it."""
        mine: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._next.append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and mine.exception() is None and mine.result() is None:
                self._hand_over(self._sharers)
            raise

    async def _lead(self) -> int:
        sharers, self._sharers = self._sharers, []
        try:
            position = await self._tail()
        except asyncio.CancelledError:
            self._hand_over(sharers)
            raise
        except Exception as error:
            for sharer in sharers:
                if not sharer.done():
                    sharer.set_exception(error)
            self._hand_over([])
            raise
        for sharer in sharers:
            if not sharer.done():
                sharer.set_result(position)
        self._hand_over([])
        return position

    def _hand_over(self, sharers: list["asyncio.Future[int | None]"]) -> None:
        """Make one of the waiting callers lead the next round, which the others then share."""
        waiting = [future for future in sharers + self._next if not future.done()]
        self._next = []
        if waiting:
            self._sharers = waiting[1:]
            waiting[0].set_result(None)
        else:
            self._led = False


class Barrier:
    """Waits for positions to be applied."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None], int]] = []
        self._ticket = 0

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def wait(self, position: int, now_ns: int = 0) -> "asyncio.Future[None]":
        """Resolves when the position is applied; `now_ns` says for `give_up` since when it is waited for."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ticket += 1
        heapq.heappush(self._waiting, (position, self._ticket, future, now_ns))
        return future

    def reached(self, position: int) -> None:
        while self._waiting and self._waiting[0][0] <= position:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    def give_up(self, since_ns: int, error: Exception) -> None:
        """Fail those who have waited since this moment, or for longer."""
        if all(since > since_ns for _, _, _, since in self._waiting):
            return
        kept = []
        for entry in self._waiting:
            if entry[3] > since_ns:
                kept.append(entry)
            elif not entry[2].done():
                entry[2].set_exception(error)
        heapq.heapify(kept)
        self._waiting = kept

    def fail(self, error: Exception) -> None:
        for _, _, future, _ in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
