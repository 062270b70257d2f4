"""What clients of one zone are told: brokers, and which of them to ask about what.

Invariants
    RG6  Whoever a view names as a leader, a coordinator or the controller is
         among its nodes: clients take any other for nobody.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dray.errors import Unavailable
from dray.machine.names import StreamId, domain_of
from dray.routing.leaders import rendezvous


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker as clients see it on one listener."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingView:
    """The brokers that some clients are told of. It stays as it is: who takes a new one may see others."""

    number: int
    """No two views of a process have the same."""
    change: int
    """How often the brokers had changed before: what is kept of a view is of no use after the next time."""
    nodes: Mapping[int, Node]
    """By id, in order."""
    leaders: Mapping[int, int]
    """The broker to ask, for each domain that holds streams."""
    keeper: Callable[[str], int] | None = None
    """The domain of a group, where its leader is to be asked about the group (RG7)."""

    @property
    def controller(self) -> int:
        """The broker that tools should ask: one fixed choice, though any would do; -1: there is nobody."""
        return next(iter(self.nodes), -1)

    def leader(self, stream: StreamId) -> int:
        """The broker to ask about a stream; -1: there is nobody."""
        return self.leaders.get(domain_of(stream), -1)  # RG6

    def coordinator(self, group: str) -> Node:
        """The broker to ask about a group."""
        if not self.nodes:
            raise Unavailable("no broker is registered yet: try again")
        if self.keeper is not None:
            return self.nodes[self.leaders[self.keeper(group)]]  # RG7
        return self.nodes[rendezvous(group_key(group), tuple(self.nodes), default=-1)]  # RG6


def group_key(group: str) -> str:
    """What a group weighs by."""
    return f"group {group}"
