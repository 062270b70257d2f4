"""The calls about heaps that have one answer: each translates, asks the service, and translates back.

Invariants
    GH1  What is told to have happened is durable, and what is told to have
         failed did not happen; where nobody knows, that is told (E1).
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from google.protobuf.empty_pb2 import Empty

from dray.api.v1 import heaps_pb2 as pb
from dray.clock import Clock
from dray.errors import DrayError
from dray.heaps.asking import AskedBy
from dray.heaps.dead_letters import CountMoved
from dray.heaps.errors import BadHeap, BadMessage, UnknownHeap
from dray.heaps.ids import MessageId, format_id, parse_id, parse_token
from dray.heaps.producing import HeapMessage, TakenMessage
from dray.heaps.service import HeapService
from dray.heaps.settling import SettleOne, SettleOutcome
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import HeapConfig
from dray.machine.heaps.packets import Settlement
from dray.servers.grpc import forms
from dray.servers.grpc.errors import LimitReached, NotOffered, told
from dray.servers.grpc.gate import Gate, GrpcCaller

MAX_PAGE: Final = 1_000
MAX_LIST: Final = 1_000
"""Messages or settlements of one list."""
LONG_POLLS: Final = 1_000
_DONE: Final = pb.Settled(done=True)
"""To be copied into an answer, never changed."""
MAX_WAIT_MS: Final = 60_000
_NACKS: Final = {0: Settlement.NACK, pb.NACK: Settlement.NACK, pb.RELEASE: Settlement.RELEASE,
                 pb.REJECT: Settlement.REJECT}  # fmt: skip


class HeapsApi:
    """The service `dray.v1.Heaps`, without its transport."""

    def __init__(self, service: HeapService, gate: Gate, clock: Clock, durability: str) -> None:
        self.service = service
        self.gate = gate
        self.clock = clock
        self._durability = durability
        self._polls = 0

    async def find(self, caller: GrpcCaller, action: str, name: str) -> Heap:
        """The heap that a call names, if its caller may (GT1)."""
        self.gate.check(caller, action, name)
        return await self.service.admin.find(name)

    # -- heaps -------------------------------------------------------------

    async def make_heap(self, caller: GrpcCaller, asked: pb.MakeHeapReq) -> pb.Heap:
        self.gate.check(caller, "heap.make", asked.topic)
        if asked.spread:
            raise NotOffered("heaps over several domains are not served")
        self._check_history(caller, asked.config)

        async def make() -> Heap:
            return await self.service.admin.make(
                asked.topic,
                mode=forms.mode_of(asked.mode),
                partitions=asked.partitions if asked.HasField("partitions") else 1,
                replication_factor=asked.replication_factor if asked.HasField("replication_factor") else 1,
                config=forms.config_of(asked.config, HeapConfig()),
                by=_asker(caller),
            )

        return forms.heap_to(await self.gate.audited(caller, "heap.make", asked.topic, make), self._durability)

    def _check_history(self, caller: GrpcCaller, config: pb.HeapConfig) -> None:
        """Who lets a heap write to a topic may write to it themselves."""
        if config.history:
            self.gate.check(caller, "topic.produce", config.history)

    async def get_heap(self, caller: GrpcCaller, asked: pb.HeapRef) -> pb.Heap:
        return forms.heap_to(await self.find(caller, "heap.describe", asked.topic), self._durability)

    async def list_heaps(self, caller: GrpcCaller, asked: pb.ListHeapsReq) -> pb.ListHeapsResp:
        self.gate.check(caller, "heap.describe", asked.prefix)
        limit = _page_size(asked.page_size)
        heaps = await self.service.admin.page(prefix=asked.prefix, after=asked.page_token, limit=limit + 1)
        more = heaps[limit - 1].name if len(heaps) > limit else ""
        return pb.ListHeapsResp(
            heaps=[forms.heap_to(heap, self._durability) for heap in heaps[:limit]], next_page_token=more
        )

    async def update_heap_config(self, caller: GrpcCaller, asked: pb.UpdateHeapConfigReq) -> pb.Heap:
        heap = await self.find(caller, "heap.alter", asked.topic)
        if asked.HasField("partitions") and not asked.partitions:
            raise BadHeap("a heap has at least one partition")
        self._check_history(caller, asked.config)

        async def alter() -> None:
            await self.service.admin.alter(
                heap,
                forms.config_of(asked.config, heap.config),
                partitions=asked.partitions,
                expected=asked.expected_revision if asked.HasField("expected_revision") else -1,
                by=_asker(caller),
            )

        await self.gate.audited(caller, "heap.alter", heap.name, alter)
        return forms.heap_to(await self.service.admin.find(asked.topic), self._durability)

    async def delete_heap(self, caller: GrpcCaller, asked: pb.DestroyReq) -> Empty:
        heap = await self.find(caller, "heap.delete", asked.topic)
        await self.gate.confirm(caller, "heap.delete", heap, force=asked.force, confirmation=asked.confirmation)
        await self.gate.audited(
            caller, "heap.delete", heap.name, lambda: self.service.admin.delete(heap, by=_asker(caller))
        )
        return Empty()

    async def purge(self, caller: GrpcCaller, asked: pb.PurgeReq) -> pb.CountResp:
        heap = await self.find(caller, "heap.purge", asked.topic)
        await self.gate.confirm(
            caller,
            "heap.purge",
            heap,
            force=asked.force,
            confirmation=asked.confirmation,
            options=f"{asked.include_leased} {asked.include_dlq}",
        )

        async def purge() -> int:
            return await self.service.dead_letters.purge(
                heap, leased=asked.include_leased, dead=asked.include_dlq, by=_asker(caller)
            )

        return pb.CountResp(count=await self.gate.audited(caller, "heap.purge", heap.name, purge))

    async def stats(self, caller: GrpcCaller, asked: pb.StatsReq) -> pb.StatsResp:
        """Of one heap, or of all that there are, by name."""
        if asked.topic:
            heaps = [await self.find(caller, "heap.stats", asked.topic)]
        else:
            self.gate.check(caller, "heap.stats", "")
            heaps = await self.service.admin.page(limit=MAX_PAGE)
        found = [await self.service.stats.of(heap) for heap in heaps]
        return pb.StatsResp(
            heaps=[
                one
                for stats in found
                for one in forms.stats_to(stats, by_partition=asked.by_partition, by_priority=asked.by_priority)
            ]
        )

    async def peek(self, caller: GrpcCaller, asked: pb.PeekReq) -> pb.PeekResp:
        heap = await self.find(caller, "heap.peek", asked.topic)
        wall_ms = self.clock.wall_ms()
        if asked.message_id:
            one = await self.service.peeking.one(heap, parse_id(asked.message_id), payload=asked.payload)
            return pb.PeekResp(messages=[forms.peeked_to(one, wall_ms)])
        page = await self.service.peeking.page(
            heap,
            forms.state_of(asked.state),
            limit=_page_size(asked.limit),
            token=asked.page_token,
            payload=asked.payload,
        )
        return pb.PeekResp(
            messages=[forms.peeked_to(one, wall_ms) for one in page.messages], next_page_token=page.next_token
        )

    # -- producers ---------------------------------------------------------

    async def enqueue(self, caller: GrpcCaller, asked: pb.EnqueueReq) -> pb.EnqueueResp:
        heap = await self.find(caller, "heap.enqueue", asked.topic)
        return _taken(await self.service.enqueue(heap, forms.message_of(asked, caller.keyed)))

    async def enqueue_batch(self, caller: GrpcCaller, asked: pb.EnqueueBatchReq) -> pb.EnqueueBatchResp:
        """All or nothing, of any heaps."""
        if not 0 < len(asked.items) <= MAX_LIST:
            raise BadMessage("a batch has from 1 message on", most=MAX_LIST)
        for name in sorted({item.topic for item in asked.items}):
            self.gate.check(caller, "heap.enqueue", name)
        heaps: dict[str, Heap] = {}
        for index, item in enumerate(asked.items):
            if item.topic not in heaps:
                heaps[item.topic] = await self._find_indexed(index, item.topic)
        messages = [(heaps[item.topic], _indexed(index, item, caller.keyed)) for index, item in enumerate(asked.items)]
        taken = await self.service.enqueue_across(messages)
        return pb.EnqueueBatchResp(results=[_taken(one) for one in taken])

    async def _find_indexed(self, index: int, name: str) -> Heap:
        try:
            return await self.service.admin.find(name)
        except UnknownHeap as unknown:
            unknown.facts["index"] = index
            raise

    async def enqueue_many(self, caller: GrpcCaller, asked: pb.EnqueueMany) -> pb.EnqueueManyResp:
        """Each for itself, of any heaps; every one has its answer or its error."""
        items = list(asked.items)
        outcomes: dict[int, TakenMessage | DrayError] = {}
        by_heap: dict[str, list[int]] = {}
        if len(items) > MAX_LIST:
            outcomes = dict.fromkeys(range(len(items)), BadMessage("too many messages in one list", most=MAX_LIST))
        else:
            for index, item in enumerate(items):
                by_heap.setdefault(item.topic, []).append(index)
        some = [self._enqueue_some(caller, name, items, at, outcomes) for name, at in by_heap.items()]
        if len(some) == 1:
            await some[0]  # `gather` takes turns of the loop, in which deliveries would overtake the answer
        else:
            await asyncio.gather(*some)
        answer = pb.EnqueueManyResp(tag=asked.tag)
        for index in range(len(items)):
            _add_result(answer, outcomes[index])
        return answer

    async def _enqueue_some(
        self,
        caller: GrpcCaller,
        name: str,
        items: Sequence[pb.EnqueueReq],
        indexes: Sequence[int],
        outcomes: dict[int, TakenMessage | DrayError],
    ) -> None:
        """What became of the messages of one heap."""
        good: list[HeapMessage] = []
        places: list[int] = []
        try:
            heap = await self.find(caller, "heap.enqueue", name)
        except DrayError as error:
            outcomes.update(dict.fromkeys(indexes, error))
            return
        for index in indexes:
            try:
                good.append(forms.message_of(items[index], caller.keyed))
                places.append(index)
            except DrayError as error:
                outcomes[index] = error
        try:
            outcomes.update(zip(places, await self.service.enqueue_each(heap, good), strict=True))
        except DrayError as error:
            outcomes.update(dict.fromkeys(places, error))

    # -- consumers ---------------------------------------------------------

    async def pop(self, caller: GrpcCaller, asked: pb.PopReq) -> pb.PopResp:
        heap = await self.find(caller, "heap.pop", asked.topic)
        wait_ms = forms.milliseconds(asked.wait, "wait")
        if wait_ms > MAX_WAIT_MS:
            raise BadMessage("a pop waits for at most a minute", most_ms=MAX_WAIT_MS)
        worst = asked.filter.worst_priority if asked.filter.HasField("worst_priority") else None
        with self._polling():
            found = await self.service.pop(
                heap,
                most=asked.max or 1,
                holder=asked.consumer or caller.name,
                wait_s=wait_ms / 1_000,
                worst=worst,
                visibility_ms=forms.milliseconds(asked.visibility, "visibility")
                if asked.HasField("visibility")
                else None,
            )
        wall_ms, boot_ns = self.clock.wall_ms(), self.clock.boot_ns()
        answer = pb.PopResp()
        for one in found:
            forms.add_item(answer, one, wall_ms, boot_ns)
        return answer

    @contextmanager
    def _polling(self) -> Iterator[None]:
        if self._polls >= LONG_POLLS:
            raise LimitReached("too many pops wait at this broker", most=LONG_POLLS)
        self._polls += 1
        try:
            yield
        finally:
            self._polls -= 1

    async def ack(self, caller: GrpcCaller, asked: pb.AckReq) -> Empty:
        heap = await self.find(caller, "heap.settle", asked.topic)
        await self._settle(heap, SettleOne(kind=Settlement.ACK, token=parse_token(asked.lease_token)), asked.message_id)
        return Empty()

    async def nack(self, caller: GrpcCaller, asked: pb.NackReq) -> pb.NackResp:
        heap = await self.find(caller, "heap.settle", asked.topic)
        kind = _NACKS.get(asked.kind)
        if kind is None:
            raise BadMessage("what fails is a NACK, a RELEASE or a REJECT")
        delay_ms = (
            forms.milliseconds(asked.backoff_override, "backoff_override")
            if asked.HasField("backoff_override")
            else None
        )
        one = SettleOne(kind=kind, token=parse_token(asked.lease_token), duration_ms=delay_ms, note=asked.error)
        outcome = await self._settle(heap, one, asked.message_id)
        answer = pb.NackResp(dead=outcome.dead)
        if outcome.again_ms is not None and not outcome.dead:
            answer.not_before.CopyFrom(forms.moment_of(self.clock.wall_ms() + outcome.again_ms))
        return answer

    async def extend(self, caller: GrpcCaller, asked: pb.ExtendReq) -> pb.ExtendResp:
        heap = await self.find(caller, "heap.settle", asked.topic)
        outcome = await self._settle(
            heap,
            SettleOne(
                kind=Settlement.RENEW if asked.from_now else Settlement.EXTEND,
                token=parse_token(asked.lease_token),
                duration_ms=forms.milliseconds(asked.extension, "extension"),
            ),
            "",
        )
        left_ms = outcome.lease_ms or 0
        return pb.ExtendResp(
            lease_deadline=forms.moment_of(self.clock.wall_ms() + left_ms), lease_for=forms.duration_of(left_ms)
        )

    async def _settle(self, heap: Heap, one: SettleOne, message_id: str) -> SettleOutcome:
        if message_id:
            await self.service.check_names(heap, parse_id(message_id), one.token)
        (outcome,) = await self.service.settle_many(heap, [one])
        if outcome.error is not None:
            raise outcome.error
        return outcome

    async def settle(self, caller: GrpcCaller, asked: pb.SettleReq) -> pb.SettleResp:
        heap = await self.find(caller, "heap.settle", asked.topic)
        return pb.SettleResp(results=await self.settle_list(heap, asked.items))

    async def settle_list(self, heap: Heap, items: Sequence[pb.SettleOne]) -> list[pb.Settled]:
        """Each for itself; a bad one spoils no other. Raises if nothing is known of any."""
        if len(items) > MAX_LIST:
            raise BadMessage("too many settlements in one list", most=MAX_LIST)
        found: dict[int, pb.Settled] = {}
        good: dict[int, SettleOne] = {}
        for index, item in enumerate(items):
            try:
                good[index] = forms.settlement_of(item)
                if good[index].kind in (Settlement.EXTEND, Settlement.RENEW) and not good[index].duration_ms:
                    raise BadMessage("how long is a lease to be prolonged?")
            except DrayError as error:
                good.pop(index, None)
                found[index] = pb.Settled(error=told(error))
        for index, outcome in zip(good, await self.service.settle_many(heap, list(good.values())), strict=True):
            found[index] = _settled(outcome)
        return [found[index] for index in range(len(items))]

    # -- operators ---------------------------------------------------------

    async def move_to_dlq(self, caller: GrpcCaller, asked: pb.MoveToDlqReq) -> pb.CountResp:
        heap = await self.find(caller, "heap.bury", asked.topic)

        async def bury() -> CountMoved:
            return await self.service.dead_letters.bury(
                heap, _ids(asked.message_ids), force=asked.force, reason=asked.reason, by=_asker(caller)
            )

        moved = await self.gate.audited(caller, "heap.bury", heap.name, bury)
        return pb.CountResp(count=moved.count, left=moved.left)

    async def dlq_replay(self, caller: GrpcCaller, asked: pb.DlqReplayReq) -> pb.CountResp:
        heap = await self.find(caller, "dlq.replay", asked.topic)

        async def replay() -> CountMoved:
            return await self.service.dead_letters.replay(
                heap,
                _chosen(asked.message_ids, asked.all),
                keep_time=asked.keep_time,
                priority=asked.priority if asked.HasField("priority") else None,
                per_second=asked.per_second,
                dry_run=asked.dry_run,
                by=_asker(caller),
            )

        moved = await (replay() if asked.dry_run else self.gate.audited(caller, "dlq.replay", heap.name, replay))
        return pb.CountResp(count=moved.count, left=moved.left)

    async def dlq_delete(self, caller: GrpcCaller, asked: pb.DlqDeleteReq) -> pb.CountResp:
        heap = await self.find(caller, "dlq.delete", asked.topic)
        chosen = _chosen(asked.message_ids, asked.all)
        if chosen is None:
            await self.gate.confirm(caller, "dlq.delete", heap, force=asked.force, confirmation=asked.confirmation)
        moved = await self.gate.audited(
            caller,
            "dlq.delete",
            heap.name,
            lambda: self.service.dead_letters.delete(heap, chosen, by=_asker(caller)),
        )
        return pb.CountResp(count=moved.count, left=moved.left)


def _asker(caller: GrpcCaller) -> AskedBy:
    return AskedBy(actor=caller.actor or caller.name, request=caller.request)


def _page_size(asked: int) -> int:
    if asked > MAX_PAGE:
        raise BadMessage("a page is not that long", most=MAX_PAGE)
    return asked or 100


def _ids(texts: Sequence[str]) -> list[MessageId]:
    if not 0 < len(texts) <= MAX_LIST:
        raise BadMessage("name from 1 message on", most=MAX_LIST)
    return [parse_id(text) for text in texts]


def _chosen(texts: Sequence[str], everything: bool) -> list[MessageId] | None:
    """None: all of them. One of the two is said, never both."""
    if everything == bool(texts):
        raise BadMessage("name messages, or say that all are meant")
    return None if everything else _ids(texts)


def _indexed(index: int, item: pb.EnqueueReq, asker: str) -> HeapMessage:
    try:
        return forms.message_of(item, asker)
    except DrayError as bad:
        raise BadMessage(bad.message, **bad.facts | {"index": index}) from bad


def _add_result(answer: pb.EnqueueManyResp, outcome: TakenMessage | DrayError) -> None:
    if isinstance(outcome, DrayError):
        answer.results.add(error=told(outcome))
    else:
        answer.results.add(
            message_id=format_id(outcome.id), duplicate=outcome.duplicate, partition_id=outcome.partition
        )


def _taken(taken: TakenMessage) -> pb.EnqueueResp:
    return pb.EnqueueResp(message_id=format_id(taken.id), duplicate=taken.duplicate, partition_id=taken.partition)


def _settled(outcome: SettleOutcome) -> pb.Settled:
    if outcome.error is not None:
        return pb.Settled(error=told(outcome.error))
    if not outcome.dead and outcome.lease_ms is None:
        return _DONE
    answer = pb.Settled(done=True, dead=outcome.dead)
    if outcome.lease_ms is not None:
        answer.lease_for.CopyFrom(forms.duration_of(outcome.lease_ms))
    return answer
