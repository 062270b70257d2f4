"""Heaps, as a service: what servers ask.

Any broker answers for any heap, and a settlement may go to another broker
than the grant. The machine chooses what a lease takes; this waits, and turns
a verdict into what its caller does next.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps import telemetry
from dray.heaps.admin import HeapAdmin
from dray.heaps.batch_keeper import BatchKeeper
from dray.heaps.batches import BatchCoordinator, BatchPart
from dray.heaps.consumers import Consumer, Delivery
from dray.heaps.dead_letters import DeadLetters
from dray.heaps.errors import BadMessage, LeaseLost, TornBatch, UnknownHeap
from dray.heaps.gauges import HeapGauges
from dray.heaps.history import Historian, HistoryTopics
from dray.heaps.ids import LeaseToken, MessageId
from dray.heaps.lane import HeapLane, NewMessage
from dray.heaps.peek import Peeking
from dray.heaps.placing import BodyPlacer
from dray.heaps.policy import HeapPolicy
from dray.heaps.producing import HeapMessage as HeapMessage
from dray.heaps.producing import MessagePacker, TakenMessage, outcome_of, taken
from dray.heaps.reading import BodyReader, ReadObjects
from dray.heaps.rewrite import Rewriter
from dray.heaps.settling import SettleOne, SettleOutcome, check_settlement, cut_note, outcome
from dray.heaps.spill import Spiller
from dray.heaps.stats import Statistics
from dray.heaps.ticker import Ticker
from dray.ids import Entropy
from dray.machine.heaps import answers
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import Mode
from dray.machine.heaps.packets import Settlement as Settlement
from dray.machine.heaps.packets import SettleRow
from dray.machine.heaps.shard import MIN_LEASE_MS, Shard
from dray.machine.names import domain_of
from dray.objects.port import Objects
from dray.replica.domains import Domains
from dray.replica.wakeups import CATALOG
from dray.telemetry import logger
from dray.topics.service import TopicService

RARELY_S: Final = 3_600.0
OFTEN_S: Final = 10.0
"""Where domains come later, with what they hold."""
LOOK_S: Final = 0.01
"""How often a pop looks whether what it asked for has come."""
STOP_S: Final = 10.0
"""What is on its way when a broker stops has this long to be given back."""
MAX_BATCH: Final = 1_000
LARGE_BYTES: Final = 64 << 10
MAX_BATCH_BYTES: Final = 8 << 20
MAX_HOLDER_BYTES: Final = 255
MAX_LEASE_MS: Final = 43_200_000
_BEST_LAST: Final = {Mode.MIN: (1 << 63) - 1, Mode.MAX: -(1 << 63)}


class HeapService:
    """Enqueue, pop, settle."""

    def __init__(
        self, *, domains: Domains, objects: Objects, clock: Clock, entropy: Entropy, policy: HeapPolicy | None = None,
        zone: str = "",
    ) -> None:  # fmt: skip
        topics = HistoryTopics(domains, TopicService(domains=domains, entropy=entropy, clock=clock))
        self.admin = HeapAdmin(domains=domains, entropy=entropy, clock=clock, topics=topics)
        self.dead_letters = DeadLetters(domains=domains, clock=clock)
        self.stats = Statistics(domains=domains, clock=clock)
        self._domains = domains
        self._clock = clock
        self._policy = policy or HeapPolicy()
        self._tasks: set[asyncio.Task[None]] = set()
        kept = ReadObjects(self._policy.cache_bytes)
        self._lanes: dict[int, HeapLane] = {}
        self._readers: dict[int, BodyReader] = {}
        self._upkeep: dict[int, list[Ticker | Spiller | Rewriter | BatchKeeper | Historian]] = {}
        placers: dict[int, BodyPlacer] = {}
        self._consumers: set[Consumer] = set()
        self._packer = MessagePacker()
        self.peeking = Peeking(domains=domains, readers=self._readers, clock=clock)
        self._gauges = HeapGauges(catalog=domains.catalog, stats=self.stats, clock=clock)
        for domain, replica in domains.all.items():
            placer = BodyPlacer(domain=domain, replica=replica, objects=objects, zone=zone, clock=clock)
            placers[domain] = placer
            self._lanes[domain] = HeapLane(
                replica=replica, placer=placer, policy=self._policy, clock=clock, entropy=entropy, spawn=self._spawn
            )
            self._readers[domain] = BodyReader(replica=replica, objects=objects, kept=kept)
            self._upkeep[domain] = [
                Ticker(replica, clock, self._policy),
                Spiller(replica=replica, placer=placer, clock=clock, policy=self._policy),
                Rewriter(
                    replica=replica, placer=placer, reader=self._readers[domain], clock=clock, policy=self._policy
                ),
                BatchKeeper(domains=domains, domain=domain, clock=clock, policy=self._policy),
                Historian(
                    replica=replica, domain=domain, placer=placer, topics=topics, clock=clock, policy=self._policy
                ),
            ]
        domains.welcome(self)
        self._batches = BatchCoordinator(
            domains=domains, placers=placers, policy=self._policy, clock=clock, entropy=entropy, spawn=self._spawn
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HeapService"]:
        """Serve for as long as the block runs; then nothing is granted any more, and whoever waits is told."""
        try:
            yield self
        finally:
            await self._give_back_all()
            for lane in self._lanes.values():
                lane.stop()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _give_back_all(self) -> None:
        """Nothing more is granted; what is on its way and was never taken goes back, if it comes in time."""
        closing = list(self._consumers)
        await asyncio.gather(*(consumer.close() for consumer in closing), return_exceptions=True)
        until_ns = self._clock.boot_ns() + int(STOP_S * 1e9)
        while any(consumer.busy for consumer in closing) and self._clock.boot_ns() < until_ns:
            await self._clock.sleep(LOOK_S)

    async def run(self) -> None:
        """What is due happens, bodies leave memory, sagas are finished, for ever; without heaps nothing looks."""
        catalog = self._domains.catalog
        with catalog.waiter((CATALOG,)) as waiter:
            while not catalog.machine.heap_catalog.all and not self._has_histories():
                waiter.clear()
                await waiter.wait(RARELY_S if self._domains.is_whole else OFTEN_S)
        async with asyncio.TaskGroup() as group:
            self._domains.tend(group, lambda domain: (work.run() for work in self._upkeep[domain]))
            group.create_task(self._finish_sagas())
            group.create_task(self._gauges.run())

    def is_busy(self, domain: int) -> bool:
        """Whether somebody takes messages of the domain, or gives it some (DL2)."""
        return self._lanes[domain].is_busy

    def leave(self, domain: int) -> None:
        """A lane holds nothing between two requests."""

    def _has_histories(self) -> bool:
        """Is something of heaps that are deleted not told yet?"""
        return any(replica.machine.histories.all for _, replica in self._domains)

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
        new = self._packer.pack(heap, message)
        begun_ns = self._clock.boot_ns()
        (given,) = await self._lane(heap).enqueue(heap.shard, [new])
        telemetry.ENQUEUE_SECONDS.observe((self._clock.boot_ns() - begun_ns) / 1e9)
        return taken(heap, new, given)

    async def enqueue_batch(self, heap: Heap, messages: Sequence[HeapMessage]) -> list[TakenMessage]:
        """Take all of them or none (L10). Errors as of `enqueue`, and `TornBatch`, which names the bad one."""
        return await self.enqueue_across([(heap, message) for message in messages])

    async def enqueue_across(self, items: Sequence[tuple[Heap, HeapMessage]]) -> list[TakenMessage]:
        """Take all of them or none, whichever heaps they are for (L10, BA7).

        Errors as of `enqueue`; `TornBatch`, which names the bad one; and `BatchConflict`: nothing was taken.
        """
        if not 0 < len(items) <= MAX_BATCH or sum(len(one.payload) for _, one in items) > MAX_BATCH_BYTES:
            raise BadMessage("a batch has from 1 message on", most=MAX_BATCH, most_bytes=MAX_BATCH_BYTES)
        parts: dict[bytes, BatchPart] = {}
        for index, (heap, message) in enumerate(items):
            part = parts.setdefault(heap.id, BatchPart(heap))
            try:
                part.messages.append(self._packer.pack(heap, message))
            except BadMessage as bad:
                raise TornBatch(bad.message, **bad.facts | {"index": index}) from bad
            part.indexes.append(index)
            if len(message.payload) > LARGE_BYTES:
                await asyncio.sleep(0)  # others go on between large ones (HP3)
        with telemetry.ENQUEUE_SECONDS.time():
            if len(parts) == 1:  # one command is enough
                (part,) = parts.values()
                part.given = await self._lane(part.heap).enqueue(part.heap.shard, part.messages, atomic=True)
            else:
                await self._batches.take(list(parts.values()))
        found = {
            index: taken(part.heap, message, told)
            for part in parts.values()
            for index, message, told in zip(part.indexes, part.messages, part.given, strict=True)
        }
        return [found[index] for index in range(len(items))]

    async def enqueue_each(self, heap: Heap, messages: Sequence[HeapMessage]) -> list[TakenMessage | DrayError]:
        """Take each for itself: what became of each.

        Raises:
            HeapFull, Unavailable: nothing happened to any.
            EnqueueUnknown: of those that are not bad, nobody knows.
        """
        outcomes: dict[int, TakenMessage | DrayError] = {}
        new: dict[int, NewMessage] = {}
        for index, message in enumerate(messages):
            try:
                new[index] = self._packer.pack(heap, message)
            except BadMessage as bad:
                outcomes[index] = bad
            if len(message.payload) > LARGE_BYTES:
                await asyncio.sleep(0)  # others go on between large ones (HP3)
        with telemetry.ENQUEUE_SECONDS.time():
            for _ in range(2):  # what found no room in memory goes to an object the second time
                given = await self._lane(heap).enqueue(heap.shard, list(new.values())) if new else []
                again: dict[int, NewMessage] = {}
                for (index, one), told in zip(new.items(), given, strict=True):
                    if told.slot == answers.INLINE_FULL:
                        again[index] = one
                    outcomes[index] = outcome_of(heap, one, told)
                new = again
        return [outcomes[index] for index in range(len(messages))]

    # -- consumers ---------------------------------------------------------

    def consumer(
        self, heap: Heap, *, holder: str, worst: int | None = None, visibility_ms: int | None = None
    ) -> Consumer:
        """A consumer without credits; it is granted something when it has some. Close it.

        Raises:
            BadMessage: its name or what it wants makes no sense.
            UnknownHeap: there is no such heap.
        """
        _check_consumer(holder, worst, visibility_ms)
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

    async def pop(
        self, heap: Heap, *, most: int, holder: str, wait_s: float = 0.0, worst: int | None = None,
        visibility_ms: int | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """Some messages, or none: said after a sync, and after having waited (HL3).

        Raises:
            BadMessage: fix it.
            UnknownHeap, Unavailable: nothing happened.
        """
        if not 0 < most <= MAX_BATCH or wait_s < 0:
            raise BadMessage("a pop asks for from 1 message on, and waits not less than not", most=MAX_BATCH)
        with telemetry.POP_SECONDS.time():
            consumer = self.consumer(heap, holder=holder, worst=worst, visibility_ms=visibility_ms)
            return await self._pop(heap, consumer, most, wait_s)

    async def _pop(self, heap: Heap, consumer: Consumer, most: int, wait_s: float) -> list[Delivery]:
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
        row = SettleRow(kind, token.slot, token.arrival, token.nonce, argument)
        cut = cut_note(note)
        settled = await self._lane(heap).settle(heap.shard, [row], {0: cut} if cut else None)
        told = outcome(heap, kind, settled, 0)
        if told.error is not None:
            raise told.error
        return told.lease_ms

    async def settle_many(self, heap: Heap, items: Sequence[SettleOne]) -> list[SettleOutcome]:
        """End or prolong deliveries, each for itself; in their order.

        Raises:
            BadMessage: fix it; nothing happened.
            HeapFull, Unavailable: nothing happened to any.
            SettleUnknown: it may have; to repeat all of it is harmless (L4).
        """
        rows = [check_settlement(one) for one in items]
        if not rows:
            return []
        notes = {index: cut for index, one in enumerate(items) if one.note and (cut := cut_note(one.note))}
        with telemetry.SETTLE_SECONDS.time():
            settled = await self._lane(heap).settle(heap.shard, rows, notes)
        return [outcome(heap, one.kind, settled, index) for index, one in enumerate(items)]

    async def check_names(self, heap: Heap, identity: MessageId, token: LeaseToken) -> None:
        """Does the token belong to the message? Of one that is gone nobody knows: then its settlement tells.

        Raises:
            LeaseLost: the token is another message's.
        """
        replica = self._domains.of(heap.shard)
        if not self._shard(heap).messages.rows.holds(token.slot, token.arrival):
            await replica.sync()
        rows = self._shard(heap).messages.rows
        if rows.holds(token.slot, token.arrival):
            row = rows.read(token.slot)
            if (row.begun_ms, domain_of(heap.shard), row.number, row.seq) != identity:
                raise LeaseLost("the token holds another message", heap=heap.name)

    def is_failing(self, heap: Heap) -> bool:
        """Does the log of its domain not take entries at the moment, as far as heaps have tried?"""
        return self._lane(heap).failing

    async def give_back(self, heap: Heap, deliveries: Sequence[Delivery]) -> None:
        """What was taken and never reached its consumer is ready again, and no attempt is counted."""
        if deliveries:
            await self.settle_many(
                heap, [SettleOne(kind=Settlement.RELEASE, token=delivery.token) for delivery in deliveries]
            )

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


def _check_consumer(holder: str, worst: int | None, visibility_ms: int | None) -> None:
    if len(holder.encode()) > MAX_HOLDER_BYTES:
        raise BadMessage("the name of a consumer is too long", most=MAX_HOLDER_BYTES)
    if worst is not None and not -(1 << 63) <= worst < 1 << 63:
        raise BadMessage("a priority is a signed number of 64 bits")
    if visibility_ms is not None and not MIN_LEASE_MS <= visibility_ms <= MAX_LEASE_MS:
        raise BadMessage("a lease lasts from 1 s to 12 h", visibility_ms=visibility_ms)
