"""Which broker a client should ask for a domain. Only advice: any broker serves any domain.

The leaders of domains are a function of the brokers that there are
(`dray.routing.leaders`), so all brokers answer alike, and each has its share.

A broker counts as long as it is live in the catalog. One that was not heard for
two keep-alives is left out a little earlier, and so is one that is about to
stop: clients move before it is gone. Views may differ for a moment, which costs
nothing, for whoever is asked serves.

There is no leader whose change would mean anything, so a leader epoch says
something else: which log it is. It is the generation of the domain, 0 until a
recovery began a new log, in which offsets may have been given a second time.

Invariants
    RG1  Every answer about a partition carries the same leader epoch, and a
         request with another one is told so: 74 below it, 75 above.
    RG2  A broker that serves names itself, also in the moment between two of
         its sessions: a client forgets a broker that an answer leaves out.
    RG4  Somebody is always named: brokers that are silent or about to stop
         are left out only while there are others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dray.errors import Unavailable
from dray.machine.brokers import Broker
from dray.machine.names import StreamId, domain_of
from dray.replica.domains import Domains
from dray.routing.leaders import bounded_leaders, rank, rendezvous


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker as clients see it on one listener."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class Routing:
    """The brokers of the cluster, as one of them tells it."""

    def __init__(self, *, domains: Domains, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._domains = domains
        self._catalog = domains.catalog
        self._leaders: dict[int, int] = {}
        self._known: tuple[tuple[int, ...], int] = (), 0
        self._changes = 0
        self._own: Broker | None = None
        """This very broker as it was registered last."""

    @property
    def broker_id(self) -> int:
        """The id of this very broker; -1 while it is not registered."""
        own = self._registered()
        return -1 if own is None else own.broker_id

    def nodes(self, listener: str) -> list[Node]:
        """The brokers that have this listener and that clients should ask, by id."""
        nodes = (_node(broker, listener) for _, broker in sorted(self._brokers().items()))
        return [node for node in nodes if node is not None]

    def controller(self, nodes: Sequence[Node]) -> int:
        """The broker that tools should ask, of those that they are told: one fixed choice, though any would do."""
        return min((node.broker_id for node in nodes), default=-1)

    def _brokers(self) -> dict[int, Broker]:
        """The brokers that clients should ask, by id."""
        own = self._registered()
        known = dict(self._catalog.machine.brokers.live)
        if own is not None:
            known.setdefault(own.broker_id, own)  # RG2: even while it registers anew
        asked = {number: broker for number, broker in known.items() if self._is_asked(broker)}
        return asked or known  # RG4

    def _is_asked(self, broker: Broker) -> bool:
        if broker.draining:
            return False
        own = self._own is not None and broker.broker_id == self._own.broker_id
        return own or not self._catalog.is_silent(broker.session)

    def _registered(self) -> Broker | None:
        session = self._catalog.session
        found = None if session is None else self._catalog.machine.brokers.of_session(session.id)
        if found is not None:
            self._own = found
        return self._own

    def leadership(self) -> int:
        """A number that is another one whenever leaders may have changed."""
        head = self._catalog.machine.head
        known = tuple(sorted(self._brokers())), head.domains
        if known != self._known:
            self._known, self._leaders = known, bounded_leaders(head.data_domains, known[0])
            self._changes += 1
        return self._changes

    def leaders(self) -> Mapping[int, int]:
        """The broker that clients should ask, for each domain that holds streams."""
        self.leadership()
        return self._leaders

    def leader(self, stream: StreamId) -> int:
        """The broker that clients should ask about a stream."""
        return self.leaders().get(domain_of(stream), self.broker_id)

    def epoch(self, stream: StreamId) -> int:
        """The leader epoch of a stream, in every answer (RG1)."""
        return self._domains.of(stream).machine.head.generation

    def coordinator(self, group: str, listener: str) -> Node:
        """The broker that clients should ask about a group."""
        nodes = {node.broker_id: node for node in self.nodes(listener)}
        if not nodes:
            raise Unavailable("no broker is registered yet: try again")
        return nodes[rendezvous(_group_key(group), tuple(nodes), default=min(nodes))]

    def is_coordinator(self, group: str, listener: str) -> bool:
        """Whether clients of a listener are told to ask this very broker about a group."""
        return self.coordinator(group, listener).broker_id == self.broker_id

    def rank(self, group: str) -> int:
        """How many brokers come before this one in looking after a group; 0: it is the one that clients are told."""
        return rank(_group_key(group), tuple(self._brokers()), self.broker_id)


def _group_key(group: str) -> str:
    return f"group {group}"


def _node(broker: Broker, listener: str) -> Node | None:
    for entry in broker.listeners:
        if entry.name == listener:
            return Node(broker_id=broker.broker_id, host=entry.host, port=entry.port, rack=broker.rack or None)
    return None
