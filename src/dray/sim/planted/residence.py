"""Mistakes about domains that come and go."""

from dray.replica.replica import Replica
from dray.replica.residence import DomainSlot, Residence
from dray.routing.service import Routing


def goes_while_used(self: Residence, slot: DomainSlot, led: frozenset[int]) -> bool:
    """Whoever looks at a domain will notice that it went."""
    return slot.domain not in led and not slot.waiting


def leads_nothing(self: Routing) -> frozenset[int] | None:
    """Whoever is asked loads what it needs: nobody has to have a domain."""
    return frozenset()


async def keeps_its_session(self: Residence, replica: Replica) -> None:
    """The leader expires it some time."""
