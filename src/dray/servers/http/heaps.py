"""Heaps over HTTP: made, listed, altered, deleted, looked at, and what operators do to messages."""

from dataclasses import dataclass
from typing import Final

from dray.clock import Clock
from dray.heaps.asking import AskedBy
from dray.heaps.ids import MessageId, parse_id
from dray.heaps.service import HeapService
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.rows import State
from dray.servers.http import heap_models as models
from dray.servers.http.endpoint import ApiEndpoint, Call, NoBody, NoQuery, Reply, endpoint
from dray.servers.http.errors import BadRequest
from dray.servers.http.gate import HttpCaller, HttpGuard
from dray.servers.http.heap_forms import config_of, heap_to, peeked_to, stats_to

HEAP: Final = "/heaps/{topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapsHttp:
    """What is asked about heaps as a whole."""

    heaps: HeapService
    gate: HttpGuard
    clock: Clock
    durability: str

    def endpoints(self) -> list[ApiEndpoint]:
        return [*self._of_heaps(), *self._of_messages()]

    def _of_heaps(self) -> list[ApiEndpoint]:
        return [
            endpoint(
                method="POST", path="/heaps", action="heap.make", handle=self.make, query=NoQuery,
                body=models.MakeHeapIn, gives=models.HeapOut, statuses=(409, 501), named_in="topic",
                summary="Make a heap.",
            ),
            endpoint(
                method="GET", path="/heaps", action="heap.describe", handle=self.page, query=models.ListHeapsQuery,
                body=NoBody, gives=models.HeapsOut, summary="Heaps by name.",
            ),
            endpoint(
                method="GET", path=HEAP, action="heap.describe", handle=self.get, query=NoQuery, body=NoBody,
                gives=models.HeapOut, statuses=(404,), summary="A heap.",
            ),
            endpoint(
                method="PATCH", path=HEAP, action="heap.alter", handle=self.update, query=NoQuery,
                body=models.UpdateHeapIn, gives=models.HeapOut, statuses=(404, 409), summary="Alter a heap.",
            ),
            endpoint(
                method="DELETE", path=HEAP, action="heap.delete", handle=self.delete, query=models.DestroyQuery,
                body=NoBody, gives=None, statuses=(404, 409, 428, 504), summary="Delete a heap and its messages.",
            ),
            endpoint(
                method="POST", path=f"{HEAP}:purge", action="heap.purge", handle=self.purge, query=NoQuery,
                body=models.PurgeIn, gives=models.CountOut, statuses=(404, 409, 428),
                summary="Delete the messages that a heap has now.",
            ),
            endpoint(
                method="GET", path="/stats", action="heap.stats", handle=self.stats, query=models.StatsQuery,
                body=NoBody, gives=models.StatsOut, statuses=(404,), summary="How heaps do.",
            ),
        ]  # fmt: skip

    def _of_messages(self) -> list[ApiEndpoint]:
        return [
            endpoint(
                method="GET", path="/peek", action="heap.peek", handle=self.peek, query=models.PeekQuery, body=NoBody,
                gives=models.PeekedListOut, statuses=(404,), summary="Look at messages in one state, page by page.",
            ),
            endpoint(
                method="GET", path=f"{HEAP}/dlq", action="heap.peek", handle=self.dead, query=models.DlqQuery,
                body=NoBody, gives=models.PeekedListOut, statuses=(404,), summary="Look at dead letters.",
            ),
            endpoint(
                method="POST", path=f"{HEAP}/dlq:replay", action="dlq.replay", handle=self.replay, query=NoQuery,
                body=models.ReplayIn, gives=models.CountOut, statuses=(404, 409),
                summary="Make dead letters ready again.",
            ),
            endpoint(
                method="POST", path=f"{HEAP}/dlq:delete", action="dlq.delete", handle=self.drop, query=NoQuery,
                body=models.DropIn, gives=models.CountOut, statuses=(404, 409, 428), summary="Delete dead letters.",
            ),
            endpoint(
                method="POST", path=f"{HEAP}:bury", action="heap.bury", handle=self.bury, query=NoQuery,
                body=models.BuryIn, gives=models.CountOut, statuses=(404, 409),
                summary="Make messages dead letters.",
            ),
        ]  # fmt: skip

    # -- heaps -------------------------------------------------------------

    async def make(self, call: Call[NoQuery, models.MakeHeapIn]) -> Reply:
        given = call.body
        if given.spread:
            raise BadRequest("heaps over several domains are not served", status=501)
        self._check_history(call.caller, given.config)

        async def work() -> Heap:
            return await self.heaps.admin.make(
                given.topic, mode=Mode[given.mode], partitions=given.partitions,
                replication_factor=given.replication_factor, config=config_of(given.config, HeapConfig()),
                by=_by(call.caller),
            )  # fmt: skip

        heap = await self.gate.audited(call.caller, "heap.make", given.topic, work)
        return self._told(heap)

    def _check_history(self, caller: HttpCaller, config: models.HeapConfigIn) -> None:
        """Who lets a heap write to a topic may write to it themselves."""
        if config.history:
            self.gate.allow(caller, "topic.produce", config.history)

    async def page(self, call: Call[models.ListHeapsQuery, NoBody]) -> models.HeapsOut:
        query = call.query
        found = await self.heaps.admin.page(prefix=query.prefix, after=query.page_token, limit=query.page_size + 1)
        heaps = [heap_to(heap, self.durability) for heap in found[: query.page_size]]
        more = heaps[-1].topic if len(found) > query.page_size else ""
        return models.HeapsOut(heaps=heaps, next_page_token=more)

    async def get(self, call: Call[NoQuery, NoBody]) -> Reply:
        return self._told(await self._find(call.path["topic"]))

    async def update(self, call: Call[NoQuery, models.UpdateHeapIn]) -> Reply:
        heap, given = await self._find(call.path["topic"]), call.body
        if given.partitions == 0:
            raise BadRequest("a heap has at least one partition")
        self._check_history(call.caller, given.config)

        async def work() -> None:
            await self.heaps.admin.alter(
                heap, config_of(given.config, heap.config), partitions=given.partitions or 0,
                expected=-1 if given.expected_revision is None else given.expected_revision, by=_by(call.caller),
            )  # fmt: skip

        await self.gate.audited(call.caller, "heap.alter", heap.name, work)
        return self._told(await self._find(heap.name))

    async def delete(self, call: Call[models.DestroyQuery, NoBody]) -> None:
        heap = await self._find(call.path["topic"])
        await self._confirm(call.caller, "heap.delete", heap, call.query.force, call.query.confirmation)

        async def work() -> None:
            await self.heaps.admin.delete(heap, by=_by(call.caller))

        await self.gate.audited(call.caller, "heap.delete", heap.name, work)

    async def purge(self, call: Call[NoQuery, models.PurgeIn]) -> models.CountOut:
        heap, given = await self._find(call.path["topic"]), call.body
        options = f"leased={given.include_leased} dlq={given.include_dlq}"
        await self._confirm(call.caller, "heap.purge", heap, given.force, given.confirmation, options)

        async def work() -> int:
            return await self.heaps.dead_letters.purge(
                heap, leased=given.include_leased, dead=given.include_dlq, by=_by(call.caller)
            )

        count = await self.gate.audited(call.caller, "heap.purge", heap.name, work)
        return models.CountOut(count=str(count))

    async def stats(self, call: Call[models.StatsQuery, NoBody]) -> models.StatsOut:
        query = call.query
        if query.topic:
            heaps = [await self._find(query.topic)]
        else:
            heaps = await self.heaps.admin.page(limit=models.MAX_ITEMS)
        found = [await self.heaps.stats.of(heap) for heap in heaps]
        return models.StatsOut(
            heaps=[
                one for stats in found
                for one in stats_to(stats, by_partition=query.by_partition, by_priority=query.by_priority)
            ]
        )  # fmt: skip

    # -- messages ----------------------------------------------------------

    async def peek(self, call: Call[models.PeekQuery, NoBody]) -> models.PeekedListOut:
        query, heap = call.query, await self._find(call.query.topic)
        if query.message_id:
            one = await self.heaps.peeking.one(heap, parse_id(query.message_id), payload=query.payload)
            return models.PeekedListOut(messages=[peeked_to(one, self.clock.wall_ms())])
        return await self._page(heap, State[query.state], query.limit, query.page_token, payload=query.payload)

    async def dead(self, call: Call[models.DlqQuery, NoBody]) -> models.PeekedListOut:
        query, heap = call.query, await self._find(call.path["topic"])
        return await self._page(heap, State.DEAD, query.limit, query.page_token, payload=query.payload)

    async def bury(self, call: Call[NoQuery, models.BuryIn]) -> models.CountOut:
        heap, given = await self._find(call.path["topic"]), call.body
        ids = _ids(given.message_ids)

        async def work() -> models.CountOut:
            moved = await self.heaps.dead_letters.bury(
                heap, ids, force=given.force, reason=given.reason, by=_by(call.caller)
            )
            return models.CountOut(count=str(moved.count), left=str(moved.left))

        return await self.gate.audited(call.caller, "heap.bury", heap.name, work)

    async def replay(self, call: Call[NoQuery, models.ReplayIn]) -> models.CountOut:
        heap, given = await self._find(call.path["topic"]), call.body
        ids = _some_or_all(given.message_ids, given.all)

        async def work() -> models.CountOut:
            moved = await self.heaps.dead_letters.replay(
                heap, ids, keep_time=given.keep_time, priority=given.priority, per_second=given.per_second,
                dry_run=given.dry_run, by=_by(call.caller),
            )  # fmt: skip
            return models.CountOut(count=str(moved.count), left=str(moved.left))

        return await self.gate.audited(call.caller, "dlq.replay", heap.name, work)

    async def drop(self, call: Call[NoQuery, models.DropIn]) -> models.CountOut:
        heap, given = await self._find(call.path["topic"]), call.body
        ids = _some_or_all(given.message_ids, given.all)
        if ids is None:
            await self._confirm(call.caller, "dlq.delete", heap, given.force, given.confirmation)

        async def work() -> models.CountOut:
            moved = await self.heaps.dead_letters.delete(heap, ids, by=_by(call.caller))
            return models.CountOut(count=str(moved.count), left=str(moved.left))

        return await self.gate.audited(call.caller, "dlq.delete", heap.name, work)

    # -- inside ------------------------------------------------------------

    async def _find(self, name: str) -> Heap:
        return await self.heaps.admin.find(name)

    def _told(self, heap: Heap) -> Reply:
        return Reply(value=heap_to(heap, self.durability), headers={"etag": f'"{heap.revision}"'})

    async def _page(self, heap: Heap, state: State, limit: int, token: str, *, payload: bool) -> models.PeekedListOut:
        page = await self.heaps.peeking.page(heap, state, limit=limit, token=token, payload=payload)
        wall_ms = self.clock.wall_ms()
        return models.PeekedListOut(
            messages=[peeked_to(one, wall_ms) for one in page.messages], next_page_token=page.next_token
        )

    async def _confirm(
        self, caller: HttpCaller, action: str, heap: Heap, force: bool, given: str, options: str = ""
    ) -> None:
        await self.gate.confirm(
            caller, action, target=heap.id, revision=heap.revision, given=given, force=force, options=options
        )


def _by(caller: HttpCaller) -> AskedBy:
    return AskedBy(actor=caller.actor, request=caller.request)


def _ids(texts: list[str]) -> list[MessageId]:
    if not texts:
        raise BadRequest("message_ids is empty")
    return [parse_id(text) for text in texts]


def _some_or_all(texts: list[str], everything: bool) -> list[MessageId] | None:
    """What is named, or None for all: one of the two is said."""
    if everything == bool(texts):
        raise BadRequest("name message_ids, or say all")
    return None if everything else _ids(texts)
