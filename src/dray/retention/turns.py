"""Whose turn it is: one process of a domain proposes, the others stand by.

Two that propose at once do no harm, because the machine decides; a turn only
saves work. It belongs to the oldest live broker session of the domain. Where
no session is live nobody moves machine time and nothing ever comes due, so
the oldest broker of the catalog opens one there; and where an elder is silent
whoever notices opens one, which is also what makes it possible to expire the
elder (Q5).

Invariants
    RT1  While the elder does its work, the others write nothing for retention.
"""

from collections.abc import Iterator
from typing import Final

from dray.errors import DrayError
from dray.machine.machine import Machine
from dray.machine.names import SessionId
from dray.machine.sessions import SessionKind
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.retention import telemetry
from dray.telemetry import logger

PATIENCE: Final = 4
"""Passes that a domain may stand still, or an elder may leave work undone, before another one takes a turn."""


class Turns:
    """Asked once a pass."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._seen: dict[int, int] = {}
        self._still: dict[int, int] = {}
        self._neglected: dict[int, int] = {}

    async def take(self) -> list[tuple[int, Replica]]:
        """The domains that this process works on in this pass."""
        mine = []
        for domain, replica in self._domains:
            if not replica.is_loaded or not self._is_mine(domain, replica):
                continue  # RT1
            try:
                if replica.session is None and holds_anything(replica.machine):
                    await replica.open_session()
            except DrayError as error:
                logger().warning(telemetry.FAILED, step="session", domain=domain, error=str(error))
                continue
            mine.append((domain, replica))
        return mine

    def mine(self) -> list[tuple[int, Replica]]:
        """The domains whose elder this process is."""
        return [(domain, replica) for domain, replica in self._domains if self._is_elder(replica)]

    def others(self, mine: list[tuple[int, Replica]]) -> Iterator[tuple[int, Replica]]:
        """The domains in which this process stands by."""
        taken = {domain for domain, _ in mine}
        return ((domain, replica) for domain, replica in self._domains if domain not in taken)

    def watch(self, domain: int, *, undone: bool) -> None:
        """Standing by: is there work that the elder should have done?"""
        self._neglected[domain] = self._neglected.get(domain, 0) + 1 if undone else 0

    def _is_mine(self, domain: int, replica: Replica) -> bool:
        still, neglected = self._stands_still(domain, replica.machine), self._is_neglected(domain)
        if self._is_elder(replica):
            return True
        if still or neglected:
            logger().warning(telemetry.STOOD_IN, domain=domain, still=still)
        return still or neglected

    def _is_elder(self, replica: Replica) -> bool:
        eldest = eldest_broker(replica.machine)
        if eldest is None:
            catalog = self._domains.catalog
            if replica is catalog:
                return True
            replica, eldest = catalog, eldest_broker(catalog.machine)
        return eldest is None or (replica.session is not None and replica.session.id == eldest)

    def _stands_still(self, domain: int, machine: Machine) -> bool:
        still = self._still.get(domain, 0) + 1 if self._seen.get(domain) == machine.position else 0
        self._seen[domain] = machine.position
        self._still[domain] = 0 if still >= PATIENCE else still
        return still >= PATIENCE and holds_anything(machine)

    def _is_neglected(self, domain: int) -> bool:
        if self._neglected.get(domain, 0) < PATIENCE:
            return False
        self._neglected[domain] = 0
        return True


def eldest_broker(machine: Machine) -> SessionId | None:
    """The oldest live broker session of a domain."""
    return min(
        (session.id for session in machine.sessions.live.values() if session.kind is SessionKind.BROKER), default=None
    )


def holds_anything(machine: Machine) -> bool:
    """Is there anything in the domain that time or a deletion may take away?"""
    kept = machine.objects.count or machine.sessions.ended or machine.streams.rows
    return bool(kept or machine.offsets.groups() or machine.groups.all)
