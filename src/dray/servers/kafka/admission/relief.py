"""Producers wait while too much waits to be stored.

The produce service tells when its buffers are over their mark. From then on
nothing is read from connections that produce, so that a slow store fills the
sockets of its clients and not our memory; all others are served as ever. On
relief they go on one after another, who waited longest first, as long as it
lasts; nobody overtakes them.

The service counts a batch when it is validated, and by then hundreds of
connections may have been read from in the same turn of the loop. So requests
that carry records are counted here too, from the moment they are begun.

Invariants
    SV2  While the buffers, or the requests on their way into them, are over
         the mark, no further request is taken from a connection that has
         produced; when they are relieved, every such connection is asked to
         go on, who waited longest first.
"""

import asyncio
import sys
from typing import Protocol

from dray.servers.kafka import telemetry
from dray.servers.kafka.admission.budget import Waiter
from dray.telemetry import logger


class Pressure(Protocol):
    """What tells whether too much waits."""

    @property
    def over(self) -> bool: ...

    @property
    def high(self) -> int:
        """The mark, in bytes."""
        ...

    async def relief(self) -> None: ...


class Relief:
    """The connections that wait for the store, in line."""

    def __init__(self, pressure: Pressure | None, tasks: asyncio.TaskGroup) -> None:
        self._pressure = pressure
        self._tasks = tasks
        self._line: dict[Waiter, None] = {}
        self._called: Waiter | None = None
        self._watch: asyncio.Task[None] | None = None
        self._begun_bytes = 0
        self._most_bytes = sys.maxsize if pressure is None else pressure.high
        self._full = False
        self._room = asyncio.Event()
        self._room.set()

    def begin(self, size: int) -> None:
        """A request with records is on its way."""
        self._begun_bytes += size
        if self._begun_bytes > self._most_bytes:
            self._full = True
            self._room.clear()

    def end(self, size: int) -> None:
        """That request has its answer."""
        self._begun_bytes -= size
        if self._full and self._begun_bytes <= self._most_bytes * 3 // 4:
            self._full = False
            self._room.set()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def admits(self, waiter: Waiter) -> bool:
        """Whether a producer may be read from. If not, its `go_on` is called when that may have changed (SV2)."""
        if self._pressure is None or (not self._over(self._pressure) and (not self._line or waiter is self._called)):
            return True
        self._line.setdefault(waiter)
        if self._watch is None:
            self._watch = self._tasks.create_task(self._wake(self._pressure))
        return False

    def leave(self, waiter: Waiter) -> None:
        self._line.pop(waiter, None)

    def close(self) -> None:
        """Nobody is asked to go on any more."""
        if self._watch is not None:
            self._watch.cancel()

    def _over(self, pressure: Pressure) -> bool:
        return pressure.over or self._full

    async def _wake(self, pressure: Pressure) -> None:
        try:
            while self._line:
                await pressure.relief()
                await self._room.wait()
                while self._line and not self._over(pressure):
                    self._called = next(iter(self._line))
                    del self._line[self._called]
                    try:
                        self._called.go_on()
                    except Exception as error:  # a mistake of ours; the others in the line go on
                        logger().error(telemetry.HANDLER_FAILED, api=None, version=None, exc_info=error)
                self._called = None
        finally:
            self._watch = None
