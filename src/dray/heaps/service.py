"""Heaps, as a service: what servers ask.

Any broker answers for any heap, and a settlement may go to another broker
than the grant. The machine chooses what a lease takes; this waits, and turns
a verdict into what its caller does next.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps import telemetry
from dray.heaps.admin import HeapAdmin
from dray.heaps.bodies import Body, pack_body
from dray.heaps.consumers import Consumer, Delivery
from dray.heaps.errors import BadMessage, HeapFull, LeaseLost, MessageGone, TornBatch, UnknownHeap
from dray.heaps.ids import LeaseToken, MessageId
from dray.heaps.lane import HeapLane, NewMessage
from dray.heaps.partitions import partition_of
from dray.heaps.placing import BodyPlacer
from dray.heaps.policy import HeapPolicy
from dray.heaps.reading import BodyReader, ReadObjects
from dray.heaps.spill import Spiller
from dray.heaps.ticker import Ticker
from dray.ids import Entropy
from dray.machine.heaps import answers
from dray.machine.heaps.answers import MessageGiven
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import MAX_RETRIES, Mode
from dray.machine.heaps.packets import BY_STRING, JSON, MAX_NOTE_BYTES, MAX_SEQ, RELATIVE, EnqueueRow, SettleRow
from dray.machine.heaps.packets import Settlement as Settlement
from dray.machine.heaps.shard import Shard
from dray.machine.names import domain_of
from dray.objects.port import Objects
from dray.replica.domains import Domains
from dray.replica.wakeups import CATALOG
from dray.telemetry import logger

MAX_HEADER_BYTES: Final = 16 << 10
MAX_NAME_BYTES: Final = 1_024
RARELY_S: Final = 3_600.0
LOOK_S: Final = 0.01
"""How often a pop looks whether what it asked for has come."""
_BEST_LAST: Final = {Mode.MIN: (1 << 63) - 1, Mode.MAX: -(1 << 63)}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapMessage:
    """A message as a producer wants it."""

    payload: bytes
    priority: int = 0
    delay_ms: int = 0
    not_before_ms: int = 0
    partition_key: str = ""
    producer: str = ""
    epoch: int = 0
    seq: int = 0
    """With a producer: a repeat of the same three is the same message."""
    dedup_key: str = ""
    """Instead of a producer."""
    max_retries: int = -1
    headers: Mapping[str, str] | None = None
    json: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenMessage:
    """A message is durable: its id, and whether it was so before."""

    id: MessageId
    duplicate: bool


class HeapService:
    """Enqueue, pop, settle."""

    def __init__(
        self, *, domains: Domains, objects: Objects, clock: Clock, entropy: Entropy, policy: HeapPolicy | None = None,
        zone: str = "",
    ) -> None:  # fmt: skip
        self.admin = HeapAdmin(domains=domains, entropy=entropy, clock=clock)
        self._domains = domains
        self._clock = clock
        self._policy = policy or HeapPolicy()
        self._tasks: set[asyncio.Task[None]] = set()
        kept = ReadObjects(self._policy.cache_bytes)
        self._lanes: dict[int, HeapLane] = {}
        self._readers: dict[int, BodyReader] = {}
        self._upkeep: list[Ticker | Spiller] = []
        self._consumers: set[Consumer] = set()
        self._anonymous = 0
        for domain, replica in domains:
            placer = BodyPlacer(domain=domain, replica=replica, objects=objects, zone=zone, clock=clock)
            self._lanes[domain] = HeapLane(
                replica=replica, placer=placer, policy=self._policy, clock=clock, entropy=entropy, spawn=self._spawn
            )
            self._readers[domain] = BodyReader(replica=replica, objects=objects, kept=kept)
            self._upkeep += [
                Ticker(replica, clock, self._policy),
                Spiller(replica=replica, placer=placer, clock=clock, policy=self._policy),
            ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HeapService"]:
        """Serve for as long as the block runs; then nothing is granted any more, and whoever waits is told."""
        try:
            yield self
        finally:
            await asyncio.gather(*(consumer.close() for consumer in list(self._consumers)), return_exceptions=True)
            for lane in self._lanes.values():
                lane.stop()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self) -> None:
        """What is due happens, bodies leave memory, sagas are finished, for ever; without heaps nothing looks."""
        catalog = self._domains.catalog
        with catalog.waiter((CATALOG,)) as waiter:
            while not catalog.machine.heap_catalog.all:
                waiter.clear()
                await waiter.wait(RARELY_S)
        async with asyncio.TaskGroup() as group:
            for work in self._upkeep:
                group.create_task(work.run())
            group.create_task(self._finish_sagas())

    async def _finish_sagas(self) -> None:
        while True:
            await self._clock.sleep(5.0)
            try:
                await self.admin.go_on()
            except DrayError as error:
                logger().warning(telemetry.UPKEEP_FAILED, error=str(error))

    # -- producers ---------------------------------------------------------

    async def enqueue(self, heap: Heap, message: HeapMessage) -> TakenMessage:
        """Take one message; durable when it returns.

        Raises:
            BadMessage: fix it.
            HeapFull, Unavailable: nothing happened.
            EnqueueUnknown: repeat it with the same producer, epoch and sequence, or dedup key.
        """
        (given,) = await self._lane(heap).enqueue(heap.shard, [self._new(heap, message)])
        return _taken(heap, given)

    async def enqueue_batch(self, heap: Heap, messages: Sequence[HeapMessage]) -> list[TakenMessage]:
        """Take all of them or none (L10)."""
        given = await self._lane(heap).enqueue(heap.shard, [self._new(heap, one) for one in messages], atomic=True)
        return [_taken(heap, one) for one in given]

    def _new(self, heap: Heap, message: HeapMessage) -> NewMessage:
        _check(heap, message)
        key = _dedup_key(message)
        body = Body(
            payload=message.payload, headers=dict(message.headers or {}), partition_key=message.partition_key,
            producer=message.producer, epoch=message.epoch if message.producer else None,
            seq=message.seq if message.producer else None,
        )  # fmt: skip
        is_json = heap.config.json if message.json is None else message.json
        row = EnqueueRow(
            priority=message.priority, wait=message.delay_ms or message.not_before_ms,
            partition=self._partition(heap, message), retries=message.max_retries,
            flags=(RELATIVE if message.delay_ms else 0) | (BY_STRING if message.dedup_key else 0)
            | (JSON if is_json else 0),
            seq=message.seq if message.producer else 0,
        )  # fmt: skip
        return NewMessage(row, pack_body(body), key)

    def _partition(self, heap: Heap, message: HeapMessage) -> int:
        if message.partition_key:
            return partition_of(message.partition_key.encode(), heap.partitions)
        if message.producer:
            return partition_of(f"{message.producer}/{message.epoch}".encode(), heap.partitions)
        self._anonymous += 1
        return self._anonymous % heap.partitions

    # -- consumers ---------------------------------------------------------

    def consumer(
        self, heap: Heap, *, holder: str, worst: int | None = None, visibility_ms: int | None = None
    ) -> Consumer:
        """A consumer without credits; it is granted something when it has some. Close it."""
        domain = domain_of(heap.shard)
        consumer = Consumer(
            shard=self._shard(heap), holder=holder, worst=_BEST_LAST[heap.mode] if worst is None else worst,
            visibility_ms=visibility_ms, lane=self._lanes[domain], reader=self._readers[domain], clock=self._clock,
            spawn=self._spawn,
        )  # fmt: skip
        self._consumers.add(consumer)
        self._lanes[domain].join(consumer)
        telemetry.CONSUMERS.set(len(self._consumers))
        return consumer

    async def close(self, consumer: Consumer) -> None:
        """No more grants; what was never taken goes back."""
        self._consumers.discard(consumer)
        telemetry.CONSUMERS.set(len(self._consumers))
        await consumer.close()

    async def pop(self, heap: Heap, *, most: int, holder: str, wait_s: float = 0.0) -> list[Delivery]:
        """Some messages, or none: said after a sync, and after having waited (HL3)."""
        consumer = self.consumer(heap, holder=holder)
        try:
            await self._domains.of(heap.shard).sync()
            lane = self._lane(heap)
            turns, until_ns = lane.turns, self._clock.boot_ns() + int(wait_s * 1e9)
            consumer.add_credits(most)
            while True:
                left_s = (until_ns - self._clock.boot_ns()) / 1e9
                found = await consumer.take(max(left_s, LOOK_S))
                if found or (left_s <= 0 and lane.turns > turns and not consumer.busy):
                    return found
        finally:
            await self.close(consumer)

    async def settle(
        self, heap: Heap, kind: Settlement, token: LeaseToken, *, argument: int = 0, note: str = ""
    ) -> int | None:
        """End or prolong one delivery; what is left of a lease that was prolonged.

        Raises:
            LeaseLost: stop; another worker may have it.
            MessageGone: there never was such a message.
            Unavailable: nothing happened.
            SettleUnknown: it may have; to repeat it is harmless (L4).
        """
        cut = note.encode()[:MAX_NOTE_BYTES].decode(errors="ignore")
        row = SettleRow(kind, token.slot, token.arrival, token.nonce, argument)
        settled = await self._lane(heap).settle(heap.shard, [row], {0: cut} if cut else None)
        match settled.codes[0]:
            case answers.LOST:
                raise LeaseLost("the token does not hold the message", heap=heap.name)
            case answers.GONE:
                raise MessageGone("there is no such message", heap=heap.name)
            case _:
                return settled.left_ms.get(0)

    # -- inside ------------------------------------------------------------

    def _lane(self, heap: Heap) -> HeapLane:
        return self._lanes[domain_of(heap.shard)]

    def _shard(self, heap: Heap) -> Shard:
        shard = self._domains.of(heap.shard).machine.heaps.find(heap.shard)
        if shard is None:
            raise UnknownHeap("no such heap", heap=heap.name)
        return shard

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _check(heap: Heap, message: HeapMessage) -> None:
    """Everything that can be refused without asking the machine."""
    headers = message.headers or {}
    if len(message.payload) > heap.config.max_payload_bytes:
        raise BadMessage("the payload is too large", size=len(message.payload), most=heap.config.max_payload_bytes)
    if sum(len(name.encode()) + len(value.encode()) for name, value in headers.items()) > MAX_HEADER_BYTES:
        raise BadMessage("the headers are too large", most=MAX_HEADER_BYTES)
    if not -(1 << 63) <= message.priority < 1 << 63:
        raise BadMessage("a priority is a signed number of 64 bits")
    names = (message.partition_key, message.producer, message.dedup_key)
    if any(len(name.encode()) > MAX_NAME_BYTES for name in names):
        raise BadMessage("a key or a producer is too long", most=MAX_NAME_BYTES)
    if message.producer and message.dedup_key:
        raise BadMessage("a message has a producer or a dedup key, not both")
    if not 0 <= message.seq <= MAX_SEQ or not 0 <= message.epoch < 1 << 64:
        raise BadMessage("a sequence has 36 bits, and an epoch 64")
    if not -1 <= message.max_retries <= MAX_RETRIES or message.delay_ms < 0 or message.not_before_ms < 0:
        raise BadMessage("retries and delays are not negative", most_retries=MAX_RETRIES)
    if heap.config.json if message.json is None else message.json:
        _check_json(message.payload)


def _check_json(payload: bytes) -> None:
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadMessage("the payload is not JSON") from bad


def _dedup_key(message: HeapMessage) -> bytes | None:
    """Sixteen bytes for a producer and its epoch, or for a dedup key; the two never meet."""
    if message.producer:
        name = message.producer.encode()
        return blake2b(name + message.epoch.to_bytes(8, "big"), digest_size=16, person=b"producer").digest()
    if message.dedup_key:
        return blake2b(message.dedup_key.encode(), digest_size=16, person=b"dedup-key").digest()
    return None


def _taken(heap: Heap, given: MessageGiven) -> TakenMessage:
    match given.slot:
        case answers.FULL | answers.DEDUP_FULL | answers.INLINE_FULL:
            raise HeapFull("the heap is full, or remembers as many producers as it may", heap=heap.name)
        case answers.CLOSED:
            raise UnknownHeap("no such heap", heap=heap.name)
        case answers.TORN:
            raise TornBatch("one message of the batch would be refused", heap=heap.name, index=given.number)
        case answers.MALFORMED:
            raise BadMessage("the heap takes no such message", heap=heap.name)
    identity = MessageId(given.begun_ms, domain_of(heap.shard), given.number, given.seq)
    return TakenMessage(id=identity, duplicate=given.slot == answers.DUPLICATE)
