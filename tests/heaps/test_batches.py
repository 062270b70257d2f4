"""Batches over heaps of several domains: all or nothing, whoever dies at whatever step."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from dray.clock import SystemClock
from dray.errors import Unavailable, Unknown
from dray.heaps import batches
from dray.heaps.batch_keeper import BatchKeeper
from dray.heaps.errors import BadMessage, BatchAborted, BatchUndecided, HeapFull, TornBatch, UnknownHeap
from dray.heaps.policy import HeapPolicy
from dray.heaps.service import HeapMessage, HeapService
from dray.ids import SeededEntropy
from dray.log.memory import MemoryLog
from dray.machine.head import Genesis, founding
from dray.machine.heaps.batches import BatchWord, Decide, Finish
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.rows import State
from dray.machine.names import domain_of
from dray.objects.memory import MemoryObjects
from dray.replica.domains import Domains
from tests.heaps.stand import CALM, job
from tests.replica.domain import CLUSTER, replica_on

DOMAINS = (0, 1, 2)


class Fate:
    """When a broker dies: before or after so many of its proposals; or what a proposal meets instead."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.after = False
        self.dead = asyncio.Event()
        self.counted = 0
        self.meets: dict[int, Exception] = {}

    def dies(self, steps: int, *, after: bool) -> None:
        self.left, self.after, self.counted = steps, after, 0

    async def proposing(self, propose, commands):
        self.counted += 1
        number = self.counted
        if error := self.meets.pop(number, None):
            if isinstance(error, Unknown):
                await propose(*commands)
            raise error
        if self.left is not None and number > self.left:
            await self.die()
        if self.left == number and not self.after:
            await self.die()
        verdicts = await propose(*commands)
        if self.left == number:
            await self.die()
        return verdicts

    async def die(self):
        """Nothing is heard of it any more."""
        self.dead.set()
        await asyncio.Event().wait()


class FatedReplica:
    """A replica whose proposals go through a fate."""

    def __init__(self, inner, fate: Fate) -> None:
        self.inner, self.fate = inner, fate

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def propose(self, *commands):
        return await self.fate.proposing(self.inner.propose, commands)


class Side:
    """One broker of several domains."""

    def __init__(self, service, domains, fate, keepers) -> None:
        self.service, self.domains, self.fate, self.keepers = service, domains, fate, keepers

    async def heap(self, name):
        return await self.service.admin.find(name)

    async def send(self, *items):
        return await self.service.enqueue_across([(await self.heap(name), message) for name, message in items])

    async def there(self, name):
        """The payloads of a heap that a consumer could have."""
        page = await self.service.peeking.page(await self.heap(name), State.READY, limit=100)
        return sorted(bytes(one.body.payload) for one in page.messages)

    async def keep(self):
        """What any broker does each second, with what it knows by then."""
        await self.in_doubt()
        for keeper in self.keepers:
            await keeper.step()

    async def in_doubt(self):
        for _, replica in self.domains:
            await replica.sync()
        machines = [replica.machine for _, replica in self.domains]
        prepared = sum(len(shard.batches.all) for machine in machines for shard in machine.heaps)
        return prepared, sum(len(machine.batches.committed) for machine in machines)


@asynccontextmanager
async def side(logs, objects, name, **policy):
    async with AsyncExitStack() as stack:
        fate, replicas = Fate(), {}
        for domain, log in logs.items():
            replica = replica_on(MemoryLog(log.sequence), name, clock=SystemClock(), timing=CALM)
            await stack.enter_async_context(replica.running())
            await replica.open_session()
            replicas[domain] = FatedReplica(replica, fate)
        domains = Domains(replicas)
        service = HeapService(
            domains=domains, objects=objects, clock=SystemClock(), entropy=SeededEntropy(name), zone="a",
            policy=HeapPolicy(doubt_ms=0, overdue_ms=0, **policy),
        )  # fmt: skip
        await stack.enter_async_context(service.running())
        keepers = [one for work in service._upkeep.values() for one in work if isinstance(one, BatchKeeper)]
        yield Side(service, domains, fate, keepers)


