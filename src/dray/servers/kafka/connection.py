"""One client connection: frames in, answers out, in order.

    bytes -> ReceiveBuffer -> header and body -> Exchanges -> handlers
                                                    |
    socket <- SendQueue <- answers, in the order of arrival

Reading stops while the connection or the process holds too much, while the
client does not take its answers, and for good when the connection is ending;
`dray.servers.kafka.admission` says who waits for what. A connection that ends
first gives the answers it owes.

Invariants
    KP14  Nothing is read while more is held than the limits allow; nothing is
          read and no handler starts while the client does not take its
          answers.
"""

import asyncio
import struct
from typing import TYPE_CHECKING, Final, cast

from dray.servers.kafka import telemetry
from dray.servers.kafka.admission.patience import Patience
from dray.servers.kafka.apis.api_versions import entry
from dray.servers.kafka.codec import Malformed, decode, encode
from dray.servers.kafka.dispatch import API_VERSIONS
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.exchanges import ELEMENT_BYTES, Exchanges, framed
from dray.servers.kafka.handler import Peer
from dray.servers.kafka.messages.api_versions import SCHEMA as API_VERSIONS_SCHEMA
from dray.servers.kafka.messages.api_versions import ApiVersionsResponse
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.response_header import CODEC as RESPONSE_HEADER
from dray.servers.kafka.messages.response_header import ResponseHeader
from dray.servers.kafka.receive import FrameTooLarge, ReceiveBuffer
from dray.servers.kafka.send import SendQueue
from dray.telemetry import logger

if TYPE_CHECKING:
    from dray.servers.kafka.server import Core

