"""How many connections there are, and who may still come in."""

from collections import Counter

from dray.servers.kafka import telemetry
from dray.servers.kafka.settings import Limits


class Door:
    """Counts the connections of one server, in all and of each address."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._inside = 0
        self._addresses: Counter[str] = Counter()

    def enter(self, address: str, listener: str) -> str | None:
        """Count a connection in; a reason if it may not stay. It leaves all the same."""
        self._inside += 1
        self._addresses[address] += 1
        telemetry.CONNECTIONS.labels(listener).inc()
        limit = self._limits.max_connections_per_address
        if self._inside > self._limits.max_connections:
            return "too many connections"
        if limit is not None and self._addresses[address] > limit:
            return "too many connections of one address"
        return None

    def leave(self, address: str, listener: str) -> None:
        self._inside -= 1
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]
        telemetry.CONNECTIONS.labels(listener).dec()
