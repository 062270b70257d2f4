"""Producers wait while too much waits to be stored.

The produce service tells when its buffers are over their mark. From then on
nothing is read from connections that produce, so that a slow store fills the
sockets of its clients and not our memory; all others are served as ever. On
relief they go on one after another, as long as it lasts.

Invariants
    SV2  While the buffers are over their mark, no further request is taken
         from a connection that has produced; when they are relieved, every
         such connection is asked to go on.
"""

import asyncio
from typing import Protocol

from dray.servers.kafka.budget import Waiter


class Pressure(Protocol):
    """What tells whether too much waits."""

    @property
    def over(self) -> bool: ...

    async def relief(self) -> None: ...


class Relief:
    """The connections that wait for the store, in line."""

    def __init__(self, pressure: Pressure | None, tasks: asyncio.TaskGroup) -> None:
        self._pressure = pressure
        self._tasks = tasks
        self._line: dict[Waiter, None] = {}
        self._watch: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._line)

    def admits(self, waiter: Waiter) -> bool:
        """Whether a producer may be read from. If not, its `go_on` is called when that may have changed (SV2)."""
        if self._pressure is None or not self._pressure.over:
            return True
        self._line[waiter] = None
        if self._watch is None:
            self._watch = self._tasks.create_task(self._wake(self._pressure))
        return False

    def leave(self, waiter: Waiter) -> None:
        self._line.pop(waiter, None)

    def close(self) -> None:
        """Nobody is asked to go on any more."""
        if self._watch is not None:
            self._watch.cancel()

    async def _wake(self, pressure: Pressure) -> None:
        try:
            while self._line:
                await pressure.relief()
                if not self._line:
                    return
                waiter = next(iter(self._line))
                del self._line[waiter]
                waiter.go_on()
                # Its batches are counted once its handlers have run: two turns of the loop.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        finally:
            self._watch = None
