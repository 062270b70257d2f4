"""A log in the memory of one process: for tests and the simulator.

Several replicas share one sequence, each through a handle of its own. There
is no thread, socket or clock in it, so a simulated run repeats exactly. It
keeps LG1 to LG4 for as long as the sequence lives: "durable" means "in it".
"""

import asyncio
from collections.abc import AsyncIterator

from dray.errors import Invalid
from dray.log.bell import Bell
from dray.log.limits import MAX_ENTRY_BYTES, check_entry, gone_back, trimmed
from dray.log.port import NotAppended, Position


class MemorySequence:
    """What the handles share; it stands for the disk and outlives them."""

    def __init__(self) -> None:
        self.first = 1
        self.entries: list[bytes] = []
        self.bell = Bell()

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1

    def append(self, entry: bytes) -> int:
        self.entries.append(entry)
        self.bell.ring()
        return self.last

    def trim(self, upto: int) -> None:
        gone = max(0, upto + 1 - self.first)
        del self.entries[:gone]
        self.first += gone
        self.bell.ring()


class MemoryLog:
    """One handle on a sequence."""

    def __init__(self, sequence: MemorySequence | None = None, *, max_entry_bytes: int = MAX_ENTRY_BYTES) -> None:
        self.sequence = sequence or MemorySequence()
        self._max_entry_bytes = max_entry_bytes
        self._closed = False

    def handle(self) -> "MemoryLog":
        """A second handle on the same sequence, as another process would have."""
        return MemoryLog(self.sequence, max_entry_bytes=self._max_entry_bytes)

    async def append(self, entry: bytes) -> Position:
        check_entry(entry, self._max_entry_bytes)
        if self._closed:
            raise NotAppended("the log is closed")
        position = Position(self.sequence.append(entry))
        # The answer comes in a later turn, as it does from a real engine.
        await asyncio.sleep(0)
        return position

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        sequence = self.sequence
        while not self._closed:
            if after + 1 < sequence.first:
                raise trimmed(after, Position(sequence.first))
            if after > sequence.last:
                raise gone_back(after, sequence.last)  # LG25
            if after == sequence.last:
                await sequence.bell.wait()
                continue
            after = Position(after + 1)
            yield after, sequence.entries[after - sequence.first]

    async def tail(self) -> Position:
        return Position(self.sequence.last)

    async def trim(self, upto: Position) -> None:
        if upto > self.sequence.last:
            raise Invalid("cannot trim above the tail", upto=upto, tail=self.sequence.last)
        self.sequence.trim(upto)

    async def close(self) -> None:
        self._closed = True
        self.sequence.bell.ring()
