"""The gRPC server: methods, health, reflection, limits, a clean stop.

Handlers are methods of `HeapsApi`; this adds what is the same for all of
them: who calls, the status of an error, counting.

Invariants
    GG1  A stop is over within 10 s: streams are told, what they were never
         sent goes back, and what does not end in time is cut.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from dray.access.errors import Unauthenticated
from dray.access.key_service import KeyService
from dray.access.service import AccessService
from dray.api.v1 import heaps_pb2 as pb
from dray.clock import Clock
from dray.errors import DrayError, Unavailable
from dray.heaps.errors import BadMessage
from dray.heaps.service import HeapService
from dray.servers.grpc import telemetry
from dray.servers.grpc.enqueuing import EnqueueSession
from dray.servers.grpc.errors import REQUEST_KEY, LimitReached, status_of
from dray.servers.grpc.gate import GrpcCaller
from dray.servers.grpc.guard import GrpcGuard
from dray.servers.grpc.heaps import HeapsApi
from dray.servers.grpc.keys import KEYS_SERVICE, KeysApi
from dray.servers.grpc.methods import UNARY, Unary
from dray.servers.grpc.popping import PopSession
from dray.servers.grpc.settings import GrpcSettings
from dray.telemetry import logger

SERVICE: Final = "dray.v1.Heaps"
GRACE_S: Final = 8.0
"""What calls get to end by themselves when the server stops; streams have been told by then."""
ANSWER_S: Final = 10
"""A connection that does not answer for this long is closed."""
CallContext: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


class GrpcServer:
    """Serves `dray.v1.Heaps` on one address."""

    def __init__(self, api: HeapsApi, keys: KeysApi, settings: GrpcSettings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._stopping = asyncio.Event()
        self._streams = 0
        self._numbers = 0
        self._health = HealthServicer()
        self._server = grpc.aio.server(options=_options(settings))
        self._server.add_generic_rpc_handlers((self._handlers(), self._key_handlers(keys)))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, KEYS_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    @asynccontextmanager
    async def serving(self, *addresses: str) -> AsyncIterator["GrpcServer"]:
        """Serve at addresses that others keep free for us while the block runs.

        Raises:
            OSError: somebody else listens there.
        """
        for address in addresses:
            try:
                self._server.add_insecure_port(address)
            except RuntimeError as error:
                raise OSError(98, f"cannot listen on {address}") from error
        await self._server.start()
        for name in ("", SERVICE, KEYS_SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        logger().info(telemetry.LISTENING, addresses=list(addresses))
        try:
            yield self
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End it; a second time does nothing more (GG1)."""
        if self._stopping.is_set():
            return
        await self._health.enter_graceful_shutdown()
        self._stopping.set()
        await self._server.stop(GRACE_S)
        logger().info(telemetry.STOPPED, cut=self._streams)

    # -- calls -------------------------------------------------------------

    def _handlers(self) -> "grpc.GenericRpcHandler[bytes, bytes]":
        handlers = {one.name: grpc.unary_unary_rpc_method_handler(self._unary(one)) for one in UNARY}
        streams = {"EnqueueStream": self._enqueue_stream, "PopStream": self._pop_stream}
        handlers |= {
            name: grpc.stream_stream_rpc_method_handler(self._stream(name, run)) for name, run in streams.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _key_handlers(self, keys: KeysApi) -> "grpc.GenericRpcHandler[bytes, bytes]":
        handlers = {one.name: grpc.unary_unary_rpc_method_handler(self._unary(one)) for one in keys.methods()}
        return grpc.method_handlers_generic_handler(KEYS_SERVICE, handlers)

    def _unary(self, method: Unary) -> Callable[[bytes, CallContext], Awaitable[bytes]]:
        calls, duration = telemetry.CALLS, telemetry.DURATION.labels(method.name)
        good = calls.labels(method.name, grpc.StatusCode.OK.name)

        async def handle(packed: bytes, context: CallContext) -> bytes:
            began_ns = self._clock.boot_ns()
            try:
                answer = await method.answer(self._api, await self._admit(context), packed)
            except DrayError as error:
                await _abort(context, method.name, error)
            except DecodeError:
                await _abort(context, method.name, BadMessage("the request is no message of this call"))
            except Exception as error:
                logger().error(telemetry.CALL_FAILED, method=method.name, error=repr(error))
                await _abort(context, method.name, DrayError("the broker failed"))
            good.inc()
            duration.observe((self._clock.boot_ns() - began_ns) / 1e9)
            return answer

        return handle

    def _stream(
        self, name: str, run: "Callable[[GrpcCaller, AsyncIterator[bytes], CallContext], Coroutine[None, None, None]]"
    ) -> Callable[[AsyncIterator[bytes], CallContext], Awaitable[None]]:
        opened = telemetry.STREAMS.labels(name)

        async def handle(requests: AsyncIterator[bytes], context: CallContext) -> None:
            try:
                caller = await self._admit(context)
                if self._stopping.is_set():
                    raise Unavailable("the broker is stopping")
                if self._streams >= self._settings.max_streams:
                    raise LimitReached("too many streams are open", most=self._settings.max_streams)
            except DrayError as error:
                await _abort(context, name, error)
            self._streams += 1
            opened.set(self._streams)
            try:
                with self._api.gate.hold(caller) as ended:
                    await _unless(ended, run(caller, requests, context))
            except DrayError as error:
                await _abort(context, name, error)
            except DecodeError:
                await _abort(context, name, BadMessage("a request is no message of this call"))
            finally:
                self._streams -= 1
                opened.set(self._streams)
            telemetry.CALLS.labels(name, grpc.StatusCode.OK.name).inc()

        return handle

    async def _pop_stream(self, caller: GrpcCaller, requests: AsyncIterator[bytes], context: CallContext) -> None:
        self._numbers += 1

        def compress() -> None:
            with suppress(RuntimeError):  # something was told before: the stream goes on as it began
                context.set_compression(grpc.Compression.Gzip)

        session = PopSession(self._api, caller, self._numbers, self._stopping, compress)

        async def write(message: pb.PopDelivery) -> None:
            await context.write(message.SerializeToString())

        await session.run((pb.PopOpen.FromString(packed) async for packed in requests), write)

    async def _enqueue_stream(self, caller: GrpcCaller, requests: AsyncIterator[bytes], context: CallContext) -> None:
        async def write(message: pb.EnqueueManyResp) -> None:
            await context.write(message.SerializeToString())

        session = EnqueueSession(self._api, caller, self._stopping)
        await session.run((pb.EnqueueMany.FromString(packed) async for packed in requests), write)

    async def _admit(self, context: CallContext) -> GrpcCaller:
        found = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        caller = await self._api.gate.admit(found, context.peer())
        if caller.request:
            context.set_trailing_metadata(((REQUEST_KEY, caller.request),))
        return caller


@asynccontextmanager
async def serve_grpc(
    heaps: HeapService,
    access: AccessService,
    keys: KeyService,
    settings: GrpcSettings,
    clock: Clock,
    durability: str,
    places: Sequence[tuple[str, int]],
) -> AsyncIterator[GrpcServer]:
    """Serve heaps while the block runs, at addresses that the caller holds for us, bound and not listening.

    Raises:
        OSError: somebody else began to listen there.
    """
    api = HeapsApi(heaps, GrpcGuard(access), clock, durability)
    server = GrpcServer(api, KeysApi(access, keys), settings, clock)
    addresses = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port, *_ in places]
    async with server.serving(*addresses):
        yield server


