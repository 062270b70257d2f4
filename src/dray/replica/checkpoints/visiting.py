"""Checkpoints of who visits a cluster: those that its brokers have published, read from where they lie.

Nothing is written to a disk or to the store. What a visitor makes itself is in
its memory and ends with it.
"""

from contextlib import suppress

from dray.errors import NotFound
from dray.machine import checkpoint
from dray.machine.checkpoint import Summary
from dray.machine.machine import Machine
from dray.offload import Offload
from dray.replica.checkpoints.joined import Confirmed
from dray.replica.checkpoints.memory import MemoryCheckpoints


class VisitingCheckpoints(MemoryCheckpoints):
    """Theirs, beside our own in memory."""

    def __init__(self, theirs: Confirmed, offload: Offload) -> None:
        super().__init__()
        self._theirs = theirs
        self._offload = offload
        self._unreadable: set[int] = set()

    async def confirmed(self) -> list[int]:
        theirs = await self._theirs.confirmed()
        return sorted({*await super().confirmed(), *theirs} - self._unreadable)

    async def read(self, position: int) -> bytes:
        """The bytes of a confirmed checkpoint."""
        own = self.loadable().get(position)
        return await self._theirs.read(position) if own is None else own

    async def check(self, position: int) -> Summary:
        return await self._offload.run(checkpoint.summary, await self.read(position))

    async def load(self, position: int) -> Machine:
        return await self._offload.run(checkpoint.load, await self.read(position))

    async def set_aside(self, position: int) -> None:
        """Theirs lies where it is, and we look at it no more (CK3)."""
        if position not in self.loadable():
            with suppress(NotFound):
                self.aside[position] = await self._theirs.read(position)
            self._unreadable.add(position)
        await super().set_aside(position)