async def new_logs():
    logs = {}
    for domain in DOMAINS:
        logs[domain] = MemoryLog()
        genesis = Genesis(cluster_id=CLUSTER, log_id=b"log-id-%d" % domain, domain=domain, domains=2, version=2)
        await logs[domain].append(founding(genesis, 1_700_000_000_000))
    return logs


@asynccontextmanager
async def two_sides(**policy):
    """Two brokers, and heaps `a` and `b` of different domains, and `a2` of the domain of `a`."""
    logs, objects = await new_logs(), MemoryObjects()
    async with side(logs, objects, "first", **policy) as first, side(logs, objects, "second") as second:
        wanted, number = {}, 0
        while len(wanted) < 3:
            number += 1
            heap = await first.service.admin.make(f"h{number}", mode=Mode.MIN, config=HeapConfig(max_messages=3))
            home = wanted.get("a")
            if home is None:
                wanted["a"] = heap
            elif domain_of(heap.shard) == domain_of(home.shard):
                wanted.setdefault("a2", heap)
            else:
                wanted.setdefault("b", heap)
        first.fate.counted = 0
        yield first, second, {name: heap.name for name, heap in wanted.items()}


async def test_a_batch_over_heaps_of_two_domains_is_there_whole_and_each_message_has_its_answer():
    """D-130, D-141, BA7"""
    async with two_sides() as (first, second, h):
        items = [(h["a"], job(b"1", dedup_key="1")), (h["b"], job(b"2", dedup_key="2")), (h["a"], job(b"3"))]
        taken = await first.send(*items)
        assert [one.duplicate for one in taken] == [False, False, False]
        assert len({one.id for one in taken}) == 3
        assert (await second.there(h["a"]), await second.there(h["b"])) == ([b"1", b"3"], [b"2"])
        again = await second.send(*items[:2])
        assert [(one.id, one.duplicate) for one in again] == [(one.id, True) for one in taken[:2]]
        mixed = await second.send((h["b"], job(b"2", dedup_key="2")), (h["a2"], job(b"4")))
        assert [one.duplicate for one in mixed] == [True, False]
        await asyncio.gather(*first.service._tasks)
        await second.keep()
        assert await second.in_doubt() == (0, 0)


@pytest.mark.parametrize("size", [10, 300_000])
async def test_large_bodies_of_a_batch_lie_in_objects_and_are_read(size):
    """D-142, L12"""
    async with two_sides() as (first, second, h):
        first_body, second_body = bytes(size), b"x" * size
        await first.send((h["a"], job(first_body)), (h["b"], job(second_body)))
        assert (await second.there(h["a"]), await second.there(h["b"])) == ([first_body], [second_body])


async def test_one_bad_message_is_named_by_its_index_and_nothing_is_stored():
    """D-140"""
    async with two_sides() as (first, second, h):
        good = job(b"good", dedup_key="good")
        with pytest.raises(TornBatch) as torn:
            await first.send((h["a"], good), (h["b"], HeapMessage(payload=b"", priority=1 << 63)))
        assert torn.value.facts["index"] == 1
        await first.send((h["b"], job(b"0")), (h["b"], job(b"1")), (h["b"], job(b"2")))
        with pytest.raises(HeapFull) as full:
            await first.send((h["a"], good), (h["a2"], job(b"x")), (h["b"], job(b"more")))
        assert (full.value.facts["index"], full.value.facts["which"]) == (2, "messages")
        gone = await first.heap(h["a2"])
        await first.service.admin.delete(gone)
        with pytest.raises(UnknownHeap) as unknown:
            await first.service.enqueue_across([(await first.heap(h["a"]), good), (gone, job(b"x"))])
        assert unknown.value.facts["index"] == 1
        with pytest.raises(BadMessage):
            await first.service.enqueue_across([])
        assert await second.there(h["a"]) == []
        assert await second.in_doubt() == (0, 0)
        (taken,) = await second.send((h["a"], good))
        assert not taken.duplicate, "BA4: what was given up is remembered by nobody"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