async def _unless(ended: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Run a stream to its end, or until its key works no more.

    It runs in the task of its call: that is what gRPC cancels when a client leaves.
    """
    running, cut = asyncio.current_task(), False
    assert running is not None, "a coroutine runs in a task"

    async def watch() -> None:
        nonlocal cut
        await ended.wait()
        cut = True
        running.cancel()

    watching = asyncio.create_task(watch())
    try:
        await work
    except asyncio.CancelledError:
        if not cut:
            raise
        running.uncancel()
        raise Unauthenticated("the key of this stream works no more") from None
    finally:
        watching.cancel()


async def _abort(context: CallContext, method: str, error: DrayError) -> NoReturn:
    status = status_of(error)
    telemetry.CALLS.labels(method, status.code.name).inc()
    await context.abort(status.code, status.message, (*(context.trailing_metadata() or ()), *status.trailing))


def _options(settings: GrpcSettings) -> list[tuple[str, int]]:
    every_ms = int(settings.keepalive.total_seconds() * 1_000)
    return [
        ("grpc.max_receive_message_length", int(settings.max_message)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.max_concurrent_streams", 1_000),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", every_ms),
        ("grpc.keepalive_timeout_ms", ANSWER_S * 1_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 10),
        ("grpc.http2.max_pings_without_data", 0),
    ]
