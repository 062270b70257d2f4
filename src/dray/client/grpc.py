"""Brokers over gRPC: endpoints in turn, one channel each, and channels of its own for the thread that renews leases."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, cast

import grpc
from google.protobuf.message import Message

from dray.client.errors import ClientError, error_of
from dray.client.transport import A, Method, Q, Stream

LARGEST: Final = 64 << 20
SETTLE_S: Final = 0.02
"""What the library still tells of calls that were cancelled comes to a loop that is not closed yet."""
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.max_send_message_length", LARGEST),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """What connections are proven by: PEM texts."""

    root: bytes | None = None
    """Who signed the broker's certificate; None: whom this machine trusts."""
    certificate: bytes | None = None
    key: bytes | None = None


class GrpcTransport:
    """Brokers at some endpoints; the first that answers is used until it does not."""

    def __init__(self, endpoints: Sequence[str], *, api_key: str | None = None, tls: Tls | None = None) -> None:
        self._endpoints = tuple(endpoints)
        self._metadata = () if api_key is None else (("authorization", f"Bearer {api_key}"),)
        self._tls = tls
        self._at = 0
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._blocking: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()

    async def call(self, method: Method[Q, A], request: Q, timeout: float) -> A:
        calling = self._channel().unary_unary(method.path, method.request.SerializeToString, method.answer.FromString)
        try:
            answer: A = await calling(request, timeout=timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._failed(_told(error)) from error
        return answer

    def call_from_thread(self, method: Method[Q, A], request: Q, timeout: float) -> A:
        calling = self._blocking_channel().unary_unary(
            method.path, method.request.SerializeToString, method.answer.FromString
        )
        try:
            answer: A = calling(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._failed(_told(error)) from error
        return answer

    def stream(self, method: Method[Q, A]) -> Stream[Q, A]:
        calling = self._channel().stream_stream(method.path, method.request.SerializeToString, method.answer.FromString)
        return _GrpcStream(self, calling(metadata=self._metadata))  # type: ignore[call-arg]  # the stubs want an iterator

    def move(self) -> None:
        self._at = (self._at + 1) % len(self._endpoints)

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close(None)
        with self._lock:
            blocking, self._blocking = self._blocking, {}
        for sync in blocking.values():
            sync.close()
        if channels:
            await asyncio.sleep(SETTLE_S)

    def _failed(self, error: ClientError) -> ClientError:
        """Who could not serve is not asked next."""
        if error.retryable:
            self.move()
        return error

    def _channel(self) -> grpc.aio.Channel:
        endpoint = self._endpoints[self._at]
        if endpoint not in self._channels:
            self._channels[endpoint] = (
                grpc.aio.insecure_channel(endpoint, _OPTIONS)
                if self._tls is None
                else grpc.aio.secure_channel(endpoint, self._credentials(self._tls), _OPTIONS)
            )
        return self._channels[endpoint]

    def _blocking_channel(self) -> grpc.Channel:
        with self._lock:
            endpoint = self._endpoints[self._at]
            if endpoint not in self._blocking:
                self._blocking[endpoint] = (
                    grpc.insecure_channel(endpoint, _OPTIONS)
                    if self._tls is None
                    else grpc.secure_channel(endpoint, self._credentials(self._tls), _OPTIONS)
                )
            return self._blocking[endpoint]

    @staticmethod
    def _credentials(tls: Tls) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(tls.root, tls.key, tls.certificate)


class _GrpcStream(Generic[Q, A]):
    def __init__(self, transport: GrpcTransport, call: "grpc.aio.StreamStreamCall[Q, A]") -> None:
        self._transport = transport
        self._call = call

    async def write(self, message: Q) -> None:
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise self._transport._failed(_told(error)) from error
        except grpc.aio.UsageError as ended:  # it was ended from the other side: how, the reader is told
            raise error_of("UNAVAILABLE", "the stream has ended", {}) from ended

    async def read(self) -> A | None:
        try:
            found = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._transport._failed(_told(error)) from error
        except grpc.aio.UsageError as ended:
            raise error_of("UNAVAILABLE", "the stream has ended", {}) from ended
        return cast("A", found) if isinstance(found, Message) else None  # else it is grpc.aio.EOF

    async def done_writing(self) -> None:
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError):
            return  # it has ended already

    def cancel(self) -> None:
        self._call.cancel()


def _told(error: grpc.RpcError) -> ClientError:
    assert isinstance(error, grpc.Call | grpc.aio.AioRpcError)
    pairs: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment]  # they are
    trailing = {key: value for key, value in pairs if isinstance(value, str)}
    return error_of(error.code().name, error.details() or "", trailing)
