"""The servers of an Oxia, as who calls them sees them: one of them tells which server leads, and that one is asked.

Assignments come as a stream from one of the servers that the URL names, for
as long as the log is open. A call goes to the leader of the moment, once;
what is to be repeated, its caller repeats. Who was sent to the wrong place,
or got no answer, mistrusts the assignments: they are asked of the next one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio

from dray.errors import Unavailable
from dray.log.oxia import oxia_pb2 as pb
from dray.log.oxia.shards import ShardPlace, place_of
from dray.log.port import NotAppended
from dray.log.urls import OxiaLogs

CONNECT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts to reach Oxia; whoever waits for ever keeps to the last one."""
_SLICE_SECONDS: Final = 0.25
"""How long a leader may take to be reached before it is asked again who leads."""
_DOUBT_SECONDS: Final = 0.5
_TOKEN_SECONDS: Final = 30.0
"""A token is read again from its file this often: it ends some day."""
_OPTIONS: Final[Sequence[tuple[str, int]]] = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),  # whether to send again is for us to say
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 6_000),  # Oxia forbids more than one in 5 s
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.use_local_subchannel_pool", 1),
)
_SERVICES: Final = ("io.oxia.proto.v1.OxiaClient", "io.streamnative.oxia.proto.OxiaClient")
"""As it is called now, and by servers before 0.15."""
_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class OxiaUnreachable(NotAppended):
    """Nobody tells who leads, or the leader cannot be reached; nothing was sent."""


def is_refusal(error: grpc.aio.AioRpcError) -> bool:
    """Whether the request surely had no effect, and would have none if it were sent again."""
    return error.code() in _REFUSALS


def is_elsewhere(error: grpc.aio.AioRpcError) -> bool:
    """Whether the server says that it does not lead the shard, or does not know the service by this name."""
    said = str(error.details()).lower()
    return error.code() is grpc.StatusCode.UNIMPLEMENTED or "not leader" in said or "shard not found" in said


class OxiaPeer:
    """One server."""

    def __init__(self, url: OxiaLogs, endpoint: str) -> None:
        self.endpoint = endpoint
        options = list(_OPTIONS)
        self._channel = (
            grpc.aio.secure_channel(endpoint, _credentials(url), options=options)
            if url.secure
            else grpc.aio.insecure_channel(endpoint, options=options)
        )
        self._services = _SERVICES
        self._name_methods()

    def use_other_service(self) -> None:
        """It does not know the service by the name that was used."""
        self._services = self._services[::-1]
        self._name_methods()

    def _name_methods(self) -> None:
        channel, service = self._channel, self._services[0]
        self.assignments: grpc.aio.UnaryStreamMultiCallable[pb.AssignmentsRequest, pb.Assignments] = (
            channel.unary_stream(
                f"/{service}/GetShardAssignments", pb.AssignmentsRequest.SerializeToString, pb.Assignments.FromString
            )
        )
        self.write: grpc.aio.UnaryUnaryMultiCallable[pb.WriteRequest, pb.WriteResponse] = channel.unary_unary(
            f"/{service}/Write", pb.WriteRequest.SerializeToString, pb.WriteResponse.FromString
        )
        self.read: grpc.aio.UnaryStreamMultiCallable[pb.ReadRequest, pb.ReadResponse] = channel.unary_stream(
            f"/{service}/Read", pb.ReadRequest.SerializeToString, pb.ReadResponse.FromString
        )
        self.scan: grpc.aio.UnaryStreamMultiCallable[pb.RangeScanRequest, pb.RangeScanResponse] = channel.unary_stream(
            f"/{service}/RangeScan", pb.RangeScanRequest.SerializeToString, pb.RangeScanResponse.FromString
        )
        self.sequence: grpc.aio.UnaryStreamMultiCallable[pb.SequenceRequest, pb.SequenceResponse] = (
            channel.unary_stream(
                f"/{service}/GetSequenceUpdates", pb.SequenceRequest.SerializeToString, pb.SequenceResponse.FromString
            )
        )

    async def is_ready(self, limit_s: float) -> bool:
        """Whether it takes calls now, or soon."""
        if self._channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._channel.channel_ready()
                return True
        return False

    async def is_there(self, limit_s: float) -> bool:
        """The same, but one that cannot be connected to now is not waited for."""
        done = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while (state := self._channel.get_state(try_to_connect=True)) not in done:
                    await self._channel.wait_for_state_change(state)
                return state is grpc.ChannelConnectivity.READY
        return False

    async def close(self) -> None:
        await self._channel.close(None)


