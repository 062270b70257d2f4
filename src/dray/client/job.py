"""One message that a worker holds, and every way to be done with it.

    async with job:            leaving it:
        ...                      normally             ack, or with auto_ack off: nack and a warning
        await job.ack()          settled inside       nothing more
        raise Retry(delay)       Retry, Reject        nack after the delay, reject; both are swallowed
        raise ValueError()       another exception    nack with its type and text; it goes on
                                 cancelled            release: no attempt is counted
                                 lease lost           `LeaseLost`, whatever the body did

Invariants
    CJ1  A job is settled at most once by its own doing; leaving its block
         settles it if nothing else did.
    CJ2  A lease that is lost is never told as success.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Literal, Protocol, TypeAlias

from google.protobuf.duration_pb2 import Duration

from dray.api.v1 import heaps_pb2 as pb
from dray.client import otel
from dray.client.codecs import Codec, Payload
from dray.client.errors import ClientError, InvalidRequest, LeaseLost
from dray.client.renewal import LeaseRenewal, Renewing
from dray.client.retrying import now_s

OnLost: TypeAlias = Literal["cancel", "flag"]
Span: TypeAlias = timedelta | float
LOG: Final = logging.getLogger("dray.client")


class Retry(Exception):
    """Raised inside a job: let it come back, after a delay or after the backoff of its heap."""

    def __init__(self, delay: Span | None = None, error: str = "") -> None:
        super().__init__(error or "try again")
        self.delay = delay


class Reject(Exception):
    """Raised inside a job: it can never succeed, so it becomes a dead letter now."""


class Settling(Protocol):
    """Where settlements go."""

    def __call__(self, job: "Job", item: pb.SettleOne) -> Awaitable[pb.Settled]: ...


class Job:
    """A message that this worker holds until it settles it, or its lease ends."""

    def __init__(
        self, *, heap: str, item: pb.PopItem, codec: Codec, settle: Settling, renewal: LeaseRenewal | None,
        auto_ack: bool, on_lost: OnLost, loop: asyncio.AbstractEventLoop, done: "Callable[[Job], None]",
    ) -> None:  # fmt: skip
        self.heap = heap
        self.id = item.message_id
        self.headers = dict(item.headers) if item.headers else {}
        self.settled = False
        self.is_lost = False
        """The lease is known to be over, and was so before the job was settled."""
        self._lost: asyncio.Event | None = None
        """Made for whoever asks for it."""
        self._item = item
        self._codec = codec
        self._settle = settle
        self._renewal = renewal
        self._auto_ack = auto_ack
        self._on_lost = on_lost
        self._loop = loop
        self._done = done
        lease = item.lease_for
        self._lease_s = lease.seconds + lease.nanos / 1e9
        lost = None if renewal is None else self._lose_later
        self._renewing = Renewing(heap, item.lease_token, self._lease_s, now_s() + self._lease_s, lost)
        self._task: asyncio.Task[object] | None = None
        self._cancelled = False
        self._span: AbstractContextManager[None] | None = None
        if renewal is not None:
            renewal.keep(self._renewing)

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is known to be over before the job was settled."""
        if self._lost is None:
            self._lost = asyncio.Event()
            if self.is_lost:
                self._lost.set()
        return self._lost

    @property
    def priority(self) -> int:
        return self._item.priority

    @property
    def attempts(self) -> int:
        """Deliveries that failed before this one."""
        return self._item.attempts

    @property
    def max_retries(self) -> int:
        return self._item.max_retries

    @property
    def partition(self) -> int:
        return self._item.partition_id

    @property
    def partition_key(self) -> str:
        return self._item.partition_key

    @property
    def enqueued_at(self) -> datetime:
        return self._item.enqueued_time.ToDatetime(UTC)

    @property
    def payload(self) -> Payload:
        return self._codec.decode(self._item.payload, self._item.payload_format == pb.JSON)

    @property
    def raw(self) -> bytes:
        """The payload as it was sent."""
        return self._item.payload

    @property
    def lease_token(self) -> str:
        return self._item.lease_token

    @property
    def lease_left(self) -> timedelta:
        """By this machine's clock, from the receipt or the last renewal."""
        return timedelta(seconds=max(0.0, self._renewing.ends_s - now_s()))

    # -- settling ----------------------------------------------------------

    async def ack(self) -> None:
        """It is done: it never comes back. Raises `LeaseLost` if it may come back all the same."""
        await self._end(pb.SettleOne(kind=pb.ACK))

    async def nack(self, *, delay: Span | None = None, error: str | None = None) -> None:
        """It failed: it comes back after the delay, or after the backoff of its heap, or becomes a dead letter."""
        await self._end(_with(pb.SettleOne(kind=pb.NACK, error=error or ""), delay))

    async def release(self, *, delay: Span | None = None) -> None:
        """Somebody else should have it; no attempt is counted."""
        await self._end(_with(pb.SettleOne(kind=pb.RELEASE), delay))

    async def reject(self, *, error: str | None = None) -> None:
        """It can never succeed: it becomes a dead letter now."""
        await self._end(pb.SettleOne(kind=pb.REJECT, error=error or ""))

    async def extend(self, by: Span) -> timedelta:
        """Prolong the lease; what is left of it then."""
        result = await self._ask(_with(pb.SettleOne(kind=pb.EXTEND), by))
        left_s = result.lease_for.seconds + result.lease_for.nanos / 1e9
        self._renewing.ends_s = now_s() + left_s
        return timedelta(seconds=left_s)

    async def _end(self, item: pb.SettleOne) -> None:
        if self.settled:
            raise InvalidRequest("the job is settled", id=self.id)
        if self.is_lost:
            self._finish()
            raise LeaseLost("the lease has ended", id=self.id)  # CJ2
        self._finish()  # CJ1: a repeat is the transport's, with the same token
        await self._ask(item)

    async def _ask(self, item: pb.SettleOne) -> pb.Settled:
        item.lease_token = self._item.lease_token
        with otel.calling(self.heap, "settle"):
            try:
                return await self._settle(self, item)
            except LeaseLost:
                self._note_lost()
                raise

    def _finish(self) -> None:
        """Nothing more is done here: its consumer may ask for the next one together with this one's settlement."""
        self.settled = True
        self._stop_renewing()
        self._done(self)

    def _stop_renewing(self) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.drop(self._item.lease_token)

    # -- as a block --------------------------------------------------------

    async def __aenter__(self) -> "Job":
        self._task = asyncio.current_task()
        self._span = otel.processing(self.heap, self.headers, self.id, self.partition)
        self._span.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if self._span is not None:
            self._span.__exit__(None, None, None)
        if self.is_lost:
            self._finish()
            if self._cancelled and task is not None:
                task.uncancel()
            raise LeaseLost("the lease has ended while the job ran", id=self.id) from error  # CJ2
        if self.settled:
            return isinstance(error, Retry | Reject)
        return await self.leave(error)

    async def leave(self, error: BaseException | None) -> bool:
        """Settle what was not settled; whether the exception has done its work by that (CJ1)."""
        match error:
            case None if self._auto_ack:
                await self.ack()
            case None:
                LOG.warning("a job was left unsettled with auto_ack off: it comes back", extra={"id": self.id})
                await self.nack(error="left unsettled")
            case Retry():
                await self.nack(delay=error.delay, error=str(error))
                return True
            case Reject():
                await self.reject(error=str(error))
                return True
            case asyncio.CancelledError():
                await self._quietly(self.release())
            case Exception():
                await self._quietly(self.nack(error=f"{type(error).__name__}: {error}"))
            case _:
                await self._quietly(self.release())
        return False

    async def _quietly(self, settling: Awaitable[None]) -> None:
        """The exception that is under way matters more; the lease ends by itself."""
        try:
            await asyncio.shield(asyncio.ensure_future(settling))
        except ClientError as failed:
            LOG.warning(
                "a job could not be given back: its lease ends by itself", extra={"id": self.id, "error": str(failed)}
            )

    def _lose_later(self) -> None:
        """From the renewal's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._lose)

    def _lose(self) -> None:
        if self.settled:
            return
        self._note_lost()
        if self._on_lost == "cancel" and self._task is not None and not self._task.done():
            self._cancelled = True
            self._task.cancel()

    def _note_lost(self) -> None:
        self.is_lost = True
        if self._lost is not None:
            self._lost.set()


def seconds_of(span: Span) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


def duration_of(span: Span) -> Duration:
    seconds = seconds_of(span)
    if seconds < 0:
        raise InvalidRequest("a duration is not negative")
    whole = int(seconds)
    return Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


def _with(item: pb.SettleOne, span: Span | None) -> pb.SettleOne:
    if span is not None:
        item.duration.CopyFrom(duration_of(span))
    return item
