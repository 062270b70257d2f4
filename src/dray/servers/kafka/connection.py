"""One client connection: frames in, answers out, in order.

    bytes -> ReceiveBuffer -> header and body -> Exchange -> handler (a task)
                                                    |
    socket <- answers of all exchanges, in the order of arrival

Reading stops while the connection or the process holds too much, while the
client does not take its answers, and for good when the connection is ending.
A connection that ends first gives the answers it owes.

Invariants
    KP13  Answers leave in the order in which their requests arrived.
    KP14  Nothing is read while more is held than the limits allow; nothing is
          read and no handler starts while the client does not take its
          answers.
    KP15  Whatever a handler does, its request gets exactly one answer, or
          none where the protocol has none, or the connection ends.
"""

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from dray.buffers import Buffer
from dray.servers.kafka import telemetry
from dray.servers.kafka.apis.api_versions import entry
from dray.servers.kafka.codec import Malformed, Message, decode, encode
from dray.servers.kafka.dispatch import API_VERSIONS, Route
from dray.servers.kafka.error_codes import ErrorCode, code_for
from dray.servers.kafka.handler import ALONE, Context, Disconnect, Peer, Turn
from dray.servers.kafka.messages.api_versions import SCHEMA as API_VERSIONS_SCHEMA
from dray.servers.kafka.messages.api_versions import ApiVersionsResponse
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.request_header import RequestHeader
from dray.servers.kafka.messages.response_header import CODEC as RESPONSE_HEADER
from dray.servers.kafka.messages.response_header import ResponseHeader
from dray.servers.kafka.receive import FrameTooLarge, ReceiveBuffer
from dray.servers.kafka.send import SendQueue
from dray.servers.kafka.settings import Allowance
from dray.servers.kafka.support import Api
from dray.telemetry import logger

if TYPE_CHECKING:
    from dray.servers.kafka.server import Core

ELEMENT_BYTES: Final = 256
"""What an array element of a request is charged, besides its bytes in the frame."""
_TURN_BYTES: Final = 10_000 * ELEMENT_BYTES
"""Elements that are decoded before others have the loop, as they are charged."""
_KEY_AND_VERSION: Final = struct.Struct(">hh")
_LENGTH: Final = struct.Struct(">i")