@dataclass(frozen=True, slots=True)
class LeaderRoute:
    """The way to the leader of a shard, as it was when somebody asked."""

    shard: int
    peer: OxiaPeer


class OxiaServers:
    """All of them, and who leads."""

    def __init__(self, url: OxiaLogs, call_seconds: float) -> None:
        self._url = url
        self.call_seconds: Final = call_seconds
        self._peers: dict[str, OxiaPeer] = {}
        self._next = 0
        self._assignments: pb.Assignments | None = None
        self._changed = asyncio.Event()
        self._mistrusted = asyncio.Event()
        self._doubted_until = 0.0
        self._why = "no server was asked yet"
        self._asking: asyncio.Task[None] | None = None
        self._token: tuple[float, str] | None = None
        self.closing: Final = asyncio.Event()
        self.listeners: Final[set[Callable[[], None]]] = set()
        """Called when assignments have changed, and when the log is closed."""

    # -- who leads -------------------------------------------------------------

    def place(self, partition_key: str) -> ShardPlace | None:
        """Where a partition key is, as far as we know; None: nobody told, or nobody leads."""
        if self._assignments is None:
            return None
        found = place_of(partition_key, self._assignments, self._url.namespace)
        return found if found is not None and found.leader else None

    async def route(self, partition_key: str) -> LeaderRoute:
        """The way to who leads.

        Raises:
            OxiaUnreachable: nobody tells, or it does not take calls.
        """
        if self._asking is None and not self.closing.is_set():
            self._asking = asyncio.get_running_loop().create_task(self._ask_for_ever())
        time = asyncio.get_running_loop().time
        until = time() + min(CONNECT_SECONDS, self.call_seconds)
        silent = ""
        while not self.closing.is_set() and (left := until - time()) > 0:
            place = self.place(partition_key)
            doubted_s = self._doubted_until - time()
            if place is None or doubted_s > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left if place is None else min(left, doubted_s)):
                        await self._changed.wait()
                continue
            peer = self._peer(place.leader)
            if await self._is_ready(peer, min(_SLICE_SECONDS, left)):
                return LeaderRoute(place.shard, peer)
            silent = place.leader
            self._doubt()
        if self.closing.is_set():
            raise OxiaUnreachable("the log is closed")
        if silent:
            raise OxiaUnreachable("the server of Oxia that leads does not answer: is it running?", leader=silent)
        raise OxiaUnreachable("no server of Oxia tells who leads: is it running?", log=str(self._url), reason=self._why)

    async def _is_ready(self, peer: OxiaPeer, limit_s: float) -> bool:
        try:
            return await peer.is_ready(limit_s)
        except asyncio.CancelledError:
            if not was_closed(self.closing):
                raise
            return False

    def mistrust(self, route: LeaderRoute, error: grpc.aio.AioRpcError | None = None) -> None:
        """A call that went this way failed: somebody else may lead."""
        if error is not None and error.code() is grpc.StatusCode.UNIMPLEMENTED:
            route.peer.use_other_service()
            return
        self._doubt()

    def _doubt(self) -> None:
        """Ask the next one who leads, and wait for its answer a little before we believe what we know."""
        self._doubted_until = asyncio.get_running_loop().time() + _DOUBT_SECONDS
        self._mistrusted.set()

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What comes with every call."""
        if self._url.token_file is None:
            return ()
        now = asyncio.get_running_loop().time()
        if self._token is None or now - self._token[0] > _TOKEN_SECONDS:
            self._token = now, (_read(self._url.token_file) or b"").decode().strip()
        return (("authorization", f"Bearer {self._token[1]}"),)

    def forget_token(self) -> None:
        """It was not taken: read it again."""
        self._token = None

    # -- calls -----------------------------------------------------------------

    async def write(self, route: LeaderRoute, request: pb.WriteRequest) -> pb.WriteResponse:
        """One batch, sent once."""
        return await route.peer.write(request, timeout=self.call_seconds, metadata=self.metadata())

    async def read(self, route: LeaderRoute, *gets: pb.Get) -> list[pb.Record]:
        """The answer to each of some gets, in their order; they are no snapshot."""
        request = pb.ReadRequest(shard=route.shard, gets=gets)
        answers = route.peer.read(request, timeout=self.call_seconds, metadata=self.metadata())
        found = [one async for answer in _all(answers) for one in answer.gets]
        if len(found) != len(gets):
            raise Unavailable("Oxia answered another number of gets", asked=len(gets), answered=len(found))
        return found

    async def scan(self, route: LeaderRoute, start: str, end: str) -> list[pb.Record]:
        """The records of a range of keys at one moment."""
        request = pb.RangeScanRequest(shard=route.shard, start=start, end=end)
        answers = route.peer.scan(request, timeout=self.call_seconds, metadata=self.metadata())
        return [one async for answer in _all(answers) for one in answer.records]

    async def close(self) -> None:
        self.closing.set()
        self._changed.set()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        for peer in self._peers.values():
            await peer.close()
        self._ring()

    # -- assignments -----------------------------------------------------------

    async def _ask_for_ever(self) -> None:
        failures = 0
        while not self.closing.is_set():
            peer = self._peer(self._url.endpoints[self._next])
            before = self._assignments
            try:
                await self._listen(peer)
            except (grpc.aio.AioRpcError, Unavailable) as error:
                self._why = f"{peer.endpoint}: {error.details() if isinstance(error, grpc.aio.AioRpcError) else error}"
                if isinstance(error, grpc.aio.AioRpcError):
                    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                        peer.use_other_service()
                    elif error.code() is grpc.StatusCode.UNAUTHENTICATED:
                        self.forget_token()
            if self._assignments is not before:
                failures = 0
            self._next = (self._next + 1) % len(self._url.endpoints)
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1

    async def _listen(self, peer: OxiaPeer) -> None:
        """What one server tells, until it ends, or is not believed any more."""
        if not await peer.is_there(CONNECT_SECONDS):
            raise OxiaUnreachable("it does not answer")
        self._mistrusted.clear()
        stream = peer.assignments(pb.AssignmentsRequest(namespace=self._url.namespace), metadata=self.metadata())
        doubt = asyncio.get_running_loop().create_task(self._mistrusted.wait())
        doubt.add_done_callback(lambda _: stream.cancel())
        try:
            async for answer in _all(stream):
                self._assignments = answer
                self._doubted_until = 0.0
                self._ring()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        finally:
            doubt.cancel()

    def _ring(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self.closing.is_set():
            self._changed.set()
        for listener in list(self.listeners):
            listener()

    def _peer(self, endpoint: str) -> OxiaPeer:
        if endpoint not in self._peers:
            self._peers[endpoint] = OxiaPeer(self._url, endpoint)
        return self._peers[endpoint]


async def _all(stream: "grpc.aio.UnaryStreamCall[_Asked, _Answer]") -> "AsyncIterator[_Answer]":
    """The messages of a stream, which does not go on for nobody."""
    try:
        async for answer in stream:
            yield answer
    finally:
        stream.cancel()


def was_closed(closing: asyncio.Event) -> bool:
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


def _credentials(url: OxiaLogs) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(_read(url.ca), _read(url.key), _read(url.cert))
