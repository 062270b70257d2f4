"""Who waits for which stream, topic or group: keys to futures.

`apply` names what it touched; the replica wakes whoever waits for it. The
machine itself holds no callbacks. A waiter is woken at most once until it
looks again, so a dropped or doubled wake-up costs latency and nothing else.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Final, Self, TypeAlias

from dray.machine.names import StreamId


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Wakes whoever waits for a consumer group to change. A class of its own: a group may have any name."""

    group: str


class _Catalog(Enum):
    CHANGED = "topics, configs or brokers"


class _Groups(Enum):
    MOVED = "some group, or the life of a session"


GROUPS: Final = _Groups.MOVED
"""Wakes whoever keeps the groups of a domain: `Replica.take_moved` tells which have changed."""

CATALOG: Final = _Catalog.CHANGED
"""Wakes whoever waits for topics, configs or brokers to change."""

Key: TypeAlias = StreamId | GroupKey | _Catalog | _Groups
"""What can be waited for. A stream is its bare number: it is what the hot path wakes."""


class Waiter:
    """One caller's interest in some keys. Use it as a context manager, and look before each wait."""

    def __init__(self, wakeups: "Wakeups", keys: Iterable[Key], event: asyncio.Event | None = None) -> None:
        self._wakeups = wakeups
        self._keys = tuple(keys)
        self._event = event or asyncio.Event()
        self._touched: set[Key] = set()

    def __enter__(self) -> Self:
        for key in self._keys:
            self._wakeups.waiters.setdefault(key, {})[self] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for key in self._keys:
            holders = self._wakeups.waiters[key]
            holders.pop(self, None)
            if not holders:
                del self._wakeups.waiters[key]

    def clear(self) -> None:
        """Forget wake-ups so far; call it before looking at the state."""
        self._event.clear()
        self._touched.clear()

    def touched(self) -> set[Key]:
        """What woke it since it was last asked; as `clear`, to be called before looking at that."""
        self._event.clear()
        touched, self._touched = self._touched, set()
        return touched

    def wake(self, key: Key) -> None:
        self._event.set()
        self._touched.add(key)

    def wake_wholly(self) -> None:
        """Nobody knows what was touched: all of it may have been."""
        self._event.set()
        self._touched.update(self._keys)

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
        self.waiters: dict[Key, dict[Waiter, None]] = {}
        """In the order of their coming, so that a simulation wakes them in the same order everywhere."""

    def waiter(self, keys: Iterable[Key], event: asyncio.Event | None = None) -> Waiter:
        return Waiter(self, keys, event)

    def wake(self, keys: Iterable[Key]) -> None:
        """Wake whoever waits for any of these."""
        if not self.waiters:
            return
        for key in keys:
            for waiter in self.waiters.get(key, ()):
                waiter.wake(key)

    def wake_all(self) -> None:
        """Wake everyone: after a jump nobody knows what changed."""
        for waiter in {waiter: None for holders in self.waiters.values() for waiter in holders}:
            waiter.wake_wholly()
