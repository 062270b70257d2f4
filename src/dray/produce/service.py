"""Produce, as a service: a batch goes in, its offsets come out, and nothing is answered before it is durable.

    submit -> wait per domain -> one object -> one Append -> applied -> answer

`submit` is synchronous, so batches keep the order in which they arrive. The
service decides nothing about a batch: the machine does, when the Append is
applied. It is safe to send any batch again that was not answered with success
as long as its producer has an id; without one it may then be stored twice.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError, Unavailable
from dray.machine.names import ProducerId, StreamId
from dray.machine.producer_ids import AllocateProducerId, ProducerAllocated
from dray.objects.port import Objects
from dray.produce import telemetry
from dray.produce.batches import NewBatch, Stored
from dray.produce.conditional import ConditionalAppends, Placement
from dray.produce.deadlines import Deadlines
from dray.produce.errors import NotStored, Overloaded, Stopping, StoredUnknown
from dray.produce.lane import Lane
from dray.produce.placing import NoCache, Placer, WrittenObjects
from dray.produce.pressure import BATCH_OVERHEAD, IndexBudget, Pressure
from dray.produce.receiver import Receiver
from dray.produce.settings import FlushPolicy
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.tasks.watch import Watch

_DOMAIN: Final = 0xFFFF
_SAMPLE_S: Final = 1.0


class ProduceService:
    """What handlers give their batches to. Use it inside `running`."""

    def __init__(
        self,
        *,
        domains: Domains,
        objects: Objects,
        clock: Clock,
        policy: FlushPolicy | None = None,
        written: WrittenObjects | None = None,
        zone: str = "",
        watch: Watch | None = None,
    ) -> None:
        self._watch = watch or Watch(clock)
        self._domains = domains
        self._objects = objects
        self._clock = clock
        self._policy = policy or FlushPolicy()
        self._written = written or NoCache()
        self._zone = zone
        self._loop = asyncio.get_running_loop()
        self._index = IndexBudget(self._policy.index_bytes)
        self._lanes: dict[int, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = True
        self.pressure = Pressure(limit=self._policy.max_buffer_bytes, high=self._policy.pause_bytes)
        """What waits here; servers stop reading while it is `over` and go on after `relief`."""
        self._conditional = ConditionalAppends(domains, self.pressure, zone)
        domains.welcome(self)
        self.deadlines = Deadlines(self._loop)
        """Gives up answers that their producers do not wait for any longer."""

    def submit(self, batch: NewBatch) -> "asyncio.Future[Stored]":
        """Take a validated batch; the future tells its offsets once they are durable and applied here (PR1).

        Raises:
            Overloaded, Stopping, NotStored: nothing was taken; try again later.

        The future fails with:
            StreamGone: the stream does not exist any more.
            OutOfOrder, ProducerFenced: the producer's sequence or epoch is refused.
            BadBatch: the machine takes no such batch.
            Unavailable (NotStored, Overtaken, Stopping): nothing was stored; send it again.
            StoredUnknown: it may have been stored; send it again with the same identity.
        """
        answer: asyncio.Future[Stored] = self._loop.create_future()
        self.submit_to(batch, answer)
        return answer

    def submit_to(self, batch: NewBatch, answer: Receiver) -> None:
        """As `submit`, with an answer of the caller's in place of the future."""
        if self._stopped or self._index.exhausted:
            raise self._refusal()
        size = len(batch[1])
        domain = batch[0] & _DOMAIN
        lane = self._lanes.get(domain) or self._new_lane(domain)
        self.pressure.take(size + BATCH_OVERHEAD)
        lane.add(batch, answer, size)

    async def append_if(
        self, batches: Sequence[NewBatch], *, expected: Mapping[StreamId, int] | None = None, txn: bytes = b""
    ) -> list[Placement]:
        """Store batches of different streams of one domain, all or none; see `ConditionalAppends.append`.

        Once begun it goes on, whoever waits for it: what is half done would be told as nothing.
        """
        if self._stopped or self._index.exhausted:
            raise self._refusal()
        await self.ready(batches[0].stream)
        placer = self._placer(batches[0].stream & _DOMAIN)
        answer: asyncio.Future[list[Placement]] = self._loop.create_future()
        self._spawn(_answering(answer, self._conditional.append(placer, batches, expected or {}, txn)))
        return await asyncio.shield(answer)

    async def ready(self, stream: StreamId) -> None:
        """Return when batches of a stream can be taken; `NotLoaded` if that takes too long."""
        await self._domains.ready(stream & _DOMAIN)

    def is_busy(self, domain: int) -> bool:
        """Whether batches of a domain wait here or are under way (DL2)."""
        lane = self._lanes.get(domain)
        return lane is not None and lane.is_busy

    def leave(self, domain: int) -> None:
        """The domain goes: batches that come now are refused until it is back."""
        self._lanes.pop(domain, None)

    async def new_producer(self) -> ProducerId:
        """An id for a producer, unique over the cluster's life; its epoch begins at 0.

        Raises:
            Unavailable, Unknown: ask again; an id that was given to nobody does no harm.
        """
        (verdict,) = await self._domains.catalog.propose(AllocateProducerId())
        if not isinstance(verdict, ProducerAllocated):
            raise Unavailable("no producer id could be given", verdict=verdict)
        return verdict.producer_id

    async def drain(self) -> None:
        """Take nothing more; return when everything taken was answered."""
        self._stopped = True
        for lane in self._lanes.values():
            lane.drain()
        await self.pressure.emptied()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ProduceService"]:
        """Serve for as long as the block runs. Whoever still waits at its end is told so (PR8)."""
        self._sample()
        self._stopped = False
        self._spawn(self._watch.keep("produce-index", self._watch_index))
        try:
            yield self
        finally:
            self._stopped = True
            self.deadlines.stop()
            for lane in self._lanes.values():
                lane.halt()
            while self._tasks:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
            for lane in self._lanes.values():
                lane.abandon()

    def _refusal(self) -> DrayError:
        if self._stopped:
            return Stopping("this broker is stopping: use another one")
        return Overloaded("the offset index has reached its budget: wait for compaction, or raise wal.index_budget")

    def _replica(self, domain: int) -> Replica:
        try:
            replica = self._domains[domain]
        except KeyError:
            raise NotStored("this broker does not serve the domain", domain=domain) from None
        if not replica.is_loaded:
            raise NotStored("the domain is not loaded here: try again", domain=domain)  # DL3
        return replica

    def _placer(self, domain: int) -> Placer:
        return Placer(
            domain=domain, replica=self._replica(domain), objects=self._objects, written=self._written,
            zone=self._zone, clock=self._clock, pressure=self.pressure, hedge_floor_s=self._policy.hedge_floor_s,
            spawn=self._spawn,
        )  # fmt: skip

    def _new_lane(self, domain: int) -> Lane:
        replica = self._replica(domain)
        lane = Lane(
            replica=replica, placer=self._placer(domain), policy=self._policy, pressure=self.pressure,
            index=self._index, clock=self._clock, zone=self._zone, spawn=self._spawn,
        )  # fmt: skip
        self._lanes[domain] = lane
        return lane

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run something that ends with the service at the latest."""
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # cancelled before its first step it would never be awaited
        return task

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except DrayError:
            pass  # told to whoever waits for it
        except Exception as error:  # a bug in one flush stops no other; three in a row show
            self._watch.failed("produce-flush", error)

    async def _watch_index(self) -> None:
        while True:
            await self._clock.sleep(_SAMPLE_S)
            self._sample()

    def _sample(self) -> None:
        machines = [replica.machine for _, replica in self._domains]
        self._index.seen(sum(machine.streams.footprint().bytes + machine.offsets.bytes for machine in machines))
        telemetry.BUFFER_BYTES.set(self.pressure.unacked)


async def _answering(answer: "asyncio.Future[list[Placement]]", work: Coroutine[None, None, list[Placement]]) -> None:
    """Work whose outcome somebody may wait for; if it is cut short, nobody knows it (PR8)."""
    try:
        placements = await work
    except DrayError as error:
        if not answer.done():
            answer.set_exception(error)
            answer.exception()
        raise
    except BaseException:
        if not answer.done():
            answer.set_exception(StoredUnknown("stopped before the outcome was known"))
            answer.exception()
        raise
    if not answer.done():
        answer.set_result(placements)