async def test_a_broker_that_dies_at_any_step_leaves_a_batch_whole_or_absent_and_a_repeat_makes_one_copy(steps, after):
    """D-301, D-130, D-131, D-132, D-136, D-137, D-138, BA1, BA5, BA6"""
    async with two_sides() as (first, second, h):
        items = [(h["a"], job(b"1", dedup_key="1")), (h["b"], job(b"2", dedup_key="2"))]
        first.fate.dies(steps, after=after)
        sending = asyncio.ensure_future(first.send(*items))
        await first.fate.dead.wait()
        told = sending.done()
        for _ in range(2):
            await second.keep()
        assert await second.in_doubt() == (0, 0), "nobody stays in doubt"
        found = (await second.there(h["a"]), await second.there(h["b"]))
        assert found in (([], []), ([b"1"], [b"2"])), "torn"
        assert found[0] or not told, "taken, and not there"
        committed = (steps, after) >= (3, True)
        assert bool(found[0]) == committed
        await second.send(*items)
        assert (await second.there(h["a"]), await second.there(h["b"])) == ([b"1"], [b"2"])
        sending.cancel()


async def aborts_without_asking(self, shard, batch, prepared):
    await self._replica.propose(Finish(shard=shard.id, batch=batch, commit=False, rows=len(prepared.slots)))


async def commits_what_is_prepared(self, batch):
    for domain, parts in batch.by_domain().items():
        with suppress(Unavailable):
            await self._prepare(batch, domain, parts)
    await self._decide(batch)
    await self._finish(batch, commit=True)


async def test_a_keeper_that_aborts_without_asking_is_found(monkeypatch):
    """D-138: the test above would see it."""
    monkeypatch.setattr(BatchKeeper, "_resolve", aborts_without_asking)
    again = test_a_broker_that_dies_at_any_step_leaves_a_batch_whole_or_absent_and_a_repeat_makes_one_copy
    with pytest.raises(AssertionError, match="torn"):
        await again(3, True)


async def test_a_commit_that_does_not_wait_for_all_parts_is_found(monkeypatch):
    """BA6: the test below would see it."""
    monkeypatch.setattr(batches.BatchCoordinator, "_attempt", commits_what_is_prepared)
    async with two_sides() as (first, second, h):
        first.fate.meets[2] = Unavailable("no")
        with pytest.raises(ValueError, match="shorter"):
            await first.send((h["a"], job(b"1")), (h["b"], job(b"2")))
        assert (await second.there(h["a"]), await second.there(h["b"])) == ([b"1"], []), "torn"


async def test_what_is_prepared_is_seen_by_nobody_and_its_repeat_has_to_wait():
    """D-134, D-135, D-139, BA2, BA3"""
    async with two_sides() as (first, second, h):
        items = [(h["a"], job(b"1", dedup_key="1")), (h["b"], job(b"2", dedup_key="2"))]
        first.fate.dies(3, after=False)
        sending = asyncio.ensure_future(first.send(*items))
        await first.fate.dead.wait()
        assert (await second.in_doubt())[0] == 2
        heap = await second.heap(h["a"])
        assert await second.there(h["a"]) == []
        assert await second.service.pop(heap, most=1, holder="c") == []
        stats = await second.service.stats.of(heap)
        assert (stats.backlog.ready, stats.backlog.delayed) == (0, 0)
        for again in (second.send(*items), second.send(items[0]), second.service.enqueue(heap, items[0][1])):
            with pytest.raises(BatchUndecided):
                await again
        await second.keep()
        assert [one.duplicate for one in await second.send(*items)] == [False, False]
        sending.cancel()


