"""Who waits for which stream, topic or group: keys to futures.

`apply` names what it touched; the replica wakes whoever waits for it. The
machine itself holds no callbacks. A waiter is woken at most once until it
looks again, so a dropped or doubled wake-up costs latency and nothing else.
"""

import asyncio
from collections.abc import Hashable, Iterable
from types import TracebackType
from typing import Self


class Waiter:
    """One caller's interest in some keys. Use it as a context manager, and look before each wait."""

    def __init__(self, wakeups: "Wakeups", keys: Iterable[Hashable], event: asyncio.Event | None = None) -> None:
        self._wakeups = wakeups
        self._keys = tuple(keys)
        self._event = event or asyncio.Event()

    def __enter__(self) -> Self:
        for key in self._keys:
            self._wakeups.waiters.setdefault(key, set()).add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for key in self._keys:
            holders = self._wakeups.waiters[key]
            holders.discard(self)
            if not holders:
                del self._wakeups.waiters[key]

    def clear(self) -> None:
        """Forget wake-ups so far; call it before looking at the state."""
        self._event.clear()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until woken, at most this long; tells whether it was woken."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class Wakeups:
    """All waiters of one replica."""

    def __init__(self) -> None:
        self.waiters: dict[Hashable, set[Waiter]] = {}

    def waiter(self, keys: Iterable[Hashable], event: asyncio.Event | None = None) -> Waiter:
        return Waiter(self, keys, event)

    def wake(self, keys: Iterable[Hashable]) -> None:
        """Wake whoever waits for any of these."""
        if not self.waiters:
            return
        for key in keys:
            for waiter in self.waiters.get(key, ()):
                waiter.wake()  # an event is set: order does not matter

    def wake_all(self) -> None:
        """Wake everyone: after a jump nobody knows what changed."""
        for holders in self.waiters.values():
            for waiter in holders:
                waiter.wake()
