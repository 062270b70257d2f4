"""Looking at messages, counting them, and what operators do to the dead."""

import asyncio
from collections import Counter

import pytest
from prometheus_client import generate_latest

from dray.clock import ManualClock
from dray.heaps.errors import (
    BadHeap,
    BadMessage,
    BadMessageId,
    BadPage,
    LeaseLost,
    MessageGone,
    MessageLeased,
    UnknownHeap,
)
from dray.heaps.ids import MessageId
from dray.heaps.producing import TakenMessage
from dray.heaps.search import SLICE, find_messages
from dray.heaps.service import Settlement
from dray.heaps.settling import SettleOne
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.rows import State
from dray.objects.memory import MemoryObjects
from dray.replica.domains import Domains
from dray.telemetry import REGISTRY
from tests.replica.domain import new_log

from .stand import LONG_S, Stand, job, one, stand, two


async def pages(broker: Stand, heap, state=State.READY, *, limit=7, **more):
    """All of them, page by page."""
    found, token = [], ""
    while True:
        page = await broker.service.peeking.page(heap, state, limit=limit, token=token, **more)
        assert len(page.messages) <= limit
        found += page.messages
        token = page.next_token
        if not token:
            return found


async def kill(broker: Stand, heap, count: int) -> list[MessageId]:
    """Let the best messages die."""
    found = await broker.take(heap, count)
    items = [SettleOne(kind=Settlement.REJECT, token=one.token, note=f"poison {at}") for at, one in enumerate(found)]
    outcomes = await broker.service.settle_many(heap, items)
    assert all(told.dead for told in outcomes)
    return [delivery.id for delivery in found]


async def test_pages_of_ready_messages_come_best_first_and_change_nothing():
    """PK1, D-202"""
    async with two() as (first, second):
        heap = await first.service.admin.make("jobs", mode=Mode.MAX)
        same = await second.service.admin.find("jobs")
        taken = await asyncio.gather(
            *(first.service.enqueue(heap, job(b"x" * n * 997, priority=n % 5)) for n in range(40))
        )
        seen = await pages(second, same)
        assert seen == await pages(second, same, limit=40)
        assert [m.row.priority for m in seen] == sorted((n % 5 for n in range(40)), reverse=True)
        assert {m.id for m in seen} == {t.id for t in taken}
        assert {m.id: m.body.payload for m in seen} == {t.id: b"x" * n * 997 for n, t in enumerate(taken)}
        assert all(m.body is None for m in await pages(second, same, payload=False))
        popped = []
        while len(popped) < 40:
            popped += await second.take(same, 40 - len(popped))
        assert [d.id for d in popped] == [m.id for m in seen], "as they were shown"
        assert await pages(second, same) == []


async def test_a_page_goes_on_behind_the_last_one_whatever_came_or_went_meanwhile():
    """PK1"""
    async with one() as (broker, heap):
        for n in range(30):
            await broker.service.enqueue(heap, job(priority=10 + n))
        page = await broker.service.peeking.page(heap, limit=10)
        gone = {d.id for d in await broker.take(heap, 5)}
        await asyncio.gather(*(broker.service.enqueue(heap, job(priority=0)) for _ in range(25)))
        rest = await broker.service.peeking.page(heap, limit=30, token=page.next_token)
        assert [m.row.priority for m in page.messages + rest.messages] == list(range(10, 40))
        assert gone < {m.id for m in page.messages}


async def test_every_state_can_be_looked_at_and_no_page_shows_a_token():
    """D-036, PK1, PK2, D-177, D-202"""
    clock = ManualClock()
    async with stand(await new_log(version=2), MemoryObjects(), clock=clock) as broker:
        heap = await broker.service.admin.make("jobs", mode=Mode.MIN)
        for n in range(20):
            await broker.service.enqueue(heap, job(bytes([n]), priority=n, delay_ms=1_000 * (20 - n) if n >= 15 else 0))
            clock.advance(7)
        dead = await kill(broker, heap, 5)
        leased = await broker.take(heap, 5, holder="worker-7")
        tokens = {delivery.token.nonce for delivery in leased}
        held = await pages(broker, heap, State.LEASED, limit=2)
        assert {m.holder for m in held} == {"worker-7"}
        assert {m.id for m in held} == {d.id for d in leased}
        assert {m.lease_ms for m in held} == {30_000}
        assert not any(nonce in repr(held).encode("latin-1", "replace") for nonce in tokens)
        buried = await pages(broker, heap, State.DEAD, limit=2)
        assert [m.id for m in buried] == dead
        assert [m.last_error for m in buried] == [f"poison {n}" for n in range(5)]
        assert all(m.dead_ms >= m.row.enqueued_ms > 0 for m in buried)
        assert [m.row.attempts for m in buried] == [1] * 5
        waiting = await pages(broker, heap, State.DELAYED, limit=2)
        assert [m.row.priority for m in waiting] == [19, 18, 17, 16, 15], "the soonest first"
        assert all(m.not_before_ms > m.row.enqueued_ms for m in waiting)
        assert [m.row.priority for m in await pages(broker, heap)] == [10, 11, 12, 13, 14]
        shown = await broker.service.peeking.one(heap, dead[3])
        assert (shown.state, shown.last_error, shown.body.payload) == (State.DEAD, "poison 3", bytes([3]))
        with pytest.raises(MessageGone):
            await broker.service.peeking.one(heap, dead[3]._replace(seq=99))