async def test_a_broker_that_sleeps_over_its_batch_is_told_that_others_gave_it_up():
    """D-138, D-139, BA1, BA7"""
    async with two_sides() as (first, second, h):
        awake = asyncio.Event()
        prepare = batches.BatchCoordinator._prepare
        coordinator = first.service._batches

        async def slowly(batch, domain, parts):
            done = await prepare(coordinator, batch, domain, parts)
            await awake.wait()
            return done

        coordinator._prepare = slowly
        sending = asyncio.ensure_future(first.send((h["a"], job(b"1")), (h["b"], job(b"2"))))
        while (await second.in_doubt())[0] < 2:
            await asyncio.sleep(0.01)
        await second.keep()
        awake.set()
        with pytest.raises(BatchAborted):
            await sending
        assert (await second.there(h["a"]), await second.there(h["b"])) == ([], [])
        assert await second.in_doubt() == (0, 0)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("error", [Unavailable("no"), Unknown("who knows")], ids=["refused", "unknown"])
async def test_a_part_that_is_not_known_to_be_prepared_ends_the_batch_and_nothing_was_taken(step, error):
    """E1, BA6, BA7"""
    async with two_sides() as (first, second, h):
        first.fate.meets[step] = error
        with pytest.raises(Unavailable):
            await first.send((h["a"], job(b"1", dedup_key="1")), (h["b"], job(b"2", dedup_key="2")))
        await second.keep()
        assert await second.in_doubt() == (0, 0)
        assert (await second.there(h["a"]), await second.there(h["b"])) == ([], [])


async def test_a_decision_whose_answer_is_lost_is_asked_for_again():
    """E1, BA1, BA7"""
    async with two_sides() as (first, second, h):
        first.fate.meets[3] = Unknown("who knows")
        taken = await first.send((h["a"], job(b"1")), (h["b"], job(b"2")))
        assert len(taken) == 2
        assert (await second.there(h["a"]), await second.there(h["b"])) == ([b"1"], [b"2"])


async def test_a_commit_that_comes_an_hour_late_is_refused_and_nothing_is_taken(monkeypatch):
    """BA1: by then an abort may be forgotten."""
    async with two_sides() as (first, second, h):
        monkeypatch.setattr("dray.machine.heaps.batches.COMMIT_MS", 0)
        with pytest.raises(Unavailable):
            await first.send((h["a"], job(b"1")), (h["b"], job(b"2")))
        assert (await second.there(h["a"]), await second.there(h["b"])) == ([], [])
        assert await second.in_doubt() == (0, 0)


async def test_more_batches_at_once_than_a_broker_carries_are_refused(monkeypatch):
    """D-142"""
    async with two_sides() as (first, _, h):
        monkeypatch.setattr(batches, "MAX_UNDER_WAY", 0)
        with pytest.raises(HeapFull):
            await first.send((h["a"], job(b"1")), (h["b"], job(b"2")))


async def test_a_heap_that_is_deleted_under_a_batch_keeps_nobody_in_doubt():
    """BA5"""
    async with two_sides() as (first, second, h):
        first.fate.dies(3, after=True)
        sending = asyncio.ensure_future(first.send((h["a"], job(b"1")), (h["b"], job(b"2"))))
        await first.fate.dead.wait()
        await second.service.admin.delete(await second.heap(h["b"]))
        await second.keep()
        assert await second.in_doubt() == (0, 0)
        assert await second.there(h["a"]) == [b"1"]
        sending.cancel()


async def test_a_commit_is_not_forgotten_while_a_part_has_not_heard_of_it():
    """BA5, D-138"""
    async with two_sides() as (first, second, h):
        first.fate.dies(4, after=False)
        sending = asyncio.ensure_future(first.send((h["a"], job(b"1")), (h["b"], job(b"2"))))
        await first.fate.dead.wait()
        home = domain_of((await second.heap(h["a"])).shard)
        keeper = next(one for one in second.keepers if one._domain == home)
        await keeper.step()
        assert await second.in_doubt() == (1, 1), "the other domain has not heard"
        (batch,) = second.domains[home].machine.batches.committed
        await second.domains[home].propose(Decide(batch=batch, begun_ms=0, word=BatchWord.ABORT))
        await second.keep()
        await second.keep()
        assert await second.in_doubt() == (0, 0)
        assert (await second.there(h["a"]), await second.there(h["b"])) == ([b"1"], [b"2"])
        sending.cancel()
