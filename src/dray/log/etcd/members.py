"""The members of an etcd cluster, as who calls them sees them: one answers, or the next one is asked.

A call goes to one member, once; what is to be repeated, its caller repeats.
There is a channel for each member, and the member that failed last is asked
last. A request that needs a leader says so, so that a member which lost its
cluster refuses instead of letting us wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio

from dray.errors import Unavailable
from dray.log.etcd import etcd_pb2 as pb
from dray.log.port import NotAppended
from dray.log.urls import EtcdLogs

CONNECT_SECONDS: Final = 5.0
_SLOW_SECONDS: Final = 120.0
"""For what an operator would wait for, too: a member that writes its file anew."""
_OPTIONS: Final[Sequence[tuple[str, int]]] = (
    ("grpc.max_receive_message_length", -1),  # a backlog comes in one message
    ("grpc.enable_retries", 0),  # an append is sent once
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 6_000),  # etcd forbids more than one in 5 s
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.use_local_subchannel_pool", 1),
)
_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
_OLD_TOKEN: Final = ("invalid auth token", "auth revision", "revision in header is old")

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class EtcdUnreachable(NotAppended):
    """No member of the cluster answers; nothing was sent."""


def is_refusal(error: grpc.aio.AioRpcError) -> bool:
    """Whether the request surely had no effect, and would have none if it were sent again."""
    return error.code() in _REFUSALS


class EtcdPeer:
    """One member."""

    def __init__(self, url: EtcdLogs, endpoint: str) -> None:
        self.endpoint = endpoint
        options = list(_OPTIONS)
        self.channel = (
            grpc.aio.secure_channel(endpoint, _credentials(url), options=options)
            if url.secure
            else grpc.aio.insecure_channel(endpoint, options=options)
        )
        channel = self.channel
        self.txn: grpc.aio.UnaryUnaryMultiCallable[pb.TxnRequest, pb.TxnResponse] = channel.unary_unary(
            "/etcdserverpb.KV/Txn", pb.TxnRequest.SerializeToString, pb.TxnResponse.FromString
        )
        self.compact: grpc.aio.UnaryUnaryMultiCallable[pb.CompactionRequest, pb.CompactionResponse] = (
            channel.unary_unary(
                "/etcdserverpb.KV/Compact", pb.CompactionRequest.SerializeToString, pb.CompactionResponse.FromString
            )
        )
        self.watch: grpc.aio.StreamStreamMultiCallable[pb.WatchRequest, pb.WatchResponse] = channel.stream_stream(
            "/etcdserverpb.Watch/Watch", pb.WatchRequest.SerializeToString, pb.WatchResponse.FromString
        )
        self.authenticate: grpc.aio.UnaryUnaryMultiCallable[pb.AuthenticateRequest, pb.AuthenticateResponse] = (
            channel.unary_unary(
                "/etcdserverpb.Auth/Authenticate",
                pb.AuthenticateRequest.SerializeToString,
                pb.AuthenticateResponse.FromString,
            )
        )
        self.status: grpc.aio.UnaryUnaryMultiCallable[pb.StatusRequest, pb.StatusResponse] = channel.unary_unary(
            "/etcdserverpb.Maintenance/Status", pb.StatusRequest.SerializeToString, pb.StatusResponse.FromString
        )
        self.alarm: grpc.aio.UnaryUnaryMultiCallable[pb.AlarmRequest, pb.AlarmResponse] = channel.unary_unary(
            "/etcdserverpb.Maintenance/Alarm", pb.AlarmRequest.SerializeToString, pb.AlarmResponse.FromString
        )
        self.defragment: grpc.aio.UnaryUnaryMultiCallable[pb.DefragmentRequest, pb.DefragmentResponse] = (
            channel.unary_unary(
                "/etcdserverpb.Maintenance/Defragment",
                pb.DefragmentRequest.SerializeToString,
                pb.DefragmentResponse.FromString,
            )
        )

    async def is_ready(self, limit_s: float) -> bool:
        """Whether it takes calls now, or soon."""
        if self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.channel.channel_ready()
                return True
        return False


class Members:
    """All of them, and who is asked next."""

    def __init__(self, url: EtcdLogs, call_seconds: float) -> None:
        self._url = url
        self.call_seconds: Final = call_seconds
        self.all: Final = tuple(EtcdPeer(url, endpoint) for endpoint in url.endpoints)
        self._next = 0
        self._token: str | None = None
        self.closing: Final = asyncio.Event()

    async def ready(self) -> EtcdPeer:
        """A member that takes calls.

        Raises:
            EtcdUnreachable: none does, or it does not let us in.
        """
        for _ in self.all:
            if self.closing.is_set():
                raise EtcdUnreachable("the log is closed")
            member = self.all[self._next]
            try:
                if await member.is_ready(CONNECT_SECONDS / len(self.all)):
                    await self._log_in(member)
                    return member
            except asyncio.CancelledError:
                if not _was_closed(self.closing):
                    raise
                raise EtcdUnreachable("the log is closed") from None
            self.pass_over(member)
        raise EtcdUnreachable("no member of etcd answers: is it running?", log=str(self._url))

    def pass_over(self, member: EtcdPeer) -> None:
        """It failed: ask the next one."""
        if self.all[self._next] is member:
            self._next = (self._next + 1) % len(self.all)

    async def call(
        self,
        way: Callable[[EtcdPeer], "grpc.aio.UnaryUnaryMultiCallable[Asked, Answer]"],
        request: Asked,
        member: EtcdPeer | None = None,
        *,
        slow: bool = False,
    ) -> Answer:
        """Ask one member, once more only if what we came in with is no longer good.

        Raises:
            EtcdUnreachable: nothing was sent.
            grpc.aio.AioRpcError: what came of it; see `is_refusal`.
        """
        limit_s = _SLOW_SECONDS if slow else self.call_seconds
        for attempt in (1, 2):
            asked = member or await self.ready()
            try:
                return await way(asked)(request, timeout=limit_s, metadata=self.metadata())
            except grpc.aio.AioRpcError as error:
                if attempt == 1 and self._token is not None and any(text in str(error) for text in _OLD_TOKEN):
                    self._token = None
                    await self._log_in(asked)
                    continue
                if not is_refusal(error):
                    self.pass_over(asked)
                raise
        raise AssertionError("unreachable")

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What comes with every call."""
        return (("hasleader", "true"), *([] if self._token is None else [("token", self._token)]))

    async def _log_in(self, member: EtcdPeer) -> None:
        if self._url.user is None or self._token is not None:
            return
        request = pb.AuthenticateRequest(name=self._url.user, password=_password(self._url))
        try:
            answer = await member.authenticate(request, timeout=self.call_seconds, metadata=(("hasleader", "true"),))
        except grpc.aio.AioRpcError as error:
            raise EtcdUnreachable("etcd does not let us in", user=self._url.user, reason=error.details()) from error
        self._token = answer.token

    async def close(self) -> None:
        self.closing.set()
        for member in self.all:
            await member.channel.close(None)


def _was_closed(closing: asyncio.Event) -> bool:
    """Whether a cancelled call was cancelled by its channel's end, not because our task is."""
    task = asyncio.current_task()
    return closing.is_set() and (task is None or not task.cancelling())


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unavailable("a file that the log's URL names cannot be read", path=path, reason=error.strerror) from error


def _password(url: EtcdLogs) -> str:
    return (_read(url.password_file) or b"").decode().strip()


def _credentials(url: EtcdLogs) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(_read(url.ca), _read(url.key), _read(url.cert))
