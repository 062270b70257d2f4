"""Which broker a client should ask for a domain. Only advice: any broker serves any domain.

The leader of a partition is the broker with the highest rendezvous weight for
its domain, so all brokers answer alike, and a broker that comes or goes moves
only its own domains.

There is no leader whose change would mean anything, so a leader epoch says
something else: which log it is. It is the generation of the domain, 0 until a
recovery began a new log, in which offsets may have been given a second time.

Invariants
    RG1  Every answer about a partition carries the same leader epoch, and a
         request with another one is told so: 74 below it, 75 above.
    RG2  A broker that serves names itself, also in the moment between two of
         its sessions: a client forgets a broker that an answer leaves out.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from dray.errors import Unavailable
from dray.machine.brokers import Broker
from dray.machine.names import StreamId, domain_of
from dray.replica.domains import Domains


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
        self._known: tuple[int, ...] = ()
        self._changes = 0
        self._own: Broker | None = None
        """This very broker as it was registered last."""

    @property
    def broker_id(self) -> int:
        """The id of this very broker; -1 while it is not registered."""
        own = self._registered()
        return -1 if own is None else own.broker_id

    def nodes(self, listener: str) -> list[Node]:
        """The live brokers that have this listener, by id."""
        nodes = (_node(broker, listener) for _, broker in sorted(self._brokers().items()))
        return [node for node in nodes if node is not None]

    def _brokers(self) -> dict[int, Broker]:
        """The live brokers by id, this one among them even while it registers anew (RG2)."""
        live = self._catalog.machine.brokers.live
        own = self._registered()
        return live if own is None or own.broker_id in live else {**live, own.broker_id: own}

    def _registered(self) -> Broker | None:
        session = self._catalog.session
        found = None if session is None else self._catalog.machine.brokers.of_session(session.id)
        if found is not None:
            self._own = found
        return self._own

    def leadership(self) -> int:
        """A number that is another one whenever leaders may have changed."""
        brokers = tuple(self._brokers())
        if brokers != self._known:
            self._known, self._leaders = brokers, {}
            self._changes += 1
        return self._changes

    def leader(self, stream: StreamId) -> int:
        """The broker that clients should ask about a stream."""
        self.leadership()
        domain = domain_of(stream)
        if domain not in self._leaders:
            self._leaders[domain] = rendezvous(str(domain), self._known, default=self.broker_id)
        return self._leaders[domain]

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
        own = self.broker_id
        return sum(_weight(_group_key(group), other) > _weight(_group_key(group), own) for other in self._brokers())


def rendezvous(key: str, brokers: Sequence[int], *, default: int) -> int:
    """The broker with the highest weight for a key: the same on every broker, under every hash seed."""
    return max(brokers, key=lambda broker: _weight(key, broker), default=default)


def _weight(key: str, broker: int) -> tuple[bytes, int]:
    return hashlib.blake2b(f"{key} {broker}".encode(), digest_size=8).digest(), broker


def _group_key(group: str) -> str:
    return f"group {group}"


def _node(broker: Broker, listener: str) -> Node | None:
    for entry in broker.listeners:
        if entry.name == listener:
            return Node(broker_id=broker.broker_id, host=entry.host, port=entry.port, rack=broker.rack or None)
    return None
