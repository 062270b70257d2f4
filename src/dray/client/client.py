"""The client: endpoints, heaps, and what they share: one producer, one thread that renews leases."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import TracebackType
from typing import Final, TypedDict, TypeVar, Unpack

from google.protobuf.message import Message

from dray.api.v1 import heaps_pb2 as pb
from dray.client import otel
from dray.client.codecs import JSON_OR_BYTES, Codec
from dray.client.consumer import Consumer, ConsumerOptions
from dray.client.errors import Conflicting, InvalidRequest, NotConfirmed
from dray.client.grpc import GrpcTransport, Tls
from dray.client.heap import Heap, NewMessage, Stats, stats_from
from dray.client.job import Span, duration_of
from dray.client.keys import Keys
from dray.client.producer import Enqueued, Producer
from dray.client.renewal import LeaseRenewal
from dray.client.retrying import keep_trying
from dray.client.transport import (
    DELETE_HEAP,
    ENQUEUE_BATCH,
    GET_HEAP,
    LIST_HEAPS,
    MAKE_HEAP,
    STATS,
    UPDATE_HEAP,
    A,
    Method,
    Q,
    Transport,
)

ADDRESS: Final = "127.0.0.1:7432"
PAGE: Final = 500


class Mode(Enum):
    """Which priority is the best."""

    MIN = 0
    MAX = 1


class HeapOptions(TypedDict, total=False):
    """What can be said about a heap; all of it can be changed later."""

    k: int
    visibility_timeout: Span
    max_lease: Span
    max_retries: int
    backoff_base: Span
    backoff_cap: Span
    jitter: bool
    dead_letters: bool
    retention: Span
    dedup_window: Span
    message_ttl: Span
    max_payload_bytes: int
    json: bool
    compression: bool
    paused: bool
    max_messages: int
    max_inflight: int
    max_leases_per_consumer: int
    max_dedup_keys: int
    history: str
    """The topic that is told what happens to each message; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapInfo:
    """A heap as the cluster has it."""

    name: str
    mode: Mode
    partitions: int
    revision: int
    created: datetime
    durability: str
    visibility_timeout: timedelta
    max_retries: int
    paused: bool
    config: pb.HeapConfig = field(repr=False)
    """All of it, as the wire has it."""


_C = TypeVar("_C", pb.DestroyReq, pb.PurgeReq, pb.DlqDeleteReq, pb.RevokeKeyReq)


