"""Time, as a port.

Wall time names moments to people and to retention; it may jump. Durations are
measured on CLOCK_BOOTTIME, which goes on while the machine sleeps, so that a
laptop that was closed for an hour knows that an hour has passed.
"""

import asyncio
import time
from typing import NewType, Protocol

WallMs = NewType("WallMs", int)
"""Milliseconds since 1970 by the wall clock."""


class Clock(Protocol):
    """What a process knows about time."""

    def wall_ms(self) -> WallMs: ...

    def boot_ns(self) -> int:
        """Nanoseconds that never run back and that count sleep; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clocks of this machine."""

    def wall_ms(self) -> WallMs:
        return WallMs(time.time_ns() // 1_000_000)

    def boot_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that moves when a test says so. Sleepers wake in order of their deadline."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, boot_ns: int = 0) -> None:
        self._wall_ms = wall_ms
        self._boot_ns = boot_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ticket = 0

    def wall_ms(self) -> WallMs:
        return WallMs(self._wall_ms)

    def boot_ns(self) -> int:
        return self._boot_ns

    async def sleep(self, seconds: float) -> None:
        self._ticket += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._boot_ns + int(seconds * 1e9), self._ticket, future))
        await future

    def advance(self, ms: int) -> None:
        """Let `ms` pass on both clocks."""
        self._wall_ms += ms
        self._boot_ns += ms * 1_000_000
        due = sorted(entry for entry in self._sleepers if entry[0] <= self._boot_ns)
        self._sleepers = [entry for entry in self._sleepers if entry[0] > self._boot_ns]
        for _, _, future in due:
            if not future.done():
                future.set_result(None)

    def jump_wall(self, ms: int) -> None:
        """Move the wall clock alone, as an operator or a broken NTP does."""
        self._wall_ms += ms
