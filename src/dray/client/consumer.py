"""Jobs as they come: a stream with credits, resumed where it broke.

    broker ─► items ─► buffer ─► jobs of the program ─► settlements ─► broker

At most `prefetch` messages are with this consumer and unsettled: a credit is
given for each, behind its settlement, so that the broker can end one lease
and give the next in one entry. When a stream breaks the leases are kept, the
settlements that were not answered go over the next one, and the credits that
are left are announced anew.

Invariants
    CC1  The messages that are here, and that the program has not settled, are
         never more than `prefetch`; no credit goes out before the settlement
         that it is given for.
    CC2  Every settlement is answered: to repeat one is harmless.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from dray.api.v1 import heaps_pb2 as pb
from dray.client.codecs import Codec
from dray.client.errors import ClientClosed, ClientError, OutcomeUnknown, error_among
from dray.client.job import LOG, Job, OnLost, Span, duration_of
from dray.client.renewal import LeaseRenewal
from dray.client.retrying import Deadlines, Pauses, keep_trying, now_s
from dray.client.sharing import LIST_ITEMS, Sharing
from dray.client.transport import POP_STREAM, SETTLE, Stream, Transport

MOST: Final = 10_000
STOP_S: Final = 2.0
"""What a broker gets to end a stream that is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer takes messages."""

    prefetch: int
    lease: Span | None
    worst_priority: int | None
    auto_ack: bool
    auto_extend: bool
    on_lost: OnLost
    name: str
    timeout: float


@dataclass(slots=True, eq=False)
class _Settlement:
    item: pb.SettleOne
    answer: "asyncio.Future[pb.Settled]"
    until_s: float


class Consumer:
    """Messages of one heap. Iterate it, or take one at a time with `item()`; close it, or leave its block."""

    def __init__(
        self, transport: Transport, heap: str, codec: Codec, renewal: LeaseRenewal, options: ConsumerOptions
    ) -> None:
        self._transport = transport
        self._heap = heap
        self._codec = codec
        self._renewal = renewal
        self._options = options
        self._buffer: deque[Job] = deque()
        self._held: set[Job] = set()
        """Received here, and not settled by the program (CC1)."""
        self._credits = 0
        """To be announced."""
        self._settling: deque[_Settlement] = deque()
        self._unanswered: dict[int, list[_Settlement]] = {}
        self._tag = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Who waits for a job, the first one first."""
        self._outgoing = asyncio.Event()
        self._sharing = Sharing(self._outgoing.set)
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._failure: ClientError | None = None
        self._joins = False
        """The broker of this stream takes credits together with settlements."""
        self._deadlines: Deadlines[_Settlement] = Deadlines(_too_late)

    # -- for the program ---------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Job]:
        return self

    async def __anext__(self) -> Job:
        """The next job; the iteration ends when the consumer is closed."""
        try:
            return await self.next()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def next(self) -> Job:
        """The next job, waiting for it. Raises `ClientClosed`, or what the broker has against this consumer."""
        self._begin()
        while True:
            if self._closed:
                raise ClientClosed("the consumer is closed")
            while self._buffer:
                job = self._buffer.popleft()
                if not job.is_lost:
                    return job
                self._job_done(job)  # its lease ended before anybody began it
            if self._failure is not None:
                raise self._failure
            await self._wait()

    async def _wait(self) -> None:
        """Until a job is there for this caller: others are not woken for it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake(1)  # it was this one's turn, and is another's now
            raise

    def _wake(self, count: int) -> None:
        while count and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                count -= 1

    @asynccontextmanager
    async def item(self) -> AsyncIterator[Job]:
        """The next job, as a block."""
        async with await self.next() as job:
            yield job

    async def __aenter__(self) -> "Consumer":
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """No more jobs; those that nobody has begun go back at once. Jobs that run can still be settled."""
        if self._closed:
            return
        self._closed = True
        self._wake(len(self._waiting))
        self._outgoing.set()
        if self._running is not None:
            await asyncio.wait((self._running,), timeout=STOP_S)  # what is on its way still comes, and goes back
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        while self._buffer:
            self._give_back(self._buffer.popleft())
        await self._settle_rest()
        if not self._held:  # else jobs that run are still settled, each in its time
            self._deadlines.close()

    # -- settlements -------------------------------------------------------

    async def _settle(self, job: Job, item: pb.SettleOne) -> pb.Settled:
        answer: asyncio.Future[pb.Settled] = asyncio.get_running_loop().create_future()
        settlement = _Settlement(item, answer, now_s() + self._options.timeout)
        self._settling.append(settlement)
        self._outgoing.set()
        if self._closed:
            await self._settle_rest()
        self._deadlines.add(settlement, settlement.until_s)
        try:
            return await answer
        finally:
            self._deadlines.done(settlement)

    async def _settle_rest(self) -> None:
        """Without a stream: by calls."""
        self._requeue()
        while self._settling:
            unit = [self._settling.popleft() for _ in range(min(LIST_ITEMS, len(self._settling)))]
            request = pb.SettleReq(topic=self._heap, items=[one.item for one in unit])
            try:
                answer = await keep_trying(
                    lambda seconds, request=request: self._transport.call(SETTLE, request, seconds),  # type: ignore[misc]
                    self._options.timeout,
                    harmless=True,
                )
            except ClientError as error:
                for one in unit:
                    if not one.answer.done():
                        one.answer.set_exception(error)
                continue
            self._resolve(unit, list(answer.results))

    def _requeue(self) -> None:
        """CC2"""
        left = [one for unit in self._unanswered.values() for one in unit]
        self._unanswered.clear()
        self._settling.extendleft(one for one in reversed(left) if not one.answer.done())
        if self._settling:
            self._outgoing.set()

    def _resolve(self, unit: "list[_Settlement]", results: "list[pb.Settled]") -> None:
        for one, result in zip(unit, results, strict=False):
            if one.answer.done():
                continue
            if not result.HasField("error"):
                one.answer.set_result(result)
                continue
            error = error_among(result.error)
            if error.retryable and now_s() < one.until_s and not self._closed:
                self._settling.append(one)
                asyncio.get_running_loop().call_later(Pauses().next_s(), self._outgoing.set)
            else:
                one.answer.set_exception(error)

    def _give_back(self, job: Job) -> None:
        item = pb.SettleOne(kind=pb.RELEASE, lease_token=job.lease_token)
        answer: asyncio.Future[pb.Settled] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._settling.append(_Settlement(item, answer, now_s() + self._options.timeout))
        self._renewal.drop(job.lease_token)
        self._held.discard(job)

    # -- the stream --------------------------------------------------------

    def _begin(self) -> None:
        if self._running is None and not self._closed:
            self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        pauses = Pauses()
        while True:
            stream = self._transport.stream(POP_STREAM)
            self._credits, self._joins = 0, False
            writing: asyncio.Task[None] | None = None
            try:
                await stream.write(self._start())
                writing = asyncio.create_task(self._write(stream))
                while (told := await stream.read()) is not None:
                    pauses.begin_anew()
                    if self._take(told):
                        break
                if self._closed:
                    return
                self._transport.move()  # its broker is stopping
            except ClientError as error:
                if self._closed:
                    return
                if not error.retryable:
                    self._failure = error
                    self._wake(len(self._waiting))
                    return
                LOG.info("a stream broke and is resumed", extra={"heap": self._heap, "error": str(error)})
            finally:
                if writing is not None:
                    writing.cancel()
                    await asyncio.gather(writing, return_exceptions=True)
                stream.cancel()
                self._requeue()
            await pauses.wait()

    def _start(self) -> pb.PopOpen:
        start = pb.PopStart(
            topic=self._heap, consumer=self._options.name, credits=max(0, self._options.prefetch - len(self._held))
        )
        if self._options.lease is not None:
            start.visibility.CopyFrom(duration_of(self._options.lease))
        if self._options.worst_priority is not None:
            start.filter.worst_priority = self._options.worst_priority
        return pb.PopOpen(start=start)

    async def _write(self, stream: Stream[pb.PopOpen, pb.PopDelivery]) -> None:
        try:
            while True:
                await self._outgoing.wait()
                self._outgoing.clear()
                while self._settling and self._may_settle():
                    await stream.write(pb.PopOpen(settle=self._next_list()))
                if self._settling:
                    self._sharing.linger()
                    continue  # and credits behind them (CC1)
                if self._closed:
                    await stream.write(pb.PopOpen(stop=pb.PopStop(release=True)))
                    await stream.done_writing()
                    return
                if self._credits:
                    credits, self._credits = self._credits, 0
                    await stream.write(pb.PopOpen(fc=pb.FlowControl(credits=credits)))
        except ClientError:
            return  # the reader is told why

    def _may_settle(self) -> bool:
        full = self._closed or len(self._settling) >= LIST_ITEMS
        return self._sharing.is_worth_it(len(self._unanswered), full=full)

    def _next_list(self) -> pb.SettleMany:
        """Settlements, with the credits that are given for them if the broker takes them so."""
        self._sharing.begin_anew()
        unit = [self._settling.popleft() for _ in range(min(LIST_ITEMS, len(self._settling)))]
        unit = [one for one in unit if not one.answer.done()]
        self._tag += 1
        self._unanswered[self._tag] = unit
        settle = pb.SettleMany(tag=self._tag, items=[one.item for one in unit])
        if self._joins and not self._settling and not self._closed:  # all that is settled by now is on its way (CC1)
            settle.credits, self._credits = self._credits, 0
        return settle

    def _take(self, told: pb.PopDelivery) -> bool:
        """What a message of the broker says; True: the broker is stopping."""
        self._joins |= told.takes_credits
        if told.HasField("settled"):
            self._resolve(self._unanswered.pop(told.settled.tag, []), list(told.settled.results))
            if self._settling:
                self._outgoing.set()
        for item in told.items:
            job = Job(
                heap=self._heap, item=item, codec=self._codec, settle=self._settle,
                renewal=self._renewal if self._options.auto_extend else None, auto_ack=self._options.auto_ack,
                on_lost=self._options.on_lost, loop=asyncio.get_running_loop(), done=self._job_done,
            )  # fmt: skip
            self._held.add(job)
            self._buffer.append(job)
        self._wake(len(told.items))
        return told.status.stopping

    def _job_done(self, job: Job) -> None:
        """One more may come, once what became of this one is sent (CC1)."""
        if job in self._held:
            self._held.discard(job)
            self._credits += 1
            self._outgoing.set()


def _too_late(settlement: _Settlement) -> None:
    if not settlement.answer.done():
        settlement.answer.set_exception(OutcomeUnknown("no broker answered in time: it may have been settled"))
