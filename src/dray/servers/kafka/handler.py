"""What a handler of an API is, and what it is given.

A module in `apis/` states at its top what it leaves out, and ends with

    ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)

`handle` takes the request and the context and returns the response; it knows
no socket. `refuse` builds the answer of the same request with an error code
in its natural place. Whatever `handle` raises becomes such an answer.

Invariants
    KP7  Handlers of one connection start in the order in which its requests
         arrived; requests run at the same time only if their API overlaps
         and only with requests of the same API.
    KP20  A request that names more than PARTITIONS things is refused with 42
          where its answer has a place for it, before any work.
    KP8  `Turn.wait` returns in the order of arrival, whatever was awaited
         before it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol

import msgspec

from dray.clock import Clock
from dray.errors import Invalid
from dray.fetch.line import Account
from dray.fetch.offsets import OffsetLookup as LogOffsets
from dray.fetch.service import FetchService
from dray.groups.admin import GroupAdmin
from dray.groups.classic import ClassicService
from dray.groups.configs import GroupConfigService
from dray.groups.consumer import ConsumerService
from dray.groups.offsets import OffsetService
from dray.produce.intake import Intake
from dray.produce.service import ProduceService
from dray.replica.domains import Domains
from dray.retention.records import RecordService
from dray.routing.sending import Sending
from dray.routing.service import Routing
from dray.routing.zones import zone_of
from dray.servers.kafka.broker_configs import BrokerConfigs
from dray.servers.kafka.codec import Message, Req, Resp
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.support import Matrix
from dray.topics.service import NewTopic, TopicService

if TYPE_CHECKING:
    from dray.servers.kafka.described import Descriptions  # it needs messages that a server can start without
    from dray.servers.kafka.plain import Plain  # it gives them to handlers


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What handlers use; `node` wires it."""

    domains: Domains
    topics: TopicService
    routing: Routing
    sending: Sending
    described: "Descriptions"
    produce: ProduceService
    intake: Intake
    fetch: FetchService
    log_offsets: LogOffsets
    offsets: OffsetService
    records: RecordService
    classic: ClassicService
    consumers: ConsumerService
    group_admin: GroupAdmin
    group_configs: GroupConfigService
    broker_configs: BrokerConfigs
    clock: Clock
    auto_create: bool
    """Make a topic when a client asks for the metadata of one that does not exist."""
    default_partitions: int

    def default_topic(self, name: str) -> NewTopic:
        """A topic about which nothing but the name was said."""
        return NewTopic(name=name, partitions=self.default_partitions, replication_factor=1, configs={})


class Peer:
    """Who is at the other end of a connection."""

    __slots__ = ("account", "address", "listener", "port", "sends_no_more", "software_name", "software_version")

    def __init__(self, *, address: str, port: int, listener: str, account: Account | None = None) -> None:
        self.address: Final = address
        self.port: Final = port
        self.listener: Final = listener
        self.account: Final = account
        """What it may have of records in memory; None: as much as it likes."""
        self.sends_no_more = False
        """It has closed its side. It may still read, but as a rule it is gone."""
        self.software_name = ""
        """What the client says it is, once it has sent ApiVersions."""
        self.software_version = ""


class Turn:
    """A request's place among the overlapping requests of its connection.

    A handler that must keep order (produce) does what may overlap, awaits its
    turn, does what must be in order without waiting, and passes on. A turn
    that was not passed on is passed on when the handler ends.
    """

    __slots__ = ("_after", "_comes", "_left", "_passed", "_waiter")

    def __init__(self, before: "Turn | None" = None) -> None:
        self._passed = False
        self._left = False
        self._comes = before is None or before._passed
        self._after: Turn | None = None
        self._waiter: asyncio.Future[None] | None = None
        if before is not None and not self._comes:
            before._after = self

    @property
    def passed(self) -> bool:
        """Whether this request, and so every earlier one, has passed on."""
        return self._passed

    async def wait(self) -> None:
        """Return when every earlier request has passed on (KP8)."""
        if not self._comes:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def pass_on(self) -> None:
        """Let the next request have its turn; if this one has not come yet, as soon as it comes."""
        self._left = True
        turn: Turn | None = self
        while turn is not None and turn._comes and turn._left and not turn._passed:
            turn._passed = True
            turn = turn._come_after()

    def _come_after(self) -> "Turn | None":
        after, self._after = self._after, None
        if after is not None:
            after._comes = True
            if after._waiter is not None and not after._waiter.done():
                after._waiter.set_result(None)
        return after


PARTITIONS: Final = 10_000
"""What one request may name: partitions, topics, groups or keys. Kafka draws this line for new partitions."""


class TooMany(Invalid):
    """More than one request may name: split it."""


def check_count(count: int) -> None:
    """Raise unless one request may name so many things (KP20)."""
    if count > PARTITIONS:
        raise TooMany("the request names too many partitions: split it", count=count, limit=PARTITIONS)


def time_limit(timeout_ms: int) -> float | None:
    """Seconds that a request gives to the work it asks for; None: it does not say."""
    return timeout_ms / 1000 if timeout_ms > 0 else None


ALONE: Final = Turn()
"""The turn of a request that overlaps with nothing: it has come."""


class Context(msgspec.Struct, frozen=True):
    """What a handler knows besides the request."""

    version: int
    client_id: str | None
    peer: Peer
    services: Services
    matrix: Matrix
    turn: Turn

    @property
    def zone(self) -> str:
        """The zone that this request names; empty: none."""
        return zone_of(self.client_id)


class Disconnect(Exception):
    """Raised by a handler to close the connection, after the answers before it and after `answer`, if any.

    The reason becomes the label of a metric: it is a constant, never made of what a client sent.
    """

    def __init__(self, reason: str, answer: Message | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[Req, Resp]):
    """The handler of one API."""

    handle: Callable[[Req, Context], Awaitable[Resp | None]]
    """None: the request gets no answer."""
    refuse: Callable[[Req, ErrorCode], Resp | None]
    """None: there is no place for an error, so the connection is closed."""
    plain: "Plain | None" = None
    """Takes what needs no task; flexible versions only."""


class Answering(Protocol):
    """A module with an endpoint."""

    ENDPOINT: Endpoint[Message, Message]
