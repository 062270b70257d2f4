"""Plain Produce requests: taken, submitted and answered without a task.

    frame -> rows (one call of the kernel) -> batches -> lanes
                                                           |
    connection <- answer of the order <- results, collected until the turn of the loop ends

A task, a future and a dozen messages cost more than all else that is done for
a request with one small record. A plain request waits for nothing but its
batches, so an `Order` stands where another request has its task: the lanes
tell it what became of each batch, and the last one to come finishes it.

What is not plain (see `dray.records.pure_request`), and what a topic refuses,
is served by `handle` of the endpoint, which says why.

Invariants
    PL1  What is taken here, `handle` would have taken: with the same batches,
         and the same bytes for an answer.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from dray.buffers import Buffer
from dray.errors import DrayError
from dray.produce.batches import NewBatch, Stored
from dray.produce.flush import because, report
from dray.records import plain_request
from dray.records.pure_request import Row
from dray.routing.view import RoutingView
from dray.routing.zones import zone_of
from dray.servers.kafka.asked import named
from dray.servers.kafka.codec import decode, encode, put_uvarint
from dray.servers.kafka.handler import Peer, Services
from dray.servers.kafka.messages.produce import (
    SCHEMA,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER

if TYPE_CHECKING:
    from dray.servers.kafka.exchanges import Exchange, Exchanges
    from dray.servers.kafka.orders import Orders

_WRITE: Final = SCHEMA.response.write[9]
"""The answers of versions 9 to 12 are the same bytes."""
_HEAD: Final = struct.Struct(">iib")
_STORED: Final = struct.Struct(">ihqqq").pack
_NO_ERRORS: Final = b"\x01\0\0"  # of records, no message, no tags
_END: Final = b"\0\0\0\0\0"  # no throttling, no tags
_ONE_ENDS: Final = _NO_ERRORS + b"\0" + _END


Failure: TypeAlias = Callable[[int, DrayError], PartitionProduceResponse]
"""How an error of a partition is answered."""


class Plain:
    """The part of the Produce endpoint that needs no task."""

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def take(self, frame: memoryview, services: Services, peer: Peer) -> "Order | None":
        """A request of version 9 to 12 as an order that can begin; None: it is for `handle`."""
        found = plain_request(frame)
        if found is None:
            return None
        correlation_id, timeout_ms, rows = found
        if timeout_ms <= 0:
            return None
        view = _view(frame, services, peer) if services.sending.partitions else None
        now_ms, take_row = services.clock.wall_ms(), services.intake.take_row
        batches: list[NewBatch] = []
        is_whole = services.domains.is_whole
        for row in rows:
            topic = named(row[0], services)
            if topic is None or not 0 <= row[1] < topic.visible:
                return None
            if not is_whole and not services.domains.has(topic.streams[row[1]]):
                return None
            if view is not None and view.leader(topic.streams[row[1]]) != services.routing.broker_id:
                return None
            batch = take_row(topic, frame, row, now_ms)
            if batch is None:
                return None
            batches.append(batch)
        return Order(correlation_id, timeout_ms, rows, batches, self._failure)


def _view(frame: memoryview, services: Services, peer: Peer) -> RoutingView:
    """What whoever sent a request is told."""
    header, _, _ = decode(REQUEST_HEADER.read[2], frame, 0)
    return services.routing.view(peer.listener, zone_of(header.client_id))


class Order:
    """A plain request; from `begin` on its batches are on their way.

    Most requests have one batch: their order is told itself, as a `Receiver`.
    """

    __slots__ = (
        "_batches",
        "_correlation_id",
        "_exchange",
        "_exchanges",
        "_failure",
        "_left",
        "_orders",
        "_results",
        "_rows",
        "_timeout_ms",
        "over",
    )

    def __init__(
        self, correlation_id: int, timeout_ms: int, rows: list[Row], batches: list[NewBatch], failure: Failure
    ) -> None:
        self.over = False
        self._timeout_ms = timeout_ms
        self._correlation_id = correlation_id
        self._rows = rows
        self._batches = batches
        self._failure = failure
        self._left = len(batches)
        self._results: list[Stored | DrayError | None] = [None] * len(batches)

    @property
    def partitions(self) -> int:
        return len(self._rows)

    def begin(self, exchanges: "Exchanges", exchange: "Exchange", services: Services, orders: "Orders") -> None:
        """Give the batches to their lanes, in order; the exchanges are told when the answer is there."""
        self._exchanges, self._exchange, self._orders = exchanges, exchange, orders
        batches, self._batches = self._batches, []
        alone = len(batches) == 1
        for at, batch in enumerate(batches):
            place = self if alone else _Place(self, at)
            try:
                services.produce.submit_to(batch, place)
                services.produce.deadlines.watch(place, self._timeout_ms)
            except DrayError as error:
                self.tell(at, error)
            except Exception as error:  # a mistake of ours; the request is answered all the same (KP15)
                report(error)
                self.tell(at, because(DrayError("a batch could not be taken"), error))

    def tell(self, at: int, result: Stored | DrayError) -> None:
        """What became of a batch."""
        self._results[at] = result
        self._left -= 1
        if not self._left and not self.over:
            self._orders.finish_soon(self)  # PL2

    def done(self) -> bool:
        return not self._left

    def set_result(self, stored: Stored, /) -> None:
        self.tell(0, stored)

    def set_exception(self, error: DrayError, /) -> None:
        self.tell(0, error)

    def finish(self) -> "Exchanges | None":
        """Answer; whose answer it is, unless nobody wants it any more."""
        if self.over:
            return None
        self.over = True
        self._exchanges.answer_plain(self._exchange, self._answer)
        return self._exchanges

    def cancel(self) -> None:
        """Forget the answer; the batches go on."""
        self.over = True

    def _answer(self) -> list[Buffer]:
        result = self._results[0]
        if len(self._rows) == 1 and type(result) is Stored:
            row = self._rows[0]
            body = _one_topic(row[0]) + _STORED(row[1], 0, result[0], -1, result[1]) + _ONE_ENDS
        else:
            body = b"".join(self._body())
        return [_HEAD.pack(len(body) + _HEAD.size - 4, self._correlation_id, 0) + body]

    def _body(self) -> list[Buffer]:
        topics: list[Buffer] = []
        partitions: list[bytes] = []
        count, last = 0, ""
        for row, result in zip(self._rows, self._results, strict=True):
            if type(result) is not Stored:
                return encode(_WRITE, self._response())
            if row[0] != last and partitions:
                topics += _topic(last, partitions)
                count, partitions = count + 1, []
            last = row[0]
            partitions += (_STORED(row[1], 0, result[0], -1, result[1]), _NO_ERRORS)
        return [put_uvarint(count + 2), *topics, *_topic(last, partitions), _END]

    def _response(self) -> ProduceResponse:
        """The answer as a message: not all is well."""
        topics: list[TopicProduceResponse] = []
        parts: list[PartitionProduceResponse] = []
        for row, result in zip(self._rows, self._results, strict=True):
            if not topics or topics[-1].name != row[0]:
                parts = []
                topics.append(TopicProduceResponse(name=row[0], partition_responses=parts))
            parts.append(self._partition(row[1], result))
        return ProduceResponse(responses=topics)

    def _partition(self, partition: int, result: Stored | DrayError | None) -> PartitionProduceResponse:
        assert result is not None, "an order is finished when all is told"
        if isinstance(result, DrayError):
            return self._failure(partition, result)
        return PartitionProduceResponse(
            index=partition, base_offset=result.base_offset, log_start_offset=result.log_start_offset
        )


@lru_cache(maxsize=1024)
def _one_topic(name: str) -> bytes:
    """What stands before the only partition of an answer."""
    raw = name.encode()
    return b"".join((b"\2", put_uvarint(len(raw) + 1), raw, b"\2"))


def _topic(name: str, partitions: list[bytes]) -> tuple[Buffer, ...]:
    raw = name.encode()
    return (put_uvarint(len(raw) + 1), raw, put_uvarint(len(partitions) // 2 + 1), *partitions, b"\0")


class _Place:
    """Where a lane tells what became of one batch of an order."""

    __slots__ = ("_at", "_order", "_told")

    def __init__(self, order: Order, at: int) -> None:
        self._order = order
        self._at = at
        self._told = False

    def done(self) -> bool:
        return self._told

    def set_result(self, stored: Stored, /) -> None:
        self._told = True
        self._order.tell(self._at, stored)

    def set_exception(self, error: DrayError, /) -> None:
        self._told = True
        self._order.tell(self._at, error)