async def test_dead_letters_of_one_moment_are_each_on_one_page():
    clock = ManualClock()
    async with stand(await new_log(version=2), MemoryObjects(), clock=clock) as broker:
        heap = await broker.service.admin.make("jobs", mode=Mode.MIN)
        for _ in range(25):
            await broker.service.enqueue(heap, job())
        dead = await kill(broker, heap, 25)
        for limit in (1, 3, 25, 26):
            shown = [m.id for m in await pages(broker, heap, State.DEAD, limit=limit)]
            assert (len(shown), set(shown)) == (25, set(dead))
        page = await broker.service.peeking.page(heap, State.DEAD, limit=10)
        await broker.service.dead_letters.delete(heap, [page.messages[-1].id, page.messages[0].id])
        rest = await broker.service.peeking.page(heap, State.DEAD, limit=100, token=page.next_token)
        assert len(rest.messages) == 15


@pytest.mark.parametrize("token", ["x", "ü", "AAAA", "kwHEAAA=", "kwTEGAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEA"])
async def test_a_page_that_is_none_of_ours_is_refused(token):
    async with one() as (broker, heap):
        with pytest.raises(BadPage):
            await broker.service.peeking.page(heap, token=token)
        with pytest.raises(BadPage):
            await broker.service.peeking.page(heap, limit=0)
        with pytest.raises(BadPage):
            await broker.service.peeking.page(heap, State.FREE)


async def test_a_message_is_found_by_its_id_behind_many_slices_of_others():
    """D-041"""
    async with one() as (broker, heap):
        count = 2 * SLICE + 50
        taken = []
        for start in range(0, count, 1_000):
            messages = [job(producer="p", epoch=1, seq=start + n) for n in range(min(1_000, count - start))]
            taken += await broker.service.enqueue_batch(heap, messages)
        domains = Domains({0: broker.replica})
        wanted = [taken[at].id for at in (0, SLICE - 1, SLICE, count - 1)]
        found = await find_messages(domains, heap, [*wanted, wanted[0]._replace(domain=3)])
        rows = broker.shard(heap).messages.rows
        assert list(found) == wanted
        assert [rows.read(ref.slot).seq for ref in found.values()] == [0, SLICE - 1, SLICE, count - 1]
        assert all(rows.arrival(ref.slot) == ref.arrival for ref in found.values())
        with pytest.raises(BadMessageId):
            await find_messages(domains, heap, [one.id for one in taken[:1_001]])


async def test_statistics_are_those_of_the_messages():
    """D-195, D-261"""
    async with one() as (broker, _):
        heap = await broker.service.admin.make("four", mode=Mode.MAX, partitions=4)
        sent = [
            job(bytes(n), priority=n % 3, partition_key=str(n), delay_ms=60_000 if n > 35 else 0) for n in range(40)
        ]
        taken = [await broker.service.enqueue(heap, message) for message in sent]
        again = await broker.service.enqueue(heap, job(dedup_key="k"))
        assert (await broker.service.enqueue(heap, job(dedup_key="k"))).id == again.id
        await kill(broker, heap, 3)
        held = await broker.take(heap, 6)
        for delivery in held[:2]:
            await broker.ack(heap, delivery)
        stats = await broker.service.stats.of(heap)
        backlog, totals = stats.backlog, stats.totals
        assert (backlog.ready, backlog.delayed, backlog.leased, backlog.dead) == (28, 4, 4, 3)
        told = (totals.enqueued, totals.duplicates, totals.granted, totals.acked, totals.failed, totals.died)
        assert told == (41, 1, 9, 2, 3, 3)
        assert list(stats.ready_by_priority) == [2, 1, 0], "the best first"
        assert sum(stats.ready_by_priority.values()) == 28
        assert 0 <= stats.oldest_ready_s < LONG_S
        assert backlog.oldest_ready_ms > 0
        partitions = stats.partitions.values()
        assert list(stats.partitions) == [0, 1, 2, 3]
        for name in ("ready", "delayed", "leased", "dead", "payload_bytes"):
            assert sum(getattr(part, name) for part in partitions) == getattr(backlog, name)
        assert max(part.oldest_ready_ms for part in partitions) >= backlog.oldest_ready_ms
        left = {m.id for m in await pages(broker, heap)}
        by_partition = Counter(one.partition for one in taken if one.id in left)
        by_partition[again.partition] += again.id in left
        assert by_partition == Counter({n: part.ready for n, part in stats.partitions.items() if part.ready})


