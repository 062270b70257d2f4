"""Requests without a task that have all their results, on their way to be answered.

Invariants
    PL2  An order is finished once, and never by the call that tells its last
         result: whoever tells walks a queue that a finished request may
         grow.
"""

import asyncio
from typing import TYPE_CHECKING

from dray.servers.kafka import telemetry
from dray.telemetry import logger

if TYPE_CHECKING:
    from dray.servers.kafka.exchanges import Exchanges
    from dray.servers.kafka.plain import Order  # it needs messages that a server can start without


class Orders:
    """The orders of one server that wait for the end of this turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told: list[Order] = []

    def finish_soon(self, order: "Order") -> None:
        """Finish an order that has all its results, when this turn of the loop is over (PL2)."""
        if not self._told:
            self._loop.call_soon(self._finish)
        self._told.append(order)

    def _finish(self) -> None:
        """Answers of one connection leave together: it is told once."""
        told, self._told = self._told, []
        answered: dict[Exchanges, None] = {}
        for order in told:
            try:
                exchanges = order.finish()
            except Exception as error:  # a mistake of ours; it must not cost the others their answers
                _report(error)
            else:
                if exchanges is not None:
                    answered[exchanges] = None
        for exchanges in answered:
            try:
                exchanges.tell()
            except Exception as error:
                _report(error)


def _report(error: Exception) -> None:
    logger().error(telemetry.HANDLER_FAILED, api=None, version=None, exc_info=error)
