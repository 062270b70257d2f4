"""One heap, to a program: put messages in, take them out, look at them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from dray.api.v1 import heaps_pb2 as pb
from dray.client import otel
from dray.client.codecs import Codec, Payload
from dray.client.consumer import MOST, Consumer, ConsumerOptions
from dray.client.errors import ClientClosed, ClientError, InvalidRequest, LeaseLost
from dray.client.job import LOG, Job, OnLost, Span, duration_of
from dray.client.producer import Enqueued
from dray.client.transport import DLQ_DELETE, DLQ_REPLAY, MOVE_TO_DLQ, PEEK, PURGE

if TYPE_CHECKING:
    from dray.client.client import Client

DRAIN_S: Final = 10.0
PAGE: Final = 100


class State(Enum):
    """Of a message."""

    READY = 1
    DELAYED = 2
    LEASED = 3
    DEAD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to be enqueued."""

    payload: Payload
    priority: int = 0
    delay: Span | None = None
    not_before: datetime | None = None
    key: str | None = None
    dedup_key: str | None = None
    max_retries: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seq: int | None = None
    """Only with a client that was given its epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeked:
    """A message that was looked at and not taken."""

    id: str
    state: State
    payload: Payload
    priority: int
    attempts: int
    max_retries: int
    enqueued_at: datetime
    headers: Mapping[str, str]
    partition: int
    not_before: datetime | None
    holder: str
    last_error: str
    dead_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """How a heap stands."""

    heap: str
    ready: int
    delayed: int
    leased: int
    dead: int
    oldest_ready: timedelta
    payload_bytes: int
    enqueued_total: int
    duplicates_total: int
    granted_total: int
    acked_total: int
    failed_total: int
    lease_timeouts_total: int
    dead_total: int
    dropped_total: int
    ready_by_priority: Mapping[int, int]


class Heap:
    """A heap, by its name. Making one asks nobody."""

    def __init__(self, client: "Client", name: str) -> None:
        self.name = name
        self.dlq = DeadLetterBox(self)
        self._client = client

    # -- producers ---------------------------------------------------------

    async def enqueue(
        self, payload: Payload, *, priority: int = 0, delay: Span | None = None, not_before: datetime | None = None,
        key: str | None = None, dedup_key: str | None = None, max_retries: int | None = None,
        headers: Mapping[str, str] | None = None, seq: int | None = None,
    ) -> Enqueued:  # fmt: skip
        """Put a message in; durable when it returns.

        It is sent until it is answered or the client's timeout is over, always as the same message.

        Raises:
            InvalidRequest: fix it.
            LimitReached, BrokerUnavailable: nothing happened.
            OutcomeUnknown: it may have been taken.
        """
        with otel.producing(self.name, headers or {}) as carried:
            item = self._item(payload, priority, delay, not_before, key, dedup_key, max_retries, carried, seq)
            return await self._client.producer.send(item, self._client.timeout)

    async def enqueue_batch(self, items: Sequence[NewMessage]) -> list[Enqueued]:
        """Put all of them in, or none; at most 1,000 and 8 MiB. Over several heaps: `Client.enqueue_batch`."""
        return await self._client.enqueue_batch([(self, one) for one in items])

    def item(self, one: NewMessage, headers: Mapping[str, str]) -> pb.EnqueueReq:
        return self._item(
            one.payload, one.priority, one.delay, one.not_before, one.key, one.dedup_key, one.max_retries, headers,
            one.seq,
        )  # fmt: skip

    def _item(
        self, payload: Payload, priority: int, delay: Span | None, not_before: datetime | None, key: str | None,
        dedup_key: str | None, max_retries: int | None, headers: Mapping[str, str], seq: int | None,
    ) -> pb.EnqueueReq:  # fmt: skip
        content, is_json = self._client.codec.encode(payload)
        if not -(1 << 63) <= priority < 1 << 63:
            raise InvalidRequest("a priority is a signed number of 64 bits")
        if delay is not None and not_before is not None:
            raise InvalidRequest("a message has a delay or a moment, not both")
        item = pb.EnqueueReq(
            topic=self.name, payload=content, priority=priority, partition_key=key, headers=headers or None,
            payload_format=pb.JSON if is_json else pb.BYTES, dedup_key=dedup_key, max_retries=max_retries,
        )  # fmt: skip
        if delay is not None:
            item.delay.CopyFrom(duration_of(delay))
        if not_before is not None:
            item.not_before.CopyFrom(_moment(not_before))
        if dedup_key is None:
            self._number(item, seq)
        return item

    def _number(self, item: pb.EnqueueReq, seq: int | None) -> None:
        producer = self._client.producer
        if producer.given != (seq is not None):
            raise InvalidRequest(
                "who gives a client its epoch numbers its messages, with seq; else the client does both"
            )
        item.producer_id = producer.id
        item.epoch = producer.epoch
        item.seq = producer.next_seq(self.name) if seq is None else seq

    # -- consumers ---------------------------------------------------------

    def pop(
        self, *, concurrency: int = 1, prefetch: int | None = None, lease: Span | None = None,
        worst_priority: int | None = None, auto_ack: bool = True, auto_extend: bool = True,
        on_lost: OnLost = "cancel", consumer: str | None = None,
    ) -> Consumer:  # fmt: skip
        """Messages as they come, the best first: iterate it. At most `prefetch` (or `concurrency`) are unsettled."""
        most = prefetch or concurrency
        if not 1 <= most <= MOST:
            raise InvalidRequest(f"a consumer has from 1 to {MOST} messages at a time")
        options = ConsumerOptions(
            prefetch=most, lease=lease, worst_priority=worst_priority, auto_ack=auto_ack, auto_extend=auto_extend,
            on_lost=on_lost, name=consumer or "", timeout=self._client.timeout,
        )  # fmt: skip
        return self._client.new_consumer(self.name, options)

    def pop_stream(self, prefetch: int = 1, visibility: Span | None = None) -> Consumer:
        """The specification's name for `pop`."""
        return self.pop(prefetch=prefetch, lease=visibility)

    async def run(
        self, handler: Callable[[Job], Awaitable[None]], *, concurrency: int = 16, lease: Span | None = None,
        worst_priority: int | None = None, drain: float = DRAIN_S, consumer: str | None = None,
    ) -> None:  # fmt: skip
        """Hand every message to `handler`, so many at a time, until this is cancelled.

        A handler that returns acks, one that raises nacks. When cancelled: no more messages are taken, handlers that
        run get `drain` seconds, and what is left goes back.
        """
        consumer_ = self.pop(concurrency=concurrency, lease=lease, worst_priority=worst_priority, consumer=consumer)
        workers = [asyncio.create_task(_work(consumer_, handler)) for _ in range(concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            await consumer_.close()
            if workers:
                await asyncio.wait(workers, timeout=drain)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    # -- operators ---------------------------------------------------------

    async def peek(self, limit: int = 10, state: State = State.READY) -> list[Peeked]:
        """Look at messages without taking them, the best (or the next, or the oldest) first."""
        found: list[Peeked] = []
        async for one in self.walk(state, page=min(limit, PAGE)):
            found.append(one)
            if len(found) >= limit:
                break
        return found

    async def walk(self, state: State = State.READY, *, page: int = PAGE) -> AsyncIterator[Peeked]:
        """All messages in a state, page by page."""
        token = ""
        while True:
            request = pb.PeekReq(topic=self.name, state=_states(state), limit=page, page_token=token, payload=True)
            answer = await self._client.ask(PEEK, request, harmless=True)
            for one in answer.messages:
                yield _peeked(one, self._client.codec)
            token = answer.next_page_token
            if not token:
                return

    async def stats(self) -> Stats:
        (stats,) = await self._client.stats_of(self.name)
        return stats

    async def purge(
        self, *, include_leased: bool = False, include_dlq: bool = False, force: bool = True, confirmation: str = ""
    ) -> int:
        """Delete what has arrived so far; how many messages that were."""
        request = pb.PurgeReq(
            topic=self.name, force=force, confirmation=confirmation, include_leased=include_leased,
            include_dlq=include_dlq,
        )  # fmt: skip
        return (await self._client.ask_confirmed(PURGE, request, harmless=False)).count

    async def bury(self, ids: Sequence[str], *, force: bool = False, reason: str = "") -> int:
        """Move messages to the dead letters; those that are leased only by force."""
        request = pb.MoveToDlqReq(topic=self.name, message_ids=ids, force=force, reason=reason)
        return (await self._client.ask(MOVE_TO_DLQ, request, harmless=True)).count

    @property
    def client(self) -> "Client":
        return self._client


class DeadLetterBox:
    """The dead letters of one heap."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap

    async def list(self, limit: int = 100) -> "list[Peeked]":
        """The oldest first."""
        return await self._heap.peek(limit, State.DEAD)

    async def replay(
        self, ids: Sequence[str] | None = None, *, keep_time: bool = False, priority: int | None = None,
        per_second: int = 0, dry_run: bool = False,
    ) -> int:  # fmt: skip
        """Make these, or (None) all, ready again; how many that were."""
        request = pb.DlqReplayReq(
            topic=self._heap.name, message_ids=ids or (), all=ids is None, keep_time=keep_time, per_second=per_second,
            dry_run=dry_run,
        )  # fmt: skip
        if priority is not None:
            request.priority = priority
        return (await self._heap.client.ask(DLQ_REPLAY, request, harmless=True)).count

    async def delete(self, ids: Sequence[str] | None = None, *, force: bool = True, confirmation: str = "") -> int:
        """Delete these, or (None) all; how many that were."""
        request = pb.DlqDeleteReq(
            topic=self._heap.name, message_ids=ids or (), all=ids is None, force=force, confirmation=confirmation
        )
        return (await self._heap.client.ask_confirmed(DLQ_DELETE, request, harmless=False)).count


async def _work(consumer: Consumer, handler: Callable[[Job], Awaitable[None]]) -> None:
    while True:
        try:
            job = await consumer.next()
        except ClientClosed:
            return
        try:
            async with job:
                await handler(job)
        except (LeaseLost, ClientError) as error:
            LOG.warning("a job was not settled", extra={"id": job.id, "error": str(error)})
        except Exception:
            LOG.exception("a handler failed; the job comes back", extra={"id": job.id})


def _states(state: State) -> pb.State:
    return {State.READY: pb.READY, State.DELAYED: pb.DELAYED, State.LEASED: pb.LEASED, State.DEAD: pb.DEAD}[state]


def _moment(moment: datetime) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(moment.astimezone(UTC))
    return found


def _peeked(told: pb.PeekedMessage, codec: Codec) -> Peeked:
    item = told.message
    return Peeked(
        id=item.message_id,
        state=State(told.state),
        payload=codec.decode(item.payload, item.payload_format == pb.JSON) if item.payload else b"",
        priority=item.priority,
        attempts=item.attempts,
        max_retries=item.max_retries,
        enqueued_at=item.enqueued_time.ToDatetime(UTC),
        headers=dict(item.headers),
        partition=item.partition_id,
        not_before=told.not_before.ToDatetime(UTC) if told.HasField("not_before") else None,
        holder=told.holder,
        last_error=told.last_error,
        dead_at=told.dead_time.ToDatetime(UTC) if told.HasField("dead_time") else None,
    )


def stats_from(told: pb.HeapStats) -> Stats:
    return Stats(
        heap=told.topic,
        ready=told.ready,
        delayed=told.delayed,
        leased=told.leased,
        dead=told.dead,
        oldest_ready=told.oldest_ready.ToTimedelta(),
        payload_bytes=told.payload_bytes,
        enqueued_total=told.enqueued_total,
        duplicates_total=told.duplicates_total,
        granted_total=told.granted_total,
        acked_total=told.acked_total,
        failed_total=told.failed_total,
        lease_timeouts_total=told.lease_timeouts_total,
        dead_total=told.dead_total,
        dropped_total=told.dropped_total,
        ready_by_priority=dict(told.ready_by_priority),
    )