async def test_an_empty_heap_has_no_oldest_message():
    async with one() as (broker, heap):
        stats = await broker.service.stats.of(heap)
        assert (stats.oldest_ready_s, stats.backlog.ready, stats.ready_by_priority) == (0.0, 0, {})


async def test_metrics_tell_each_heap_and_forget_the_deleted():
    """D-260, D-261"""
    async with one() as (broker, _):
        gauges = broker.service._gauges
        heap = await broker.service.admin.make("metered", mode=Mode.MIN, partitions=2)
        for n in range(10):
            await broker.service.enqueue(heap, job(partition_key=str(n)))
        for _ in range(2):
            await gauges.step()
        await kill(broker, heap, 2)
        (delivery,) = await broker.take(heap)
        await broker.ack(heap, delivery)
        await gauges.step()
        value = REGISTRY.get_sample_value
        labels = {"heap": "metered"}
        assert value("dray_heap_ready", labels) == 7
        assert value("dray_heap_dlq", labels) == 2
        assert value("dray_heap_enqueued_total", labels) == 10, "told three times, counted once"
        assert value("dray_heap_acked_total", labels) == 1
        assert value("dray_heap_retries_total", labels) == 2
        backlog = [value("dray_heap_backlog", labels | {"partition": str(n)}) for n in range(2)]
        assert sum(backlog) == 7
        await broker.service.admin.delete(heap)
        await gauges.step()
        assert b'heap="metered"' not in generate_latest(REGISTRY)


async def test_dead_letters_are_replayed_one_some_or_all_and_keep_what_they_are():
    """D-174, D-175, D-176"""
    async with one() as (broker, heap):
        letters = broker.service.dead_letters
        for n in range(12):
            await broker.service.enqueue(heap, job(bytes([n]), priority=n))
        dead = await kill(broker, heap, 12)
        assert (await letters.replay(heap, None, dry_run=True)).count == 12
        assert (await letters.replay(heap, dead[5:6])).count == 1
        some = await letters.replay(heap, [*dead[8:10], dead[0]._replace(seq=77)], priority=-3, keep_time=True)
        assert (some.count, some.left) == (2, 1)
        found = await broker.take(heap, 12)
        assert [(d.id, d.message.priority, d.body.payload) for d in found] == [
            (dead[8], -3, bytes([8])), (dead[9], -3, bytes([9])), (dead[5], 5, bytes([5])),
        ]  # fmt: skip
        assert {d.message.attempts for d in found} == {0}
        with pytest.raises(MessageGone):
            await letters.replay(heap, dead[5:6])
        with pytest.raises(BadMessage):
            await letters.replay(heap, None, priority=1 << 63)
        assert (await letters.delete(heap, dead[:2])).count == 2
        assert (await letters.delete(heap, None, dry_run=True)).count == 7
        assert (await letters.delete(heap, None)).count == 7
        assert await pages(broker, heap, State.DEAD) == []
        with pytest.raises(MessageGone):
            await letters.delete(heap, dead[:2])


