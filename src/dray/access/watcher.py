"""Streams that end when their key does.

A stream is opened once and lives for hours, so it is not enough to look at
its key when it begins. Each is held here by its key; a look at the records
follows every change of the catalog, and comes each second for keys that
expire.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dray.access import telemetry
from dray.access.errors import OverLimit
from dray.access.principals import KnownCaller
from dray.replica.replica import Replica
from dray.replica.wakeups import CATALOG

LOOK_S: Final = 1.0


class HeldStream:
    """One open stream."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self.ended = asyncio.Event()
        """Set when its key works no more: tell the client so, and close."""


class StreamWatch:
    """The open streams of a broker, by key."""

    def __init__(self, catalog: Replica, most_per_key: int) -> None:
        self._catalog = catalog
        self._most = most_per_key
        self._held: dict[HeldStream, None] = {}
        self._by_key: Counter[str] = Counter()

    @contextmanager
    def hold(self, caller: KnownCaller) -> Iterator[HeldStream]:
        """One more stream of this caller, until the block ends; those of nobody are not counted."""
        key_id = caller.key_id
        if key_id and self._by_key[key_id] >= self._most:
            raise OverLimit("this key has as many streams open as it may", most=self._most)
        stream = HeldStream(key_id)
        self._held[stream] = None
        self._by_key[key_id] += 1
        telemetry.STREAMS.set(len(self._held))
        try:
            yield stream
        finally:
            del self._held[stream]
            self._by_key[key_id] -= 1
            if not self._by_key[key_id]:
                del self._by_key[key_id]
            telemetry.STREAMS.set(len(self._held))

    def look(self, needs_key: bool) -> None:
        """End the streams whose key works no more, and those of nobody once a key is needed (AC5)."""
        find = self._catalog.machine.access.find
        for stream in self._held:
            works = find(stream.key_id) is not None if stream.key_id else not needs_key
            if not works and not stream.ended.is_set():
                stream.ended.set()
                telemetry.STREAMS_ENDED.inc()

    async def wait(self) -> None:
        """Until the next look is due."""
        with self._catalog.waiter((CATALOG,)) as waiter:
            await waiter.wait(LOOK_S)
