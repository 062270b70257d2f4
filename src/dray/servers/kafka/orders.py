"""Requests without a task that are under way: who has all results, and whose time is up.

Invariants
    PL2  An order is finished once, and never by the call that tells its last
         result: whoever tells walks a queue that a finished request may
         grow.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from dray.clock import Clock
from dray.servers.kafka import telemetry
from dray.telemetry import logger

if TYPE_CHECKING:
    from dray.servers.kafka.plain import Order  # it needs messages that a server can start without

_TICK_S: Final = 0.1
"""An order whose time is up is answered at most this much later."""


class Orders:
    """The orders of one server that are under way."""

    def __init__(self, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._clock = clock
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._told: list[Order] = []
        self._lines: dict[int, dict[Order, None]] = {}
        """By how much time they have, who came first first: so the first of a line is the next whose time is up."""
        self._watch: asyncio.Task[None] | None = None

    def add(self, order: "Order") -> None:
        line = self._lines.get(order.timeout_ms)
        if line is None:
            line = self._lines[order.timeout_ms] = {}
        line[order] = None
        if self._watch is None:
            self._watch = self._tasks.create_task(self._expire())

    def remove(self, order: "Order") -> None:
        del self._lines[order.timeout_ms][order]

    def finish_soon(self, order: "Order") -> None:
        """Finish an order that has all its results, when this turn of the loop is over (PL2)."""
        if not self._told:
            self._loop.call_soon(self._finish)
        self._told.append(order)

    def close(self) -> None:
        """Nobody's time is watched any more."""
        if self._watch is not None:
            self._watch.cancel()

    def _finish(self) -> None:
        told, self._told = self._told, []
        for order in told:
            try:
                order.finish()
            except Exception as error:  # a mistake of ours; it must not cost the others their answers
                logger().error(telemetry.HANDLER_FAILED, api=None, version=None, exc_info=error)

    async def _expire(self) -> None:
        try:
            while self._lines:
                await self._clock.sleep(_TICK_S)
                now_ns = self._clock.boot_ns()
                for timeout_ms, line in list(self._lines.items()):
                    for order in _late(line, now_ns - timeout_ms * 1_000_000):
                        self.finish_soon(order)
                    if not line:
                        del self._lines[timeout_ms]
        finally:
            self._watch = None


def _late(line: "dict[Order, None]", begun_before_ns: int) -> "list[Order]":
    late = []
    for order in line:
        if order.begun_ns > begun_before_ns:
            break
        late.append(order)
    return late