async def test_a_replay_is_as_slow_as_it_was_asked_to_be():
    """Twenty a second: two in each slice, a tenth of a second apart."""
    clock = ManualClock()
    async with stand(await new_log(version=2), MemoryObjects(), clock=clock) as broker:
        heap = await broker.service.admin.make("jobs", mode=Mode.MIN)
        for _ in range(11):
            await broker.service.enqueue(heap, job())
        await kill(broker, heap, 11)
        counts, begun_ns = broker.shard(heap).messages.rows.counts, clock.boot_ns()
        work = asyncio.create_task(broker.service.dead_letters.replay(heap, None, per_second=20))
        while not work.done():
            for _ in range(100):
                await asyncio.sleep(0)
                spent_ms = (clock.boot_ns() - begun_ns) // 1_000_000
                assert counts[State.READY] <= 2 * (spent_ms // 100 + 1)
            clock.advance(50)
        assert (await work).count == 11


async def test_bury_takes_what_waits_and_what_is_leased_only_by_force():
    """D-178"""
    async with one() as (broker, heap):
        letters = broker.service.dead_letters
        waiting = await broker.service.enqueue(heap, job(delay_ms=60_000))
        ready = await broker.service.enqueue(heap, job(priority=9))
        held = await broker.service.enqueue(heap, job(priority=1))
        (delivery,) = await broker.take(heap)
        assert delivery.id == held.id
        with pytest.raises(MessageLeased):
            await letters.bury(heap, [held.id])
        moved = await letters.bury(heap, [waiting.id, ready.id, held.id], reason="no use " * 99)
        assert (moved.count, moved.left) == (2, 1)
        assert (await letters.bury(heap, [ready.id])).count == 1, "again is harmless"
        assert (await letters.bury(heap, [held.id], force=True)).count == 1
        with pytest.raises(LeaseLost):
            await broker.ack(heap, delivery)
        shown = await pages(broker, heap, State.DEAD)
        assert {m.id for m in shown} == {waiting.id, ready.id, held.id}
        assert shown[0].last_error.startswith("no use no use")
        with pytest.raises(MessageGone):
            await letters.bury(heap, [held.id._replace(number=99)])


async def test_many_tokens_are_settled_in_one_call_and_each_is_told_for_itself():
    """D-083, D-086, D-201"""
    async with one() as (broker, heap):
        for n in range(6):
            await broker.service.enqueue(heap, job(priority=n, max_retries=0 if n == 3 else 5))
        a, b, c, d, e, f = await broker.take(heap, 6)
        items = [
            SettleOne(kind=Settlement.ACK, token=a.token),
            SettleOne(kind=Settlement.NACK, token=b.token, duration_ms=60_000, note="later"),
            SettleOne(kind=Settlement.RELEASE, token=c.token),
            SettleOne(kind=Settlement.NACK, token=d.token, note="dies"),
            SettleOne(kind=Settlement.RENEW, token=e.token, duration_ms=100_000),
            SettleOne(kind=Settlement.ACK, token=f.token._replace(nonce=bytes(16))),
            SettleOne(kind=Settlement.ACK, token=f.token._replace(arrival=99)),
        ]
        for again in (False, True):
            told = await broker.service.settle_many(heap, items)
            assert [one.done for one in told] == [True] * 5 + [False] * 2
            assert isinstance(told[5].error, LeaseLost)
            assert isinstance(told[6].error, MessageGone)
            assert 99_000 <= told[4].lease_ms <= 100_000
            if not again:
                assert told[3].dead
                assert told[1].again_ms == 60_000
                assert told[2].again_ms == 0
        assert (await pages(broker, heap, State.DELAYED))[0].last_error == "later"
        assert await broker.service.settle_many(heap, []) == []
        with pytest.raises(BadMessage):
            await broker.service.settle_many(heap, [SettleOne(kind=Settlement.EXTEND, token=e.token)])


async def test_a_token_of_another_message_is_seen():
    """D-201"""
    async with two() as (first, second):
        heap = await first.service.admin.make("jobs", mode=Mode.MIN)
        same = await second.service.admin.find("jobs")
        await first.service.enqueue(heap, job())
        other = await first.service.enqueue(heap, job())
        (delivery,) = await first.take(heap)
        await second.service.check_names(same, delivery.id, delivery.token)
        with pytest.raises(LeaseLost):
            await second.service.check_names(same, other.id, delivery.token)
        await first.ack(heap, delivery)
        await second.service.check_names(same, delivery.id, delivery.token)  # it is gone: the ack tells


async def test_messages_of_one_call_are_taken_each_for_itself():
    """D-197, D-225"""
    async with one() as (broker, heap):
        await broker.service.admin.alter(heap, HeapConfig(max_messages=3))
        told = await broker.service.enqueue_each(
            heap, [job(b"a"), job(b"{", json=True), job(b"x" * 50_000), job(producer="p", seq=1), job(b"too many")]
        )
        assert [type(one).__name__ for one in told] == [
            "TakenMessage", "BadMessage", "TakenMessage", "TakenMessage", "HeapFull",
        ]  # fmt: skip
        assert told[4].facts["which"] == "messages"
        assert len({one.id for one in told if isinstance(one, TakenMessage)}) == 3
        assert await broker.service.enqueue_each(heap, []) == []


async def test_a_message_that_finds_no_room_in_memory_goes_to_an_object():
    """HB1, HL4"""
    async with one(inline_most_bytes=64 << 20, inline_turn_bytes=1 << 20, inline_max_bytes=1 << 20) as (broker, heap):
        while broker.replica.machine.heaps.inline.used < (16 << 20) - 200_000:
            await broker.service.enqueue(heap, job(bytes(190_000)))
        before = len(broker.shard(heap).messages.rows)
        told = await broker.service.enqueue_each(heap, [job(bytes(80_000)) for _ in range(7)])
        assert all(isinstance(one, TakenMessage) for one in told)
        assert broker.replica.machine.heaps.inline.used <= 16 << 20
        assert len(broker.shard(heap).messages.rows) == before + 7


async def test_a_pop_takes_nothing_that_is_worse_than_it_wants():
    async with one() as (broker, heap):
        for n in range(10):
            await broker.service.enqueue(heap, job(priority=n))
        found = await broker.service.pop(heap, most=10, holder="c", worst=3, visibility_ms=5_000)
        assert [d.message.priority for d in found] == [0, 1, 2, 3]
        assert max(d.lease_ms for d in found) <= 5_000
        for bad in ({"most": 0}, {"most": 1, "visibility_ms": 10}, {"most": 1, "worst": 1 << 63}):
            with pytest.raises(BadMessage):
                await broker.service.pop(heap, holder="c", **bad)
        with pytest.raises(BadMessage):
            await broker.service.pop(heap, most=1, holder="c" * 300)


async def test_what_was_never_delivered_is_ready_again_after_a_clean_stop():
    """HL1, D-104: a consumer that never looked, and one whose grant was on its way."""
    log = await new_log(version=2)
    objects = MemoryObjects()
    async with stand(log, objects, "broker-2") as other:
        async with stand(log, objects) as broker:
            heap = await broker.service.admin.make("jobs", mode=Mode.MIN)
            await asyncio.gather(*(broker.service.enqueue(heap, job()) for _ in range(20)))
            idle = broker.service.consumer(heap, holder="never looks")
            idle.add_credits(5)
            taken = broker.service.consumer(heap, holder="cut off")
            taken.add_credits(3)
            got = await taken.take(LONG_S)
            while len(got) < 3:
                got += await taken.take(LONG_S)
            await broker.service.give_back(heap, got)
            late = broker.service.consumer(heap, holder="late")
            late.add_credits(4)
            await asyncio.sleep(0)
        assert idle.closed
        assert await idle.take(LONG_S) == []
        await other.replica.sync()
        same = await other.service.admin.find("jobs")
        counts = other.shard(same).messages.rows.counts
        assert (counts[State.READY], counts[State.LEASED]) == (20, 0)
        assert {m.row.attempts for m in await pages(other, same)} == {0}


async def test_heaps_are_listed_by_name_in_pages():
    """D-194"""
    async with one() as (broker, _):
        for name in ("b-2", "b-1", "a", "b-3"):
            await broker.service.admin.make(name, mode=Mode.MIN, replication_factor=3)
        names = [heap.name for heap in await broker.service.admin.page(prefix="b-")]
        assert names == ["b-1", "b-2", "b-3"]
        assert [heap.name for heap in await broker.service.admin.page(after="b-1", limit=2)] == ["b-2", "b-3"]
        for bad in ({"partitions": 0}, {"partitions": 5_000}, {"replication_factor": 4}, {"config": HeapConfig(k=0)}):
            with pytest.raises(BadHeap):
                await broker.service.admin.make("bad", mode=Mode.MIN, **bad)


async def test_a_heap_that_was_deleted_is_unknown_to_everybody():
    """D-192, D-223"""
    async with one() as (broker, heap):
        taken = await broker.service.enqueue(heap, job())
        await broker.service.admin.delete(heap)
        service = broker.service
        for work in (
            service.peeking.page(heap), service.peeking.one(heap, taken.id), service.stats.of(heap),
            service.dead_letters.replay(heap, None), service.dead_letters.purge(heap),
            service.dead_letters.bury(heap, [taken.id]), service.pop(heap, most=1, holder="c"),
        ):  # fmt: skip
            with pytest.raises(UnknownHeap):
                await work
