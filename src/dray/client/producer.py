"""Messages on their way to a broker: calls share lists, lists share a stream, and a broken stream loses nothing.

Invariants
    SQ1  A message is sent again under the producer, epoch and sequence that it
         had the first time; a new one never gets a pair that was given.
    SQ2  Every call is answered: with an id, with an error, or after its time
         with `OutcomeUnknown` if it was sent.
"""

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import Final

from dray.api.v1 import heaps_pb2 as pb
from dray.client.errors import BrokerUnavailable, ClientClosed, ClientError, OutcomeUnknown, error_among
from dray.client.retrying import Deadlines, Pauses, now_s
from dray.client.sharing import LIST_ITEMS, Sharing
from dray.client.transport import ENQUEUE_STREAM, Stream, Transport

LIST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A message is durable."""

    message_id: str
    duplicate: bool
    partition: int


@dataclass(slots=True, eq=False)
class _Sending:
    item: pb.EnqueueReq
    answer: "asyncio.Future[Enqueued]"
    until_s: float
    size: int
    sent: bool = False
    """And not answered since."""
    refused: ClientError | None = None
    """What the last answer was."""
    pauses: Pauses | None = None
    """Since the first of those."""


class Producer:
    """Sends the messages of one client."""

    def __init__(self, transport: Transport, producer_id: str | None, epoch: int | None) -> None:
        self._transport = transport
        self.given = epoch is not None
        """The program counts its messages itself."""
        self.id = producer_id or f"sdk-{random.getrandbits(64):016x}"
        self.epoch = random.getrandbits(64) if epoch is None else epoch
        self._seqs: dict[str, int] = {}
        self._waiting: deque[_Sending] = deque()
        self._unanswered: dict[int, list[_Sending]] = {}
        self._tag = 0
        self._news = asyncio.Event()
        self._sharing = Sharing(self._news.set)
        self._waiting_bytes = 0
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._deadlines: Deadlines[_Sending] = Deadlines(_too_late)

    def next_seq(self, heap: str) -> int:
        """Dense for each heap, so that the broker remembers a range (SQ1)."""
        seq = self._seqs.get(heap, 0)
        self._seqs[heap] = seq + 1
        return seq

    async def send(self, item: pb.EnqueueReq, timeout: float) -> Enqueued:
        """Durable when it returns (SQ2)."""
        if self._closed:
            raise ClientClosed("the client is closed")
        answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        sending = _Sending(item, answer, now_s() + timeout, len(item.payload) + 256)
        self._waiting.append(sending)
        self._waiting_bytes += sending.size
        if self._may_send():
            self._news.set()
        else:
            self._sharing.linger()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        self._deadlines.add(sending, sending.until_s)
        try:
            return await answer
        finally:
            self._deadlines.done(sending)

    async def close(self, drain: float) -> None:
        """What was taken is answered, if it comes in time."""
        self._closed = True
        left = [one.answer for one in (*self._waiting, *(o for unit in self._unanswered.values() for o in unit))]
        if left:
            await asyncio.wait(left, timeout=drain)
        for answer in left:
            if not answer.done():
                answer.set_exception(OutcomeUnknown("the client was closed before the answer came"))
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self._sharing.begin_anew()
        self._deadlines.close()

    async def _run(self) -> None:
        """Streams, one after the other, for as long as there is something to send."""
        pauses = Pauses()
        while True:
            stream = self._transport.stream(ENQUEUE_STREAM)
            writing = asyncio.create_task(self._write(stream))
            try:
                while (answer := await stream.read()) is not None:
                    pauses.begin_anew()
                    self._answered(answer)
                self._transport.move()  # its broker is stopping
            except ClientError as error:
                self._fail_waiting(error)
            finally:
                writing.cancel()
                stream.cancel()
                await asyncio.gather(writing, return_exceptions=True)
            self._send_again([one for unit in self._unanswered.values() for one in unit])
            self._unanswered.clear()
            await pauses.wait()
            if not self._waiting:
                self._news.clear()
                await self._news.wait()

    async def _write(self, stream: Stream[pb.EnqueueMany, pb.EnqueueManyResp]) -> None:
        while True:
            while not self._waiting or not self._may_send():
                if self._waiting:
                    self._sharing.linger()
                self._news.clear()
                await self._news.wait()
            unit = self._next_list()
            if not unit:
                continue
            self._tag += 1
            self._unanswered[self._tag] = unit
            try:
                await stream.write(pb.EnqueueMany(tag=self._tag, items=[one.item for one in unit]))
            except ClientError:
                return  # the reader is told why

    def _may_send(self) -> bool:
        full = len(self._waiting) >= LIST_ITEMS or self._waiting_bytes >= LIST_BYTES
        return self._sharing.is_worth_it(len(self._unanswered), full=full)

    def _next_list(self) -> list[_Sending]:
        unit: list[_Sending] = []
        size = 0
        while self._waiting and len(unit) < LIST_ITEMS and size < LIST_BYTES:
            one = self._waiting.popleft()
            self._waiting_bytes -= one.size
            if not one.answer.done():
                one.sent = True
                unit.append(one)
                size += one.size
        self._sharing.begin_anew()
        return unit

    def _answered(self, answer: pb.EnqueueManyResp) -> None:
        unit = self._unanswered.pop(answer.tag, [])
        again = []
        pause_s = 0.0
        for one, result in zip(unit, answer.results, strict=False):
            if one.answer.done():
                continue
            if not result.HasField("error"):
                one.answer.set_result(
                    Enqueued(message_id=result.message_id, duplicate=result.duplicate, partition=result.partition_id)
                )
                continue
            error = error_among(result.error)
            one.pauses = one.pauses or Pauses()
            mine_s = one.pauses.next_s()
            if error.retryable and now_s() + 2 * mine_s < one.until_s:  # else the answer comes too late
                one.sent, one.refused = error.may_have_happened, error
                again.append(one)
                pause_s = max(pause_s, mine_s)
            else:
                one.answer.set_exception(error)
        if again:
            asyncio.get_running_loop().call_later(pause_s, self._send_again, again)
        self._news.set()  # behind those who were answered: what they send next shares a list

    def _send_again(self, units: "list[_Sending]") -> None:
        """In front, as they were (SQ1)."""
        left = [one for one in units if not one.answer.done()]
        self._waiting.extendleft(reversed(left))
        self._waiting_bytes += sum([one.size for one in left])
        self._news.set()

    def _fail_waiting(self, error: ClientError) -> None:
        """An error that comes again whatever is done is everybody's."""
        if error.retryable:
            return
        for one in (*self._waiting, *(o for unit in self._unanswered.values() for o in unit)):
            if not one.answer.done():
                one.answer.set_exception(error)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._unanswered.clear()


def _too_late(sending: _Sending) -> None:
    if sending.answer.done():
        return
    if sending.sent:
        error: ClientError = OutcomeUnknown("no broker answered in time: the message may have been taken")
    else:
        error = sending.refused or BrokerUnavailable("no broker could be reached in time: nothing was sent")
    sending.answer.set_exception(error)
