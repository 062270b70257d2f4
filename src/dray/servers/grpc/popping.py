"""One PopStream: credits and settlements come in, deliveries and answers go out.

    client ─► start, credits, filter, settlements, stop     (read as it comes)
    client ◄─ items, settled, status                        (written by one task)

A client that does not read holds its own stream and nothing else: the lane
never waits for it, what was granted to it is bounded, and after `STUCK_S` the
stream is ended and what it was never sent goes back to the heap.

Invariants
    GW1  One task writes to a stream.
    GW2  The items of a stream are never more than the credits that came by it.
    GW3  What was granted and never written goes back when the stream ends,
         and no attempt is counted.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Final, TypeAlias

from dray.api.v1 import heaps_pb2 as pb
from dray.errors import DrayError, Unavailable
from dray.heaps.consumers import MAX_CREDITS, Consumer, Delivery
from dray.heaps.errors import BadMessage, UnknownHeap
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import Mode
from dray.servers.grpc import forms, telemetry
from dray.servers.grpc.errors import LimitReached, told
from dray.servers.grpc.gate import GrpcCaller
from dray.servers.grpc.heaps import HeapsApi
from dray.telemetry import logger

PART_ITEMS: Final = 256
PART_BYTES: Final = 2 << 20
SETTLING: Final = 64
"""Lists of settlements that are unanswered; no more is read meanwhile."""
LOOK_S: Final = 1.0
"""How often a stream looks whether its heap is still there and its log takes entries."""
STUCK_S: Final = 60.0
STOP_S: Final = 6.0
"""What a client gets to settle what it has, when the broker stops."""
_ALL: Final = {Mode.MIN: (1 << 63) - 1, Mode.MAX: -(1 << 63)}
WriteDelivery: TypeAlias = Callable[[pb.PopDelivery], Awaitable[None]]


class StreamStuck(Unavailable):
    """A client does not read what it asked for."""


class _Items:
    """There are items to write."""


_ITEMS: Final = _Items()


class PopSession:
    """What one stream is about, from its first message to its end."""

    def __init__(
        self, api: HeapsApi, caller: GrpcCaller, number: int, stopping: asyncio.Event, compress: Callable[[], None]
    ) -> None:
        self._api = api
        self._caller = caller
        self._number = number
        self._stopping = stopping
        self._compress = compress
        self._heap: Heap | None = None
        self._consumer: Consumer | None = None
        self._credits = 0
        """Announced and not yet spent by a delivery (GW2)."""
        self._worst: int | None = None
        self._settling = asyncio.Semaphore(SETTLING)
        self._settles: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwritten: deque[Delivery] = deque()
        self._returning: list[Delivery] = []
        """Never written, and on their way back."""
        self._written = asyncio.Event()
        self._outbox: asyncio.Queue[pb.PopDelivery | _Items | DrayError | None] = asyncio.Queue()
        """What the one writer does next (GW1); an error, or None, is the last. Bounded by who puts something in."""
        self._throttled = False

    async def run(self, requests: AsyncIterator[pb.PopOpen], write: WriteDelivery) -> None:
        """Serve the stream to its end.

        Raises:
            DrayError: how it ended, if not well.
        """
        self._spawn(partial(self._read, requests))
        self._spawn(self._look)
        try:
            while (out := await self._outbox.get()) is not None:
                if isinstance(out, DrayError):
                    raise out
                if isinstance(out, _Items):
                    await self._write_items(write)
                    continue
                if out.HasField("settled"):
                    await self._join_items(out)
                await in_time(write(out))
                if out.HasField("settled"):
                    self._settling.release()
                    self._note_written()
        finally:
            await _finished(self._close())

    # -- in ----------------------------------------------------------------

    async def _read(self, requests: AsyncIterator[pb.PopOpen]) -> None:
        async for asked in requests:
            match asked.WhichOneof("kind"):
                case "start":
                    await self._start(asked.start)
                case "fc":
                    self._add_credits(asked.fc.credits)
                case "filter":
                    self._filter(asked.filter)
                case "settle":
                    await self._settling.acquire()
                    self._spawn(partial(self._settle, asked.settle), self._settles)
                    self._add_credits(asked.settle.credits)  # in the same turn of the lane
                case "stop":
                    await self._stop()
                case _:
                    raise BadMessage("a message of a stream says what it is")
        await self._stop()
        await asyncio.gather(*self._settles)
        self._outbox.put_nowait(None)

    async def _start(self, start: pb.PopStart) -> None:
        if self._heap is not None:
            raise BadMessage("a stream is started once")
        self._heap = await self._api.find(self._caller, "heap.pop", start.topic)
        if self._heap.config.compression:
            self._compress()
        if start.HasField("filter"):
            self._filter(start.filter)
        self._add_credits(start.credits)
        consumer = self._api.service.consumer(
            self._heap,
            holder=start.consumer or f"{self._caller.name}/{self._number}",
            worst=self._worst,
            visibility_ms=forms.milliseconds(start.visibility, "visibility") if start.HasField("visibility") else None,
        )
        consumer.add_credits(self._credits)
        self._consumer = consumer
        if self._stopping.is_set():
            await self._stop()
        self._spawn(partial(self._take, consumer))

    def _add_credits(self, count: int) -> None:
        if self._credits + count > MAX_CREDITS:
            raise LimitReached("a stream has at most so many credits at a time", most=MAX_CREDITS)
        self._credits += count
        if self._consumer is not None:
            self._consumer.add_credits(count)

    def _filter(self, wanted: pb.PopFilter) -> None:
        self._worst = wanted.worst_priority if wanted.HasField("worst_priority") else None
        if self._consumer is not None and self._heap is not None:
            self._consumer.want(_ALL[self._heap.mode] if self._worst is None else self._worst)

    async def _settle(self, asked: pb.SettleMany) -> None:
        """Its answer is written before another list is read in its place."""
        answer = pb.SettleManyResp(tag=asked.tag)
        try:
            if self._heap is None:
                raise BadMessage("a stream is started before it settles anything")
            self._api.gate.check(self._caller, "heap.settle", self._heap.name)
            answer.results.extend(await self._api.settle_list(self._heap, asked.items))
        except DrayError as error:
            failed = pb.Settled(error=told(error))
            answer.results.extend(failed for _ in asked.items)
        self._outbox.put_nowait(pb.PopDelivery(settled=answer))

    async def _stop(self) -> None:
        """No more items; what was never written goes back (GW3)."""
        if self._consumer is None or self._heap is None:
            return
        self._returning.extend(self._unwritten)
        self._unwritten.clear()
        await self._api.service.close(self._consumer)
        left = list(self._returning)  # kept until it is done: who waits here may be cancelled, and comes again
        try:
            await self._api.service.give_back(self._heap, left)
        except DrayError as error:  # their deadlines end them
            logger().warning(telemetry.NOT_RELEASED, count=len(left), error=str(error))
        done = set(map(id, left))
        self._returning = [one for one in self._returning if id(one) not in done]

    # -- out ---------------------------------------------------------------

    async def _take(self, consumer: Consumer) -> None:
        """What is taken waits for the writer; nothing more is taken meanwhile."""
        while not consumer.closed:
            taken = await consumer.take(LOOK_S)
            if taken:
                self._unwritten.extend(taken)
                self._written.clear()
                self._outbox.put_nowait(_ITEMS)
                await self._written.wait()

    async def _look(self) -> None:
        """Tell what nobody sends a message about."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while not (await asyncio.wait((stopping,), timeout=LOOK_S))[0]:
                if self._heap is not None:
                    self._tell_state(self._heap)
        finally:
            stopping.cancel()
        self._outbox.put_nowait(pb.PopDelivery(status=pb.PopStatus(stopping=True)))
        await self._stop()
        await asyncio.sleep(STOP_S)
        self._outbox.put_nowait(None)

    def _tell_state(self, heap: Heap) -> None:
        known = self._api.service.admin.peek(heap.name)
        if known is None or known.id != heap.id:
            raise UnknownHeap("the heap is gone", heap=heap.name)
        throttled = self._api.service.is_failing(heap)
        if throttled != self._throttled:
            self._throttled = throttled
            status = pb.PopStatus(throttled=throttled)
            if throttled:
                status.retry_after.CopyFrom(forms.duration_of(int(LOOK_S * 1_000)))
            self._outbox.put_nowait(pb.PopDelivery(status=status))

    async def _write_items(self, write: WriteDelivery) -> None:
        """One part of them; settlements are answered between parts."""
        delivery = pb.PopDelivery()
        self._add_items(delivery)
        if delivery.items:
            await in_time(write(delivery))
        self._note_written()
        if self._unwritten:
            self._outbox.put_nowait(_ITEMS)

    async def _join_items(self, answer: pb.PopDelivery) -> None:
        """What the same entry granted goes with the answer: it is there a turn of the loop later."""
        await asyncio.sleep(0)
        self._add_items(answer)

    def _add_items(self, answer: pb.PopDelivery) -> None:
        """What goes into one message; from here on it counts as written."""
        answer.takes_credits = True
        part: list[Delivery] = []
        size = 0
        while self._unwritten and len(part) < PART_ITEMS and size < PART_BYTES:
            part.append(self._unwritten.popleft())
            size += len(part[-1].body.payload)
        wall_ms, boot_ns = self._api.clock.wall_ms(), self._api.clock.boot_ns()
        live = [delivery for delivery in part if delivery.until_ns > boot_ns]
        if len(live) < len(part) and self._consumer is not None:
            self._consumer.add_credits(len(part) - len(live))  # their leases ended here: they were not delivered
        self._credits -= len(live)  # GW2
        for one in live:
            forms.add_item(answer, one, wall_ms, boot_ns)  # what is left now

    def _note_written(self) -> None:
        if not self._unwritten:
            self._written.set()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop()

    def _spawn(self, work: Callable[[], Awaitable[None]], among: "set[asyncio.Task[None]] | None" = None) -> None:
        task = asyncio.create_task(self._guarded(work))
        for tasks in (self._tasks, *(() if among is None else (among,))):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """What goes wrong ends the stream, told by its writer."""
        try:
            await work()
        except DrayError as error:
            self._outbox.put_nowait(error)
        except Exception as error:
            logger().error(telemetry.CALL_FAILED, method="PopStream", error=repr(error))
            self._outbox.put_nowait(DrayError("the broker failed"))


async def in_time(writing: Awaitable[None]) -> None:
    """Wait for a write, and not for ever for a client that does not read."""
    try:
        async with asyncio.timeout(STUCK_S):
            await writing
    except TimeoutError as late:
        logger().warning(telemetry.STUCK)
        raise StreamStuck("the client does not read", limit_s=STUCK_S) from late


async def _finished(closing: Coroutine[None, None, None]) -> None:
    """Wait for what has to be done whatever becomes of the call: gRPC cancels one more than once (GW3)."""
    work = asyncio.create_task(closing)
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError as error:
            cancelled = error
    work.result()
    if cancelled is not None:
        raise cancelled
