"""Which requests are left to another broker. Any broker serves anything, so usually none are.

Three are that send clients on to whom they are told of: one that was set up so
(`routing.enforce_owner`), one that has not loaded the domain that is asked for,
and one that is about to stop, for partitions only. The last one has withdrawn
already, so the new leaders are in everybody's answers, its own included; what
it has taken it finishes.

A client is refused by what it would be told itself: by its listener and its
zone. Two brokers that see different brokers must not send it to and fro. So
"no" is said after a sync, and only by whoever is the owner neither by the log
alone nor by what it hears: of any two the later one to say no has seen as much
of the log as the other, and goes by it.

Invariants
    SV4  What is refused here did not happen, and the refusal names a broker
         other than this one. What gets no answer is never refused.
    SV6  A broker that has not loaded a domain and is asked for it names its
         leader, or loads it if that is itself or nobody.
    SV5  A broker that the log makes the owner of something serves it, whomever
         it hears; and so does a broker that is alone.
"""

from collections.abc import Sequence

from dray.errors import Unavailable
from dray.groups.placement import domain_of_group
from dray.machine.names import StreamId, domain_of
from dray.replica.domains import CATALOG_DOMAIN
from dray.routing.errors import NotCoordinator, NotLeader
from dray.routing.view import Node, RoutingView
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.handler import Context


class Leading:
    """The partitions of one request: whether this broker serves them."""

    __slots__ = ("_asked", "_context", "_told", "_zone")

    def __init__(self, context: Context, asked: Asked, rack: str = "") -> None:
        """`rack`: where the client is, should its id not tell."""
        self._context = context
        self._asked = asked
        self._zone = context.zone or rack
        self._told: dict[int, Node] = {}

    async def check(self, stream: StreamId) -> None:
        """Raise `NotLeader` if another broker is to serve a partition (SV4)."""
        domains = self._context.services.domains
        has = domains.has(stream)
        if (self._context.services.sending.partitions or not has) and not self._leads(stream):
            await self._asked.catalog()
            if self._leads(stream):
                await domains.ready(domain_of(stream))
                return
            routing = self._context.services.routing
            view = routing.view(self._context.peer.listener, self._zone)
            leader = view.nodes.get(view.leader(stream))
            if leader is not None and leader.broker_id != routing.broker_id:
                self._told[leader.broker_id] = leader
                raise NotLeader(leader, routing.epoch(stream))
        if not has:
            await domains.ready(domain_of(stream))  # SV6

    def _leads(self, stream: StreamId) -> bool:
        own = self._context.services.routing.broker_id
        return any(own == view.leader(stream) for view in _views(self._context, self._zone))  # SV5

    @property
    def told(self) -> Sequence[Node]:
        """The leaders that refusals named: where clients find them."""
        return tuple(self._told.values())


async def check_coordinator(group: str, context: Context) -> None:
    """Raise `NotCoordinator` if another broker is to serve a group (SV4)."""
    domains = context.services.domains
    if domains.is_whole:
        sends, domain = context.services.sending.groups, CATALOG_DOMAIN
    else:
        domain = domain_of_group(group, domains.catalog.machine.head.group_domains)
        sends = context.services.sending.groups or not domains.has(StreamId(domain))
    if sends and not _coordinates(group, context):
        await domains.catalog.sync()
        if not _coordinates(group, context):
            raise NotCoordinator("another broker coordinates the group: ask for it again", group=group[:100])
    await domains.ready(domain)  # SV6


def _coordinates(group: str, context: Context) -> bool:
    own = context.services.routing.broker_id
    try:
        return any(own == view.coordinator(group).broker_id for view in _views(context, context.zone))  # SV5
    except Unavailable:
        return True


def view_of(context: Context) -> RoutingView:
    """What whoever sent a request is told."""
    return context.services.routing.view(context.peer.listener, context.zone)


def _views(context: Context, zone: str) -> tuple[RoutingView, RoutingView]:
    routing, listener = context.services.routing, context.peer.listener
    return routing.view(listener, zone), routing.settled_view(listener, zone)
