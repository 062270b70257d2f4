"""Which broker a client should ask for a domain. Only advice: any broker serves any domain.

The leaders of domains are a function of the brokers that there are
(`dray.routing.leaders`), so all brokers answer alike, and each has its share.
A client that names its zone is told of the brokers of that zone alone, and so
of leaders and coordinators in it; if there are none, of all.

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
    RG7  Where brokers have some domains loaded only, the broker to ask about a
         group is the one that leads the domain which keeps it (DL1).
    RG4  Somebody is always named: brokers that are silent, about to stop or
         in another zone are left out only while there are others.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dray.machine.brokers import Broker
from dray.machine.names import StreamId
from dray.replica.domains import Domains
from dray.routing.leaders import bounded_leaders, rank
from dray.routing.view import Node, RoutingView, group_key

MOST_RECKONED: Final = 64


class Routing:
    """The brokers of the cluster, as one of them tells it."""

    def __init__(
        self, *, domains: Domains, cluster_id: str, keeps: Callable[[str, int], int] | None = None
    ) -> None:  # fmt: skip
        """`keeps`: the domain of a group, of so many; where it tells who is to be asked about the group (RG7)."""
        self.cluster_id = cluster_id
        self._keeps = keeps
        self._domains = domains
        self._catalog = domains.catalog
        self._own: Broker | None = None
        """This very broker as it was registered last."""
        self._reckoned: dict[tuple[range, tuple[int, ...]], dict[int, int]] = {}
        self._heard = _Views()
        self._live = _Views()
        self._numbers = self._changes = 0

    @property
    def broker_id(self) -> int:
        """The id of this very broker; -1 while it is not registered."""
        own = self._registered()
        return -1 if own is None else own.broker_id

    def view(self, listener: str, zone: str = "") -> RoutingView:
        """What clients of a listener are told who are in this zone, or say nothing of one."""
        return self._view(self._heard, self._brokers(), listener, zone)

    def settled_view(self, listener: str, zone: str = "") -> RoutingView:
        """As `view`, as the log alone has it: whom this broker does not hear counts, too."""
        return self._view(self._live, _some(self._known(), lambda broker: not broker.draining), listener, zone)

    def nearer(self, listener: str, zone: str, stream: StreamId) -> int:
        """The broker of a zone to read a stream from, for a reader who is there; -1: this one is as near as any."""
        own = self._registered()
        if own is None or own.zone == zone:
            return -1
        view = self.view(listener, zone)
        return view.leader(stream) if view is not self.view(listener) else -1

    def _view(self, views: "_Views", brokers: Mapping[int, Broker], listener: str, zone: str) -> RoutingView:
        domains = self._catalog.machine.head.data_domains
        if (brokers, domains) != (views.brokers, views.domains):
            views.begin(brokers, domains)
            self._changes += 1
        if zone not in views.zones:
            zone = ""  # RG4
        found = views.kept.get((listener, zone))
        if found is None:
            nodes = _nodes((one for one in brokers.values() if not zone or one.zone == zone), listener)
            if not nodes and zone:
                return self._view(views, brokers, listener, "")  # RG4
            self._numbers += 1
            leaders = bounded_leaders(domains, tuple(nodes))
            found = RoutingView(
                number=self._numbers, change=self._changes, nodes=nodes, leaders=leaders,
                keeper=None if self._keeps is None else self._keeper,
            )  # fmt: skip
            views.kept[listener, zone] = found
        return found

    def led(self) -> frozenset[int] | None:
        """The domains that this broker leads for anybody, as the log has it or as it is heard; None: not registered.

        Whoever has no listener that clients are told of leads all the same: it is asked by nobody, but is at work.
        """
        own = self._registered()
        if own is None:
            return None
        domains, found = self._catalog.machine.head.data_domains, set[int]()
        for brokers in (self._brokers(), _some(self._known(), lambda broker: not broker.draining)):
            groups = {tuple(sorted(brokers)), tuple(sorted(n for n, one in brokers.items() if one.zone == own.zone))}
            for entry in own.listeners:
                for zone in ("", own.zone):
                    groups.add(tuple(_nodes((b for b in brokers.values() if not zone or b.zone == zone), entry.name)))
            for numbers in groups:
                leaders = self._leaders(domains, numbers)
                found.update(domain for domain, leader in leaders.items() if leader == own.broker_id)
        return frozenset(found)

    def _leaders(self, domains: range, brokers: tuple[int, ...]) -> Mapping[int, int]:
        """Asked for each group: it is reckoned once for each set of brokers."""
        known = self._reckoned.get((domains, brokers))
        if known is None:
            if len(self._reckoned) >= MOST_RECKONED:
                self._reckoned.clear()
            known = self._reckoned[domains, brokers] = bounded_leaders(domains, brokers)
        return known

    def _keeper(self, group: str) -> int:
        assert self._keeps is not None
        return self._keeps(group, self._catalog.machine.head.group_domains)

    def _brokers(self) -> Mapping[int, Broker]:
        """The brokers that clients should ask, by id."""
        return _some(self._known(), self._is_asked)

    def _known(self) -> Mapping[int, Broker]:
        own = self._registered()
        known = dict(self._catalog.machine.brokers.live)
        if own is not None:
            known.setdefault(own.broker_id, own)  # RG2: even while it registers anew
        return known

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

    def epoch(self, stream: StreamId) -> int:
        """The leader epoch of a stream, in every answer (RG1)."""
        return self._domains.generation(stream)

    def rank(self, group: str) -> int:
        """How many brokers come before this one in looking after a group; 0: none does."""
        brokers = tuple(self._brokers())
        if self._keeps is None:
            return rank(group_key(group), brokers, self.broker_id)
        leader = self._leaders(self._catalog.machine.head.data_domains, brokers).get(self._keeper(group), -1)
        if leader == self.broker_id:
            return 0  # RG7
        return 1 + rank(group_key(group), [one for one in brokers if one != leader], self.broker_id)


class _Views:
    """The views of one set of brokers, kept while it stays the same."""

    def __init__(self) -> None:
        self.begin({}, range(0))

    def begin(self, brokers: Mapping[int, Broker], domains: range) -> None:
        self.brokers = brokers
        self.domains = domains
        self.zones = {broker.zone for broker in brokers.values()}
        self.kept: dict[tuple[str, str], RoutingView] = {}


def _some(known: Mapping[int, Broker], wanted: Callable[[Broker], bool]) -> Mapping[int, Broker]:
    """Those of the brokers that are wanted, or all of them (RG4)."""
    return {number: broker for number, broker in known.items() if wanted(broker)} or known


def _nodes(brokers: Iterable[Broker], listener: str) -> dict[int, Node]:
    """The brokers that have a listener, by id, in order."""
    found = (
        Node(broker_id=broker.broker_id, host=entry.host, port=entry.port, rack=broker.rack or None)
        for broker in brokers
        for entry in broker.listeners
        if entry.name == listener
    )
    return {node.broker_id: node for node in sorted(found, key=lambda node: node.broker_id)}