_TURN_BYTES: Final = 10_000 * ELEMENT_BYTES
"""Elements that are decoded before others have the loop, as they are charged."""
_KEY_AND_VERSION: Final = struct.Struct(">hh")


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted socket."""

    def __init__(self, core: "Core", listener: str) -> None:
        self._core = core
        self._budget = core.budget
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._buffer = ReceiveBuffer(self._frame_limit, core.budget.charge, core.budget.roomy)
        self._exchanges = Exchanges(core, self)
        self._patience = Patience(core.times, 0)
        self._known = False  # has sent a valid request
        self._allowance = core.stranger
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

    @property
    def address(self) -> str:
        return self._exchanges.peer.address

    @property
    def listener(self) -> str:
        return self._listener

    @property
    def quiet_ns(self) -> int:
        """How long its half request has come too slowly."""
        return self._patience.quiet_ns

    @property
    def takes_answers(self) -> bool:
        return self._writable

    # --- the transport calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("", 0)
        self._exchanges.peer = Peer(
            address=str(name[0]), port=int(name[1]), listener=self._listener, account=self._account
        )  # fmt: skip
        self._patience = Patience(self._core.times, self._core.clock.boot_ns())
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
        self._eof = self._exchanges.peer.sends_no_more = True
        self._take_frames()
        if self._transport is not None and self._exchanges.some_abandoned:
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
        self._exchanges.forget_queue()
        self._exchanges.cancel(cancellable=True)
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
            self._exchanges.start()
            self._take_frames()
            self._end_if_done()

    def _take_frames(self) -> None:
        may_take = self._may_take()
        held = self._exchanges.held_bytes
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
                if self._exchanges.held_bytes - held > _TURN_BYTES and self._ending is None:
                    asyncio.get_running_loop().call_soon(self.go_on)  # many elements were decoded: others first
                    may_take = False
                    break
                may_take = self._may_take()
        except FrameTooLarge as error:
            self.end(error.reason, error)
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
        exchanges, allowance = self._exchanges, self._allowance
        inflight = len(exchanges.answers)
        if inflight and (
            inflight >= allowance.inflight_requests or exchanges.held_bytes >= allowance.inflight_bytes
        ):  # fmt: skip
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
        if route.plain is not None and self._exchanges.take_plain(route, route.plain, frame):
            self._produces = True
            self._known = self._known or self._meet()
            return
        header, position, _ = decode(route.read_header, frame, 0)
        message, _, elements = decode(route.read, frame, position)
        self._known = self._known or self._meet()
        self._produces = self._produces or route.api.bulk
        self._exchanges.take(route, header, message, len(frame) + ELEMENT_BYTES * elements)

    def _meet(self) -> bool:
        """A first valid request has come: from now on it is no stranger."""
        self._allowance = self._core.known
        return True

    def _unsupported(self, frame: memoryview, key: int, version: int) -> None:
        """Close, for there is no schema to answer in; but tell any client which ApiVersions it may ask."""
        header, _, _ = decode(REQUEST_HEADER.read[1], frame, 0)
        api = self._core.matrix.get(key)
        if api is None or key != API_VERSIONS:
            if self._core.first_time("unsupported request"):
                logger().warning(
                    telemetry.REQUEST_UNSUPPORTED,
                    address=self.address,
                    key=key,
                    version=version,
                    client_id=header.client_id,
                )
            self.end("unsupported request", told=True)
            return
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[entry(api)])
        route = self._core.routes.find(key, 0)
        assert route is not None, "ApiVersions is served from version 0"
        parts = framed(
            RESPONSE_HEADER.write[0](ResponseHeader(header.correlation_id)),
            encode(API_VERSIONS_SCHEMA.response.write[0], answer),
        )
        route.count(ErrorCode.UNSUPPORTED_VERSION)
        self._exchanges.take_answered(route, len(frame), parts)
        self._flush()

    # --- answers ---

    def answered(self) -> None:
        """A request is done: send what may be sent, and go on."""
        self._flush()
        if self._lost:
            self._leave_if_done()
        elif self._exchanges.queued or not self._reading or self._eof:
            self.go_on()

    def _flush(self) -> None:
        """Send every answer that has no unfinished one before it (KP13)."""
        parts, size = self._exchanges.ready()
        if not parts or self._lost or self._out is None:
            return
        self._core.sent_bytes += size
        try:
            self._out.put(parts, size)
        except TypeError as error:  # a handler gave something that is no buffer; the stream is broken now
            logger().error(telemetry.HANDLER_FAILED, api=None, version=None, exc_info=error)
            self._out.drop()
            self.cut()
        if not self._out.open:
            self._writable = False
            self._read_while(False)
            self._account.keep_unsent(self._out.unsent_bytes)

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
                    address=self.address,
                    port=self._exchanges.peer.port,
                    error=None if error is None else str(error),
                )
        self._read_while(False)
        self._end_if_done()

    def drain(self) -> None:
        """The server stops: as `end`, without a word. Nobody stays for requests that only wait for something new."""
        self._ending = self._ending or "stopping"
        self._read_while(False)
        if self._exchanges.all_abandoned:
            self._exchanges.forget_queue()
            self._exchanges.cancel()
            self._flush()
        self._end_if_done()

    def abort(self, reason: str) -> None:
        """Close now, whatever is owed."""
        self.end(reason)
        self._exchanges.cancel()
        self.cut()

    def cut(self) -> None:
        """The stream is broken, or nobody wants it: close without another byte."""
        if self._transport is not None:
            self._transport.abort()

    def _end_if_done(self) -> None:
        if self._exchanges.answers or self._lost or self._transport is None:
            return
        if self._out is not None and not self._out.is_empty:
            return  # what is owed goes out first
        if self._ending is not None or (self._eof and self._drained):
            self._transport.close()

    def _leave_if_done(self) -> None:
        """A connection counts until its last handler has ended, so that a stop waits for it."""
        if not self._exchanges.answers and not self._left:
            self._left = True
            self._core.leave(self)

    def sweep(self, now_ns: int) -> None:
        """Called about once a second: end what hangs, shrink what rests."""
        if self._lost:
            return
        patience, unread = self._patience, self._buffer.unread
        active = self._touched or bool(self._exchanges.answers) or not self._reading
        self._touched = False
        if patience.is_idle(now_ns, active=active) and self._ending is None:
            self.end("idle")
        elif not active and not unread:
            self._buffer.rest()
        if not self._known and self._ending is None and patience.is_late(now_ns):
            self.end("no valid request")
        crowded = self._budget.waiting > 0
        if patience.is_half(now_ns, frame=self._taken, unread=unread, reading=self._reading, crowded=crowded):
            self.end("request incomplete")
        self._sweep_writes(now_ns)

    def shed(self) -> None:
        """Others need the memory of the half request."""
        self.end("request incomplete")
        self._buffer.close()

    def _sweep_writes(self, now_ns: int) -> None:
        if self._out is None:
            return
        unsent, taken = self._out.unsent_bytes, self._out.taken_bytes
        self._account.keep_unsent(unsent)
        crowded = self._core.line.waiting > 0
        if self._patience.is_stalled(now_ns, unsent=unsent, taken=taken, crowded=crowded):
            self.abort("answers not taken")
