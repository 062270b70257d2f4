"""Messages of heaps over HTTP: enqueued, popped, settled."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps.consumers import Delivery
from dray.heaps.errors import BadToken, UnknownHeap
from dray.heaps.ids import parse_id, parse_token
from dray.heaps.producing import HeapMessage
from dray.heaps.service import HeapService
from dray.heaps.settling import SettleOne, SettleOutcome
from dray.heaps.unsettled import UnsettledConsumer
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.packets import Settlement
from dray.replica.domains import Domains
from dray.servers.http import heap_models as models
from dray.servers.http.endpoint import ApiEndpoint, Call, NoBody, NoQuery, endpoint
from dray.servers.http.errors import body_of
from dray.servers.http.gate import HttpCaller, HttpGuard
from dray.servers.http.heap_forms import LONG_S, delivery_to, message_of, taken_to
from dray.servers.http.heap_streams import STATUS_S, MessageStream
from dray.servers.http.values import duration, millis, seconds, time_of
from dray.servers.http.waiting import MAX_WAIT_S, WaitingRequests

MAX_ANSWER_BYTES: Final = 16 << 20
"""Payloads in the answer of one pop; what does not fit is given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesApi:
    """What producers and consumers of heaps ask."""

    heaps: HeapService
    gate: HttpGuard
    domains: Domains
    waiting: WaitingRequests
    clock: Clock
    status_s: float = STATUS_S

    def endpoints(self) -> list[ApiEndpoint]:
        return [*self._of_producers(), *self._of_consumers()]

    def _of_producers(self) -> list[ApiEndpoint]:
        return [
            endpoint(
                method="POST", path="/enqueue", action="heap.enqueue", handle=self.enqueue, query=NoQuery,
                body=models.EnqueueIn, gives=models.EnqueuedOut, statuses=(404,), named_in="topic",
                summary="Enqueue a message.",
            ),
            endpoint(
                method="POST", path="/enqueue:batch", action="heap.enqueue", handle=self.batch, query=NoQuery,
                body=models.EnqueueListIn, gives=models.EnqueuedListOut, statuses=(404, 409),
                named_in="topic", summary="Enqueue messages, of one heap or of several, all or none.",
            ),
            endpoint(
                method="POST", path="/enqueue:many", action="heap.enqueue", handle=self.many, query=NoQuery,
                body=models.EnqueueListIn, gives=models.EnqueuedListOut, named_in="topic",
                summary="Enqueue messages, each for itself.",
            ),
        ]  # fmt: skip

    def _of_consumers(self) -> list[ApiEndpoint]:
        return [
            endpoint(
                method="POST", path="/pop", action="heap.pop", handle=self.pop, query=NoQuery, body=models.PopIn,
                gives=models.PoppedOut, statuses=(404,), named_in="topic",
                summary="The best messages, for the time of a lease; waits for the first.",
            ),
            endpoint(
                method="GET", path="/heaps/{topic}/messages", action="heap.pop", handle=self.stream,
                query=models.StreamQuery, body=NoBody, gives=models.MessageOut, statuses=(404, 429), streams=True,
                summary="A stream of messages, one a line, at most so many of them unsettled.",
            ),
            endpoint(
                method="POST", path="/ack", action="heap.settle", handle=self.ack, query=NoQuery, body=models.AckIn,
                gives=None, statuses=(404, 409), named_in="topic", summary="A message is done.",
            ),
            endpoint(
                method="POST", path="/nack", action="heap.settle", handle=self.nack, query=NoQuery,
                body=models.NackIn, gives=models.NackedOut, statuses=(404, 409), named_in="topic",
                summary="A message failed, is given back, or is rejected.",
            ),
            endpoint(
                method="POST", path="/extend", action="heap.settle", handle=self.extend, query=NoQuery,
                body=models.ExtendIn, gives=models.ExtendedOut, statuses=(404, 409), named_in="topic",
                summary="A lease lasts longer.",
            ),
            endpoint(
                method="POST", path="/settle", action="heap.settle", handle=self.settle, query=NoQuery,
                body=models.SettleIn, gives=models.SettledListOut, statuses=(404,), named_in="topic",
                summary="Many settlements, each for itself.",
            ),
        ]  # fmt: skip

    # -- producers ---------------------------------------------------------

    async def enqueue(self, call: Call[NoQuery, models.EnqueueIn]) -> models.EnqueuedOut:
        heap = await self.heaps.admin.find(call.body.topic)
        return taken_to(await self.heaps.enqueue(heap, message_of(call.body, call.caller.keyed)))

    async def batch(self, call: Call[NoQuery, models.EnqueueListIn]) -> models.EnqueuedListOut:
        items = call.body.items
        heaps: dict[str, Heap] = {}
        for index, item in enumerate(items):
            if item.topic not in heaps:
                heaps[item.topic] = await self._find_indexed(index, item.topic)
        messages = [(heaps[item.topic], _indexed(index, item, call.caller.keyed)) for index, item in enumerate(items)]
        taken = await self.heaps.enqueue_across(messages)
        return models.EnqueuedListOut(results=[taken_to(one) for one in taken])

    async def _find_indexed(self, index: int, name: str) -> Heap:
        try:
            return await self.heaps.admin.find(name)
        except UnknownHeap as unknown:
            unknown.facts["index"] = index
            raise

    async def many(self, call: Call[NoQuery, models.EnqueueListIn]) -> models.EnqueuedListOut:
        """What the items of one heap have in common is told to each of them."""
        items = call.body.items
        by_heap: dict[str, list[int]] = {}
        for index, item in enumerate(items):
            by_heap.setdefault(item.topic, []).append(index)
        parts = await asyncio.gather(
            *(self._some(name, items, indexes, call.caller.keyed) for name, indexes in by_heap.items())
        )
        found = {index: result for part in parts for index, result in part.items()}
        return models.EnqueuedListOut(results=[found[index] for index in range(len(items))])

    async def _some(
        self, name: str, items: Sequence[models.EnqueueIn], indexes: Sequence[int], asker: str
    ) -> dict[int, models.EnqueuedOut]:
        found: dict[int, models.EnqueuedOut] = {}
        good: dict[int, HeapMessage] = {}
        for index in indexes:
            try:
                good[index] = message_of(items[index], asker)
            except DrayError as error:
                found[index] = models.EnqueuedOut(error=body_of(error))
        try:
            heap = await self.heaps.admin.find(name)
            outcomes = await self.heaps.enqueue_each(heap, list(good.values()))
        except DrayError as error:
            return found | {index: models.EnqueuedOut(error=body_of(error)) for index in good}
        for index, outcome in zip(good, outcomes, strict=True):
            if isinstance(outcome, DrayError):
                found[index] = models.EnqueuedOut(error=body_of(outcome))
            else:
                found[index] = taken_to(outcome)
        return found

    # -- consumers ---------------------------------------------------------

    async def pop(self, call: Call[NoQuery, models.PopIn]) -> models.PoppedOut:
        asked = call.body
        wait_s = seconds(asked.wait, most_s=MAX_WAIT_S, name="wait")
        heap = await self.heaps.admin.find(asked.topic)
        work = self.heaps.pop(
            heap, most=asked.max, holder=asked.consumer or _holder(call.caller), wait_s=wait_s,
            worst=asked.filter.worst_priority, visibility_ms=_visibility(asked.visibility),
        )  # fmt: skip
        found = await self.waiting.run(call.request, work)
        kept = _within(found, MAX_ANSWER_BYTES)
        await self.heaps.give_back(heap, found[kept:])
        return models.PoppedOut(items=[self._told(one) for one in found[:kept]])

    async def stream(self, call: Call[models.StreamQuery, NoBody]) -> MessageStream:
        query = call.query
        heap = await self.heaps.admin.find(call.path["topic"])
        with ExitStack() as stack:
            stack.enter_context(self.waiting.place())
            ended = stack.enter_context(self.gate.hold(call.caller))
            consumer = self.heaps.consumer(
                heap, holder=query.consumer or _holder(call.caller), worst=query.worst_priority,
                visibility_ms=_visibility(query.visibility),
            )  # fmt: skip
            taking = UnsettledConsumer(self.heaps, self.domains, heap, consumer, query.max_unsettled)
            return MessageStream(taking, self._told, self.clock, self.status_s, stack.pop_all(), ended)

    async def ack(self, call: Call[NoQuery, models.AckIn]) -> None:
        given = call.body
        one = SettleOne(kind=Settlement.ACK, token=parse_token(given.lease_token))
        await self._settle(given.topic, one, given.message_id)

    async def nack(self, call: Call[NoQuery, models.NackIn]) -> models.NackedOut:
        given = call.body
        delay = given.backoff_override
        one = SettleOne(
            kind=Settlement[given.kind], token=parse_token(given.lease_token), note=given.error,
            duration_ms=None if delay is None else millis(delay, most_s=LONG_S, name="backoff_override"),
        )  # fmt: skip
        outcome = await self._settle(given.topic, one, given.message_id)
        if outcome.dead or outcome.again_ms is None:
            return models.NackedOut(dead=outcome.dead)
        return models.NackedOut(dead=False, not_before=time_of(self.clock.wall_ms() + outcome.again_ms))

    async def extend(self, call: Call[NoQuery, models.ExtendIn]) -> models.ExtendedOut:
        given = call.body
        one = SettleOne(
            kind=Settlement.RENEW if given.from_now else Settlement.EXTEND, token=parse_token(given.lease_token),
            duration_ms=millis(given.extension, most_s=LONG_S, name="extension"),
        )  # fmt: skip
        left_ms = (await self._settle(given.topic, one, "")).lease_ms or 0
        return models.ExtendedOut(
            lease_for=duration(left_ms), lease_deadline=time_of(self.clock.wall_ms() + left_ms)
        )  # fmt: skip

    async def settle(self, call: Call[NoQuery, models.SettleIn]) -> models.SettledListOut:
        """A token that is none is the fault of its item alone."""
        heap = await self.heaps.admin.find(call.body.topic)
        results: dict[int, models.SettledOut] = {}
        good: dict[int, SettleOne] = {}
        for index, item in enumerate(call.body.items):
            try:
                good[index] = _settlement(item)
            except DrayError as error:
                results[index] = models.SettledOut(error=body_of(error))
        outcomes = await self.heaps.settle_many(heap, list(good.values()))
        results |= {index: _settled(outcome) for index, outcome in zip(good, outcomes, strict=True)}
        return models.SettledListOut(results=[results[index] for index in range(len(call.body.items))])

    async def _settle(self, topic: str, one: SettleOne, message_id: str) -> SettleOutcome:
        heap = await self.heaps.admin.find(topic)
        if message_id:
            await self.heaps.check_names(heap, parse_id(message_id), one.token)
        (outcome,) = await self.heaps.settle_many(heap, [one])
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def _told(self, delivery: Delivery) -> models.MessageOut:
        left_ms = max(0, (delivery.until_ns - self.clock.boot_ns()) // 1_000_000)
        return delivery_to(delivery, left_ms, self.clock.wall_ms())


def _within(found: Sequence[Delivery], most_bytes: int) -> int:
    """How many of the best fit into an answer; one always does."""
    size = 0
    for count, delivery in enumerate(found):
        size += len(delivery.body.payload)
        if count and size > most_bytes:
            return count
    return len(found)


def _holder(caller: HttpCaller) -> str:
    return caller.name


def _visibility(text: str | None) -> int | None:
    return None if text is None else millis(text, most_s=LONG_S, name="visibility")


def _indexed(index: int, item: models.EnqueueIn, asker: str) -> HeapMessage:
    try:
        return message_of(item, asker)
    except DrayError as error:
        error.facts["index"] = index
        raise


def _settlement(item: models.SettleOneIn) -> SettleOne:
    length = None if item.duration is None else millis(item.duration, most_s=LONG_S, name="duration")
    kind = Settlement[item.kind]
    if kind in (Settlement.EXTEND, Settlement.RENEW) and not length:
        raise BadToken("how long is a lease to be prolonged?")
    return SettleOne(kind=kind, token=parse_token(item.lease_token), duration_ms=length, note=item.error)


def _settled(outcome: SettleOutcome) -> models.SettledOut:
    if outcome.error is not None:
        return models.SettledOut(error=body_of(outcome.error))
    if outcome.lease_ms is not None:
        return models.SettledOut(done=True, lease_for=duration(outcome.lease_ms))
    return models.SettledOut(done=True, dead=outcome.dead)
