"""How much waits, and whether that is too much.

Two things may run out: the bytes that were taken and not yet answered, and
the memory of the offset index. Both refuse before they grow beyond their
bound, and both tell earlier that they will.

Invariants
    PR5  Bytes that wait for an answer, with what each batch takes besides,
         never exceed the bound, except by one batch that is larger than the
         bound and waits alone.
"""

import asyncio
from typing import Final

from dray.produce.errors import Overloaded
from dray.produce.telemetry import INDEX_BYTES, INDEX_PRESSURE
from dray.telemetry import logger

BATCH_OVERHEAD: Final = 640
"""What a waiting batch takes besides its bytes: view, future, fields. Tiny batches fill memory with these."""

_SOFT: Final = 0.8
"""The share of the index budget above which producers are slowed down."""


class Pressure:
    """Bytes taken and not yet answered, of the whole process."""

    def __init__(self, *, limit: int, high: int) -> None:
        self.unacked = 0
        self._limit = limit
        self.high: Final = high
        self._low = high * 3 // 4
        self.over = False
        """Servers stop reading while this holds: from the high mark until three quarters of it."""
        self._relieved = asyncio.Event()
        self._relieved.set()
        self._empty: asyncio.Event | None = None

    def take(self, size: int) -> None:
        """Count bytes in; `Overloaded` if they do not fit (PR5)."""
        unacked = self.unacked + size
        if unacked > self._limit and self.unacked:
            raise Overloaded("too much waits to be stored", waiting_bytes=self.unacked, limit_bytes=self._limit)
        self.unacked = unacked
        if unacked > self.high:
            self.over = True
            self._relieved.clear()

    def pin(self, size: int) -> None:
        """Count bytes that cannot be refused any more: a put that lost its race still holds them."""
        self.unacked += size

    def give_back(self, size: int) -> None:
        self.unacked -= size
        if self.unacked <= self._low:
            if self.over:
                self.over = False
                self._relieved.set()
            if not self.unacked and self._empty is not None:
                self._empty.set()

    async def emptied(self) -> None:
        """Return when nothing waits; only for one who lets nothing more in."""
        if self.unacked:
            self._empty = asyncio.Event()
            await self._empty.wait()

    async def relief(self) -> None:
        """Return when reading may go on; at once if nothing is wrong."""
        await self._relieved.wait()


class IndexBudget:
    """What the offset index may hold; looked at now and then, for it counts every stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.throttled = False
        self.exhausted = False

    def seen(self, size: int) -> None:
        INDEX_BYTES.set(size)
        throttled, exhausted = size > self._limit * _SOFT, size > self._limit
        if (throttled, exhausted) != (self.throttled, self.exhausted):
            logger().warning(INDEX_PRESSURE, bytes=size, limit=self._limit, throttled=throttled, refusing=exhausted)
        self.throttled, self.exhausted = throttled, exhausted