class Client:
    """Heaps of a cluster. Endpoints are tried in turn; streams are resumed; use it as a block, or close it.

    `timeout` bounds every call, its repeats included. Who gives `epoch` (with `producer_id`) numbers messages itself.
    """

    def __init__(
        self, endpoints: str | Sequence[str] = ADDRESS, *, api_key: str | None = None, tls: Tls | None = None,
        producer_id: str | None = None, epoch: int | None = None, timeout: float = 10.0,
        codec: Codec = JSON_OR_BYTES, transport: Transport | None = None,
    ) -> None:  # fmt: skip
        if epoch is not None and producer_id is None:
            raise InvalidRequest("an epoch is a producer's: give producer_id, too")
        asked = [endpoints] if isinstance(endpoints, str) else list(endpoints)
        if not asked:
            raise InvalidRequest("give at least one endpoint, as HOST:PORT")
        self._transport: Transport = transport or GrpcTransport(asked, api_key=api_key, tls=tls)
        self.timeout = timeout
        self.codec = codec
        self.keys = Keys(self)
        self.producer = Producer(self._transport, producer_id, epoch)
        self._renewal = LeaseRenewal(self._transport)
        self._consumers: set[Consumer] = set()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, *, drain: float = 10.0) -> None:
        """Consumers are closed, what was enqueued is answered, if it comes in time; nothing of it runs afterwards."""
        for consumer in list(self._consumers):
            await consumer.close()
        self._consumers.clear()
        await self.producer.close(drain)
        self._renewal.close()
        await self._transport.close()

    # -- heaps -------------------------------------------------------------

    def heap(self, name: str) -> Heap:
        """A heap by its name; nobody is asked whether it exists."""
        return Heap(self, name)

    async def make_heap(
        self, name: str, *, mode: Mode = Mode.MIN, partitions: int = 1, **config: Unpack[HeapOptions]
    ) -> HeapInfo:
        """Make a heap; it can be used when this returns. Raises `AlreadyExists`."""
        request = pb.MakeHeapReq(
            topic=name, mode=pb.MAX if mode is Mode.MAX else pb.MIN, partitions=partitions, config=_config(config)
        )
        return _info(await self.ask(MAKE_HEAP, request, harmless=False))

    async def describe_heap(self, name: str) -> HeapInfo:
        return _info(await self.ask(GET_HEAP, pb.HeapRef(topic=name), harmless=True))

    async def alter_heap(
        self, name: str, *, expected_revision: int | None = None, partitions: int | None = None,
        **config: Unpack[HeapOptions],
    ) -> HeapInfo:  # fmt: skip
        """Change what is given; with `expected_revision`, only if nobody was faster."""
        request = pb.UpdateHeapConfigReq(topic=name, config=_config(config))
        if expected_revision is not None:
            request.expected_revision = expected_revision
        if partitions is not None:
            request.partitions = partitions
        return _info(await self.ask(UPDATE_HEAP, request, harmless=expected_revision is None))

    async def heaps(self, prefix: str = "") -> list[HeapInfo]:
        """All heaps, by name."""
        found: list[HeapInfo] = []
        token = ""
        while True:
            request = pb.ListHeapsReq(page_size=PAGE, page_token=token, prefix=prefix)
            answer = await self.ask(LIST_HEAPS, request, harmless=True)
            found += [_info(heap) for heap in answer.heaps]
            token = answer.next_page_token
            if not token:
                return found

    async def delete_heap(self, name: str, *, force: bool = True, confirmation: str = "") -> None:
        """Delete a heap with all its messages."""
        request = pb.DestroyReq(topic=name, force=force, confirmation=confirmation)
        await self.ask_confirmed(DELETE_HEAP, request, harmless=False)

    async def stats(self) -> list[Stats]:
        """How all heaps stand."""
        return await self.stats_of("")

    async def enqueue_batch(self, items: Sequence[tuple[str | Heap, NewMessage]]) -> list[Enqueued]:
        """Put all messages in, each into its heap, or none; at most 1,000 and 8 MiB.

        It is sent until it is answered or the client's timeout is over, always as the same messages.

        Raises:
            InvalidRequest, NotFound: one message can never be taken; its index is named, and nothing was taken.
            LimitReached, BrokerUnavailable, Conflicting: nothing was taken.
            OutcomeUnknown: all of it may have been taken.
        """
        placed = [(self.heap(heap) if isinstance(heap, str) else heap, message) for heap, message in items]
        with otel.producing(",".join(sorted({heap.name for heap, _ in placed})), {}) as carried:
            request = pb.EnqueueBatchReq(
                items=[heap.item(message, {**carried, **message.headers}) for heap, message in placed]
            )

        async def send(seconds: float) -> pb.EnqueueBatchResp:
            try:
                return await self._transport.call(ENQUEUE_BATCH, request, seconds)
            except Conflicting as undecided:
                undecided.retryable = True  # an earlier try of it is not decided yet, or was given up
                raise

        answer = await keep_trying(send, self.timeout, harmless=True)
        return [
            Enqueued(message_id=one.message_id, duplicate=one.duplicate, partition=one.partition_id)
            for one in answer.results
        ]

    # -- for heaps and consumers -------------------------------------------

    async def stats_of(self, name: str) -> list[Stats]:
        answer = await self.ask(STATS, pb.StatsReq(topic=name, by_priority=bool(name)), harmless=True)
        return [stats_from(one) for one in answer.heaps]

    async def ask(self, method: Method[Q, A], request: Q, *, harmless: bool) -> A:
        """Ask until there is an answer, or the time is over."""
        return await keep_trying(
            lambda seconds: self._transport.call(method, request, seconds), self.timeout, harmless=harmless
        )

    async def ask_confirmed(self, method: Method[_C, A], request: _C, *, harmless: bool) -> A:
        """The same for what cannot be undone: who said `force` confirms what the broker asks."""
        try:
            return await self.ask(method, request, harmless=harmless)
        except NotConfirmed as asked:
            if not request.force or not asked.confirmation or request.confirmation:
                raise
            request.confirmation = asked.confirmation
            return await self.ask(method, request, harmless=harmless)

    def new_consumer(self, heap: str, options: ConsumerOptions) -> Consumer:
        consumer = Consumer(self._transport, heap, self.codec, self._renewal, options)
        self._consumers.add(consumer)
        return consumer


def _config(options: HeapOptions) -> pb.HeapConfig:
    config = pb.HeapConfig()
    known: dict[str, object] = dict(options)
    for name, holder, target in (
        ("backoff_base", config.backoff, "base"),
        ("backoff_cap", config.backoff, "cap"),
        ("retention", config.dlq, "retention"),
        ("visibility_timeout", config, "visibility_timeout"),
        ("max_lease", config, "max_lease"),
        ("dedup_window", config, "dedup_window"),
        ("message_ttl", config, "message_ttl"),
    ):
        span = known.pop(name, None)
        if isinstance(span, timedelta | float | int):
            _set(holder, target, span)
    if "jitter" in options:
        config.backoff.jitter = options["jitter"]
    if "dead_letters" in options:
        config.dlq.enabled = options["dead_letters"]
    if "json" in options:
        config.payload_format = pb.JSON if options["json"] else pb.BYTES
    for name in ("jitter", "dead_letters", "json"):
        known.pop(name, None)
    for name, value in known.items():
        try:
            setattr(config, name, value)
        except (AttributeError, TypeError, ValueError) as bad:
            raise InvalidRequest(f"{name}: {bad}") from bad
    return config


def _set(holder: Message, name: str, span: Span) -> None:
    getattr(holder, name).CopyFrom(duration_of(span))


def _info(heap: pb.Heap) -> HeapInfo:
    return HeapInfo(
        name=heap.topic,
        mode=Mode(heap.mode),
        partitions=heap.partitions,
        revision=heap.revision,
        created=heap.created.ToDatetime(UTC),
        durability=heap.durability,
        visibility_timeout=heap.config.visibility_timeout.ToTimedelta(),
        max_retries=heap.config.max_retries,
        paused=heap.config.paused,
        config=heap.config,
    )
