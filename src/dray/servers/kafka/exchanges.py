"""The requests of one connection, from taken to answered.

    taken -> in the queue until its turn -> handler (a task), or an order -> answer, sent when those before it are

Invariants
    KP13  Answers leave in the order in which their requests arrived.
    KP15  Whatever a handler does, its request gets exactly one answer, or
          none where the protocol has none, or the connection ends.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from dray.buffers import Buffer
from dray.servers.kafka import telemetry
from dray.servers.kafka.admission.budget import Waiter
from dray.servers.kafka.codec import Message, encode
from dray.servers.kafka.dispatch import Route
from dray.servers.kafka.error_codes import ErrorCode, code_for
from dray.servers.kafka.handler import ALONE, Context, Disconnect, Peer, Turn
from dray.servers.kafka.messages.request_header import RequestHeader
from dray.servers.kafka.messages.response_header import ResponseHeader
from dray.servers.kafka.support import Api
from dray.telemetry import logger

if TYPE_CHECKING:
    from dray.servers.kafka.plain import Order, Plain
    from dray.servers.kafka.server import Core

ELEMENT_BYTES: Final = 256
"""What an array element of a request is charged, besides its bytes in the frame."""
REQUEST_BYTES: Final = 1024
"""What a request is charged besides: so bytes bound their number too."""
_LENGTH: Final = struct.Struct(">i")
_LARGE_BYTES: Final = 64 << 10
_NO_HEADER: Final = RequestHeader()
"""Of a plain request: whoever made its answer has read it."""


class Client(Waiter, Protocol):
    """The connection, as its requests know it."""

    @property
    def takes_answers(self) -> bool: ...

    def answered(self) -> None:
        """A request is done: send what may be sent, and go on."""
        ...

    def end(self, reason: str) -> None:
        """Take no more requests."""
        ...

    def cut(self) -> None:
        """What was sent is broken: close now."""
        ...


class Exchange:
    """One request and the answer it will have."""

    __slots__ = ("begun_ns", "charge", "done", "entered", "header", "message", "parts", "route", "task", "turn")

    def __init__(
        self, route: Route, header: RequestHeader, message: Message | None, charge: int, begun_ns: int
    ) -> None:
        self.route = route
        self.header = header
        self.message = message
        self.charge = REQUEST_BYTES + charge
        self.begun_ns = begun_ns
        self.parts: list[Buffer] = []
        self.done = False
        self.entered = False  # its handler has begun
        self.task: asyncio.Task[None] | Order | None = None
        self.turn = ALONE


class Exchanges:
    """The unanswered requests of one connection."""

    def __init__(self, core: "Core", client: Client) -> None:
        self._core = core
        self._client = client
        self.answers: Final[deque[Exchange]] = deque()
        """In the order of arrival."""
        self._queue: deque[Exchange] = deque()
        self._running = 0
        self._running_api: Api | None = None
        self._last_turn: Turn | None = None
        self.peer = Peer(address="", port=0, listener="")
        self.held_bytes = 0
        """What the requests are charged."""

    @property
    def queued(self) -> bool:
        """Whether a request waits for its handler to start."""
        return bool(self._queue)

    @property
    def some_abandoned(self) -> bool:
        """Whether there is a request for which nobody stays who sends no more."""
        return any(exchange.route.api.abandoned for exchange in self.answers)

    @property
    def all_abandoned(self) -> bool:
        return all(exchange.route.api.abandoned for exchange in self.answers)

    # --- taken ---

    def take(self, route: Route, header: RequestHeader, message: Message, charge: int) -> None:
        """Serve a request when its turn comes."""
        exchange = Exchange(route, header, message, charge, self._core.clock.boot_ns())
        self._hold(exchange)
        self._queue.append(exchange)
        self.start()

    def take_plain(self, route: Route, plain: "Plain", frame: memoryview) -> bool:
        """Serve a request without a task, if it waits for nothing before it (KP7, KP8) and is plain."""
        if self._queue or (self._running and self._running_api is not route.api):
            return False
        if self._last_turn is not None and not self._last_turn.passed:
            return False
        order = plain.take(frame, self._core.services, self.peer)
        if order is None:
            return False
        charge = len(frame) + 2 * ELEMENT_BYTES * order.partitions
        exchange = Exchange(route, _NO_HEADER, None, charge, self._core.clock.boot_ns())
        exchange.task = order
        self._hold(exchange)
        self._running += 1
        self._running_api = route.api
        self._core.relief.begin(exchange.charge)  # SV2
        order.begin(self, exchange, self._core.services, self._core.orders)
        return True

    def take_answered(self, route: Route, charge: int, parts: list[Buffer]) -> None:
        """A request that needs no handler: its answer is here, and leaves in its turn (KP13)."""
        exchange = Exchange(route, _NO_HEADER, None, charge, self._core.clock.boot_ns())
        self._hold(exchange)
        exchange.parts = parts
        exchange.done = True

    def _hold(self, exchange: Exchange) -> None:
        self.held_bytes += exchange.charge
        self._core.budget.begin_request(exchange.charge, self._client)
        self.answers.append(exchange)

    # --- served ---

    def start(self) -> None:
        """Start the handlers that may start (KP7, KP14)."""
        while self._queue and self._client.takes_answers:
            exchange = self._queue[0]
            api = exchange.route.api
            if self._running and not (api.overlaps and self._running_api is api):
                return
            self._queue.popleft()
            self._running += 1
            self._running_api = api
            if api.bulk:
                self._core.relief.begin(exchange.charge)  # SV2
            if api.overlaps:
                exchange.turn = self._last_turn = Turn(self._last_turn)
            exchange.task = self._core.tasks.create_task(self._serve(exchange))

    async def _serve(self, exchange: Exchange) -> None:
        exchange.entered = True
        try:
            await self._handle(exchange)
        finally:
            self._finish_or_cut(exchange)

    def _finish_or_cut(self, exchange: Exchange) -> None:
        try:
            self._finish(exchange)
        except Exception as error:  # a mistake of ours; the task group of all connections must not hear of it
            _failed(exchange, error)
            self._client.cut()

    async def _handle(self, exchange: Exchange) -> None:
        """Call the handler and make the answer. Raises nothing but a cancellation (KP15)."""
        route, message, core = exchange.route, exchange.message, self._core
        assert message is not None
        context = Context(
            route.version, exchange.header.client_id, self.peer, core.services, core.matrix, exchange.turn
        )  # fmt: skip
        try:
            with core.services.domains.request():
                response = await route.endpoint.handle(message, context)
            if response is not None:
                _answer(exchange, response)
        except Disconnect as error:
            self._client.end(error.reason)
            if error.answer is not None:
                self._answer_or_end(exchange, error.answer)
        except asyncio.CancelledError:
            self._client.end("request cancelled")  # nobody will answer it (KP15)
            raise
        except Exception as error:
            self._refuse(exchange, message, error)

    def _refuse(self, exchange: Exchange, message: Message, error: Exception) -> None:
        """Put an error code where the answer would be; the connection lives (KP15)."""
        endpoint = exchange.route.endpoint
        code = code_for(error, exchange.route.api.family)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            _failed(exchange, error)
        try:
            response = endpoint.refuse(message, code)
        except Exception as second:
            _failed(exchange, second)
            response = None
        if response is None:
            self._client.end("no place for an error")
        else:
            self._answer_or_end(exchange, response)

    def _answer_or_end(self, exchange: Exchange, response: Message) -> None:
        try:
            _answer(exchange, response)
        except Exception as error:
            _failed(exchange, error)
            self._client.end("no answer could be made")

    def answer_plain(self, exchange: Exchange, answer: Callable[[], list[Buffer]]) -> None:
        """A request without a task has its answer, or, if there is a mistake in it, none (KP15).

        The client is not told yet: others of its requests may be done at the same time.
        """
        try:
            exchange.parts = answer()
            exchange.route.count(0)
        except Exception as error:
            _failed(exchange, error)
            self._client.end("no answer could be made")
        self._close(exchange)

    def tell(self) -> None:
        """Let the client send what is done."""
        self._client.answered()

    def _finish(self, exchange: Exchange) -> None:
        self._close(exchange)
        self._client.answered()

    def _close(self, exchange: Exchange) -> None:
        exchange.done = True
        exchange.task = None
        exchange.message = None  # lets go of the frame
        if exchange.turn is not ALONE:
            exchange.turn.pass_on()
        self._running -= 1
        if exchange.route.api.bulk:
            self._core.relief.end(exchange.charge)
        exchange.route.duration.observe((self._core.clock.boot_ns() - exchange.begun_ns) / 1e9)

    # --- over ---

    def ready(self) -> tuple[list[Buffer], int]:
        """Every answer that has no unfinished one before it (KP13), and its size; they are let go of."""
        answers = self.answers
        parts: list[Buffer] = []
        count = charge = 0
        while answers and answers[0].done:
            exchange = answers.popleft()
            parts += exchange.parts
            charge += exchange.charge
            count += 1
        if count:
            self.held_bytes -= charge
            self._core.budget.end_requests(count, charge)
        return parts, sum(map(len, parts))

    def forget_queue(self) -> None:
        """Requests that have not begun get no answer."""
        for exchange in self._queue:
            exchange.done = True
        self._queue.clear()

    def cancel(self, *, cancellable: bool = False) -> None:
        """Stop the handlers, or only those that may be left in the middle."""
        for exchange in list(self.answers):
            if exchange.task is not None and (exchange.route.api.cancellable or not cancellable):
                exchange.task.cancel()
                if not exchange.entered:  # a task cancelled before its first step runs no `finally`
                    self._finish(exchange)


def _failed(exchange: Exchange, error: Exception) -> None:
    api, version = exchange.route.api.name, exchange.route.version
    logger().error(telemetry.HANDLER_FAILED, api=api, version=version, exc_info=error)


def _answer(exchange: Exchange, response: Message) -> None:
    route = exchange.route
    header = route.write_header(ResponseHeader(exchange.header.correlation_id))
    exchange.parts = framed(header, encode(route.write, response))
    route.count(getattr(response, "error_code", 0))


def framed(header: list[Buffer], body: list[Buffer]) -> list[Buffer]:
    """An answer with its length in front. What is large is not copied: that would hold the loop."""
    length = _LENGTH.pack(sum(map(len, header)) + sum(map(len, body)))
    if len(body[0]) > _LARGE_BYTES:
        return [b"".join((length, *header)), *body]
    return [b"".join((length, *header, body[0])), *body[1:]]
