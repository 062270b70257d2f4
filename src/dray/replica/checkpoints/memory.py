"""Checkpoints in memory: for tests and the simulator."""

from dray.errors import Conflict, NotFound
from dray.machine import checkpoint
from dray.machine.checkpoint import Summary
from dray.machine.machine import Machine


class MemoryCheckpoints:
    """Checkpoints in memory, shared by the replicas of a test or a simulation."""

    def __init__(self) -> None:
        self._made: dict[int, bytes] = {}
        self._confirmed: dict[int, bytes] = {}
        self.aside: dict[int, bytes] = {}

    async def write(self, position: int, *runs: bytes | bytearray) -> None:
        if position in self._confirmed:
            raise Conflict("a confirmed checkpoint of this position exists", position=position)
        self._made[position] = b"".join(runs)

    async def examine(self, position: int) -> Summary:
        return checkpoint.summary(_found(self._made, position))

    async def check(self, position: int) -> Summary:
        return checkpoint.summary(_found(self._confirmed, position))

    async def load(self, position: int) -> Machine:
        return checkpoint.load(_found(self._confirmed, position))

    async def confirm(self, position: int) -> None:
        if position in self._made:
            self._confirmed[position] = self._made.pop(position)

    async def confirmed(self) -> list[int]:
        return sorted(self._confirmed)

    def loadable(self) -> dict[int, bytes]:
        """The checkpoints that may be loaded, by position: for checkers."""
        return dict(self._confirmed)

    async def set_aside(self, position: int) -> None:
        if position in self._confirmed:
            self.aside[position] = self._confirmed.pop(position)

    async def discard(self, position: int) -> None:
        self._made.pop(position, None)

    async def remove(self, position: int) -> None:
        self._made.pop(position, None)
        self._confirmed.pop(position, None)

    async def made(self) -> list[int]:
        return sorted(self._made)

    async def sweep(self) -> None:
        """Others may be at work here: nothing goes."""


def _found(kept: dict[int, bytes], position: int) -> bytes:
    if position not in kept:
        raise NotFound("no such checkpoint", position=position)
    return kept[position]