class Exchange:
    """One request and the answer it will have."""

    __slots__ = ("begun_ns", "charge", "done", "entered", "header", "message", "parts", "route", "task", "turn")

    def __init__(self, route: Route, header: RequestHeader, message: Message, charge: int, begun_ns: int) -> None:
        self.route = route
        self.header = header
        self.message: Message | None = message
        self.charge = charge
        self.begun_ns = begun_ns
        self.parts: list[Buffer] = []
        self.done = False
        self.entered = False  # its handler has begun
        self.task: asyncio.Task[None] | None = None
        self.turn = ALONE


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted socket."""

    def __init__(self, core: "Core", listener: str) -> None:
        self._core = core
        self._limits = core.limits
        self._budget = core.budget
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._peer = Peer(address="", port=0, listener=listener)
        self._buffer = ReceiveBuffer(self._frame_limit, core.budget.charge, core.budget.roomy)
        self._answers: deque[Exchange] = deque()
        self._queue: deque[Exchange] = deque()
        self._running = 0
        self._running_api: Api | None = None
        self._last_turn: Turn | None = None
        self._held_bytes = 0
        self._known = False  # has sent a valid request
        self._produces = False  # has sent records
        self._ending: str | None = None
        self._reading = True
        self._out: SendQueue | None = None
        self._account = core.line.account()
        self._writable = True
        self._eof = False
        self._half_closes = True
        self._drained = True  # no whole frame is left in the buffer
        self._lost = False
        self._left = False
        self._touched = True
        self._taken = 0
        self._active_ns = 0
        self._made_ns = 0
        self._swept_ns = 0
        self._half = -1  # the number of the frame that is being watched
        self._half_bytes = 0
        self._half_ns = 0
        self.quiet_ns = 0
        """How long its half request has come slower than `slowest_rate`, while it was read from."""
        self._stalled: tuple[int, int] = (-1, 0)  # what the client had taken, and since when

    @property
    def _allowance(self) -> Allowance:
        return self._core.known if self._known else self._core.stranger

    @property
    def address(self) -> str:
        return self._peer.address

    @property
    def listener(self) -> str:
        return self._peer.listener

    # --- the transport calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("", 0)
        self._peer = Peer(
            address=str(name[0]), port=int(name[1]), listener=self._listener, account=self._account
        )  # fmt: skip
        self._active_ns = self._made_ns = self._swept_ns = self._core.clock.boot_ns()
        self._out = SendQueue(self._transport)
        self._half_closes = transport.get_extra_info("sslcontext") is None
        refusal = self._core.enter(self)
        if refusal is not None:
            self.end(refusal)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.tail()

    def buffer_updated(self, nbytes: int) -> None:
        self._buffer.received(nbytes)
        self._core.received_bytes += nbytes
        self._touched = True
        self._take_frames()

    def eof_received(self) -> bool:
        self._eof = True
        self._take_frames()
        if self._transport is not None and any(exchange.route.api.abandoned for exchange in self._answers):
            self._transport.abort()  # who waits for such an answer would not have closed
        self._end_if_done()
        return self._half_closes  # the client may still read: what it asked is answered first

    def pause_writing(self) -> None:
        assert self._out is not None
        self._out.pause()
        self._writable = False
        self._read_while(False)

    def resume_writing(self) -> None:
        assert self._out is not None
        self._out.resume()
        self._writable = self._out.open
        self._account.keep_unsent(self._out.unsent_bytes)
        if self._writable:
            self.go_on()
        else:
            self._end_if_done()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._ending = self._ending or "lost"
        self._reading = False
        self._forget_queue()
        self._cancel([exchange for exchange in self._answers if exchange.route.api.abandoned])
        if self._out is not None:
            self._out.drop()
        self._account.keep_unsent(0)
        self._buffer.close()
        self._budget.leave(self)
        self._core.relief.leave(self)
        self._flush()
        self._leave_if_done()

    # --- requests ---

    def go_on(self) -> None:
        """Something was released: start what waits, take what has arrived, read on."""
        if not self._lost:
            self._start()
            self._take_frames()
            self._end_if_done()

    def _take_frames(self) -> None:
        may_take = self._may_take()
        held = self._held_bytes
        try:
            while may_take:
                frame = self._buffer.next_frame()
                self._drained = frame is None
                if frame is None:
                    if self._buffer.need:  # how large its frame is may be known only now
                        may_take = self._may_take()
                    break
                self._taken += 1
                held += len(frame)
                self._take(frame)
                if self._held_bytes - held > _TURN_BYTES and self._ending is None:
                    asyncio.get_running_loop().call_soon(self.go_on)  # many elements were decoded: others first
                    may_take = False
                    break
                may_take = self._may_take()
        except FrameTooLarge as error:
            self.end("frame too large", error)
        except Malformed as error:
            self.end("malformed request", error)
        except Exception as error:  # a mistake of ours; it must cost this connection only
            logger().error(telemetry.HANDLER_FAILED, api=None, version=None, exc_info=error)
            self.end("request could not be taken", error)
        else:
            self._read_while(may_take)

    def _may_take(self) -> bool:
        if self._ending is not None or not self._writable:
            return False
        if self._answers and (
            len(self._answers) >= self._allowance.inflight_requests
            or self._held_bytes >= self._allowance.inflight_bytes
        ):
            return False
        if self._produces and not self._core.relief.admits(self):
            return False  # SV2
        return self._budget.admits(self, self._buffer.unread > 0, self._buffer.need)  # KP14

    def _read_while(self, wanted: bool) -> None:
        """Read from the socket exactly while another frame may be taken (KP14)."""
        if wanted == self._reading or self._eof or self._lost or self._transport is None:
            return
        self._reading = wanted
        if self._transport.is_closing():
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
            if not self._budget.roomy():
                self._buffer.rest()

    def _frame_limit(self, key: int) -> int:
        api = self._core.matrix.get(key)
        return self._allowance.frame_bytes if api is not None and api.bulk else self._allowance.request_bytes

    def _take(self, frame: memoryview) -> None:
        key, version = _KEY_AND_VERSION.unpack_from(frame)
        route = self._core.routes.find(key, version)
        if route is None:
            self._unsupported(frame, key, version)
            return
        header, position, _ = decode(route.read_header, frame, 0)
        message, _, elements = decode(route.read, frame, position)
        self._known = True
        self._produces = self._produces or route.api.bulk
        charge = len(frame) + ELEMENT_BYTES * elements
        exchange = Exchange(route, header, message, charge, self._core.clock.boot_ns())
        self._held_bytes += charge
        self._budget.begin_request(charge, self)
        self._answers.append(exchange)
        self._queue.append(exchange)
        self._start()

    def _unsupported(self, frame: memoryview, key: int, version: int) -> None:
        """Close, for there is no schema to answer in; but tell any client which ApiVersions it may ask."""
        header, _, _ = decode(REQUEST_HEADER.read[1], frame, 0)
        api = self._core.matrix.get(key)
        if api is None or key != API_VERSIONS:
            if self._core.first_time("unsupported request"):
                logger().warning(
                    telemetry.REQUEST_UNSUPPORTED,
                    address=self._peer.address,
                    key=key,
                    version=version,
                    client_id=header.client_id,
                )
            self.end("unsupported request", told=True)
            return
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[entry(api)])
        route = self._core.routes.find(key, 0)
        assert route is not None, "ApiVersions is served from version 0"
        exchange = Exchange(route, header, answer, len(frame), self._core.clock.boot_ns())
        self._held_bytes += exchange.charge
        self._budget.begin_request(exchange.charge, self)
        self._answers.append(exchange)
        exchange.parts = _frame(
            RESPONSE_HEADER.write[0](ResponseHeader(header.correlation_id)),
            encode(API_VERSIONS_SCHEMA.response.write[0], answer),
        )
        route.count(ErrorCode.UNSUPPORTED_VERSION)
        exchange.done = True
        self._flush()

    def _start(self) -> None:
        """Start the handlers that may start (KP7, KP14)."""
        while self._queue and self._writable:
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
            self._finish(exchange)

    async def _handle(self, exchange: Exchange) -> None:
        """Call the handler and make the answer. Raises nothing but a cancellation (KP15)."""
        route, message = exchange.route, exchange.message
        assert message is not None
        context = Context(
            route.version, exchange.header.client_id, self._peer, self._core.services, self._core.matrix, exchange.turn
        )
        try:
            response = await route.endpoint.handle(message, context)
            if response is not None:
                self._answer(exchange, response)
        except Disconnect as error:
            self.end(error.reason)
            if error.answer is not None:
                self._answer_or_end(exchange, error.answer)
        except asyncio.CancelledError:
            self.end("request cancelled")  # nobody will answer it (KP15)
            raise
        except Exception as error:
            self._refuse(exchange, message, error)

    def _answer(self, exchange: Exchange, response: Message) -> None:
        route = exchange.route
        header = route.write_header(ResponseHeader(exchange.header.correlation_id))
        exchange.parts = _frame(header, encode(route.write, response))
        route.count(getattr(response, "error_code", 0))

    def _refuse(self, exchange: Exchange, message: Message, error: Exception) -> None:
        """Put an error code where the answer would be; the connection lives (KP15)."""
        endpoint = exchange.route.endpoint
        code = code_for(error, exchange.route.api.family)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self._failed(exchange, error)
        try:
            response = endpoint.refuse(message, code)
        except Exception as second:
            self._failed(exchange, second)
            response = None
        if response is None:
            self.end("no place for an error")
        else:
            self._answer_or_end(exchange, response)

    def _answer_or_end(self, exchange: Exchange, response: Message) -> None:
        try:
            self._answer(exchange, response)
        except Exception as error:
            self._failed(exchange, error)
            self.end("no answer could be made")

    def _failed(self, exchange: Exchange, error: Exception) -> None:
        api, version = exchange.route.api.name, exchange.route.version
        logger().error(telemetry.HANDLER_FAILED, api=api, version=version, exc_info=error)

    def _finish(self, exchange: Exchange) -> None:
        exchange.done = True
        exchange.task = None
        exchange.message = None  # lets go of the frame
        exchange.turn.pass_on()
        self._running -= 1
        if exchange.route.api.bulk:
            self._core.relief.end(exchange.charge)
        exchange.route.duration.observe((self._core.clock.boot_ns() - exchange.begun_ns) / 1e9)
        self._flush()
        if self._lost:
            self._leave_if_done()
        elif self._queue or not self._reading or self._eof:
            self.go_on()

    def _forget_queue(self) -> None:
        """Requests that have not begun get no answer."""
        for exchange in self._queue:
            exchange.done = True
        self._queue.clear()

    def _cancel(self, exchanges: list[Exchange]) -> None:
        for exchange in exchanges:
            if exchange.task is not None:
                exchange.task.cancel()
                if not exchange.entered:  # a task cancelled before its first step runs no `finally`
                    self._finish(exchange)

    # --- answers ---

    def _flush(self) -> None:
        """Send every answer that has no unfinished one before it (KP13)."""
        answers, parts, size = self._answers, [], 0
        while answers and answers[0].done:
            exchange = answers.popleft()
            parts += exchange.parts
            size += self._drop(exchange)
        if not parts or self._lost or self._out is None:
            return
        self._core.sent_bytes += size
        try:
            self._out.put(parts, size)
        except TypeError as error:  # a handler gave something that is no buffer; the stream is broken now
            logger().error(telemetry.HANDLER_FAILED, api=None, version=None, exc_info=error)
            self._out.drop()
            if self._transport is not None:
                self._transport.abort()
        if not self._out.open:
            self._writable = False
            self._read_while(False)
            self._account.keep_unsent(self._out.unsent_bytes)

    def _drop(self, exchange: Exchange) -> int:
        """Forget a finished exchange; returns the size of its answer."""
        self._held_bytes -= exchange.charge
        self._budget.end_request(exchange.charge)
        return sum(map(len, exchange.parts))

    # --- the end ---

    def end(self, reason: str, error: Exception | None = None, *, told: bool = False) -> None:
        """Take no more requests; close when what was taken is answered. `told`: it is in the log already."""
        if self._ending is None:
            self._ending = reason
            telemetry.ENDED.labels(reason).inc()
            if not told and self._core.first_time(reason):
                logger().info(
                    telemetry.CONNECTION_ENDED,
                    reason=reason,
                    address=self._peer.address,
                    port=self._peer.port,
                    error=None if error is None else str(error),
                )
        self._read_while(False)
        self._end_if_done()

    def drain(self) -> None:
        """The server stops: as `end`, without a word. Nobody stays for requests that only wait for something new."""
        self._ending = self._ending or "stopping"
        self._read_while(False)
        if all(exchange.route.api.abandoned for exchange in self._answers):
            self._forget_queue()
            self._cancel(list(self._answers))
            self._flush()
        self._end_if_done()

    def abort(self, reason: str) -> None:
        """Close now, whatever is owed."""
        self.end(reason)
        self._cancel(list(self._answers))
        if self._transport is not None:
            self._transport.abort()

    def _end_if_done(self) -> None:
        if self._answers or self._lost or self._transport is None:
            return
        if self._out is not None and not self._out.is_empty:
            return  # what is owed goes out first
        if self._ending is not None or (self._eof and self._drained):
            self._transport.close()

    def _leave_if_done(self) -> None:
        """A connection counts until its last handler has ended, so that a stop waits for it."""
        if not self._answers and not self._left:
            self._left = True
            self._core.leave(self)

    def sweep(self, now_ns: int) -> None:
        """Called about once a second: end what hangs, shrink what rests."""
        if self._lost:
            return
        if self._touched or self._answers or not self._reading:
            self._touched = False
            self._active_ns = now_ns
        elif self._ending is None and now_ns - self._active_ns > self._core.idle_ns:
            self.end("idle")
        elif not self._buffer.unread:
            self._buffer.rest()
        if not self._known and self._ending is None and now_ns - self._made_ns > self._core.first_ns:
            self.end("no valid request")
        self._sweep_frame(now_ns)
        self._sweep_writes(now_ns)
        self._swept_ns = now_ns

    def _sweep_frame(self, now_ns: int) -> None:
        unread, passed_ns = self._buffer.unread, now_ns - self._swept_ns
        if not unread or self._half != self._taken:
            self._half, self._half_ns, self.quiet_ns = (self._taken if unread else -1), 0, 0
        elif self._reading:
            self._half_ns += passed_ns
            came = (unread - self._half_bytes) * 1_000_000_000
            self.quiet_ns = 0 if came >= self._limits.slowest_rate * passed_ns else self.quiet_ns + passed_ns
            # Large requests may take longer, but not while others wait for the memory they hold.
            extra = 0 if self._budget.waiting else unread * 1_000_000_000 // self._limits.slowest_rate
            if self._half_ns > self._core.frame_ns + extra:
                self.end("request incomplete")
        self._half_bytes = unread

    def shed(self) -> None:
        """Others need the memory of the half request."""
        self.end("request incomplete")
        self._buffer.close()

    def _sweep_writes(self, now_ns: int) -> None:
        """Cut a client that takes nothing, or too little while others wait for the memory of its answers (KP16)."""
        if self._out is None:
            return
        unsent, taken = self._out.unsent_bytes, self._out.taken_bytes
        self._account.keep_unsent(unsent)
        before, since_ns = self._stalled
        crowded = self._core.line.waiting > 0
        least = self._limits.slowest_rate * (now_ns - since_ns) // 1_000_000_000 if crowded else 0
        if not unsent or before < 0 or (not crowded and taken > before):
            self._stalled = (taken, now_ns)
        elif now_ns - since_ns > (self._core.crowded_ns if crowded else self._core.write_ns):
            if taken - before > least:
                self._stalled = (taken, now_ns)
            else:
                self.abort("answers not taken")


def _frame(header: list[Buffer], body: list[Buffer]) -> list[Buffer]:
    head = b"".join((*header, body[0]))
    length = len(head)
    for part in body[1:]:
        length += len(part)
    return [_LENGTH.pack(length) + head, *body[1:]]
