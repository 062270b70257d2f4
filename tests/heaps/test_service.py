"""Heaps through brokers: enqueue, pop, settle, with the real log, machine and replica."""

import asyncio

import pytest

from dray import telemetry
from dray.errors import Unavailable, Unknown
from dray.heaps.errors import (
    BadHeap,
    BadMessage,
    HeapAlteredMeanwhile,
    HeapExists,
    HeapFull,
    LeaseLost,
    MessageGone,
    UnknownHeap,
)
from dray.heaps.service import Settlement
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.rows import State
from dray.objects.memory import MemoryObjects
from dray.objects.port import StoreUnavailable
from dray.replica.writer import Timing
from tests.replica.domain import MoodyLog, new_log

from .stand import LONG_S, job, one, stand, two


async def test_a_message_goes_in_through_one_broker_out_through_another_and_is_acked_at_the_first():
    """HL2, D-034, D-083"""
    async with two() as (first, second):
        heap = await first.service.admin.make("jobs", mode=Mode.MAX)
        payloads = [b"", b"\0\xff", b"x" * 100_000]
        taken = [
            await first.service.enqueue(heap, job(payload, priority=at, headers={"n": str(at)}))
            for at, payload in enumerate(payloads)
        ]
        same = await second.service.admin.find("jobs")
        found = await second.take(same, 3)
        assert [delivery.body.payload for delivery in found] == payloads[::-1]
        assert [delivery.id for delivery in found] == [one.id for one in reversed(taken)]
        assert found[0].body.headers == {"n": "2"}
        for delivery in found:
            await first.ack(heap, delivery)
            await second.ack(same, delivery)  # again: harmless
        assert len(first.shard(heap).messages.rows) == 0
        with pytest.raises(MessageGone):
            await first.service.settle(heap, Settlement.ACK, found[0].token._replace(arrival=99))
        with pytest.raises(LeaseLost):
            await first.service.settle(heap, Settlement.NACK, found[0].token)


async def test_a_waiting_consumer_gets_a_message_in_the_very_entry_that_enqueued_it():
    """HL2"""
    async with one() as (broker, heap):
        consumer = broker.service.consumer(heap, holder="c")
        consumer.add_credits(5)
        await asyncio.sleep(0.05)
        before = broker.replica.machine.position
        await broker.service.enqueue(heap, job())
        (delivery,) = await consumer.take(LONG_S)
        assert broker.replica.machine.position == before + 1
        await broker.ack(heap, delivery)


async def test_calls_that_wait_while_an_entry_is_in_flight_share_the_next():
    """HL4"""
    async with one() as (broker, heap):
        before = broker.replica.machine.position
        taken = await asyncio.gather(*(broker.service.enqueue(heap, job(priority=n)) for n in range(500)))
        assert len({one.id for one in taken}) == 500
        assert broker.replica.machine.position <= before + 10
        assert [d.message.priority for d in await broker.take(heap, 100)] == list(range(100))


async def test_deliveries_never_exceed_the_credits_and_a_close_gives_back_what_was_not_taken():
    """HL1, D-101, D-102, D-103, D-104"""
    async with one() as (broker, heap):
        await asyncio.gather(*(broker.service.enqueue(heap, job()) for _ in range(50)))
        idle = broker.service.consumer(heap, holder="idle")
        consumer = broker.service.consumer(heap, holder="c")
        got = 0
        for credits in (3, 1, 7):
            consumer.add_credits(credits)
            for _ in range(credits):
                if got < sum((3, 1, 7)[: (3, 1, 7).index(credits) + 1]):
                    got += len(await consumer.take(LONG_S))
            assert got == sum((3, 1, 7)[: (3, 1, 7).index(credits) + 1])
            assert broker.shard(heap).messages.rows.counts[State.LEASED] == got
        consumer.add_credits(9)
        while not consumer.busy and broker.shard(heap).messages.rows.counts[State.LEASED] == got:
            await asyncio.sleep(0.01)
        while consumer.busy:
            await asyncio.sleep(0.01)
        await broker.service.close(consumer)
        assert broker.shard(heap).messages.rows.counts[State.LEASED] == got
        assert await idle.take(0.01) == []
        again = await broker.take(heap, 50, holder="other")
        assert {delivery.message.attempts for delivery in again} == {0}


async def test_who_has_one_credit_is_not_starved_by_who_has_thousands():
    """D-106"""
    async with one() as (broker, heap):
        greedy, modest = broker.service.consumer(heap, holder="g"), broker.service.consumer(heap, holder="m")
        greedy.add_credits(5_000)
        modest.add_credits(1)
        await asyncio.gather(*(broker.service.enqueue(heap, job()) for _ in range(20)))
        assert len(await modest.take(LONG_S)) == 1


async def test_nothing_is_said_to_be_there_after_a_sync():
    """HL3"""
    async with two() as (first, second):
        heap = await first.service.admin.make("jobs", mode=Mode.MIN)
        same = await second.service.admin.find("jobs")
        assert await second.take(same, seconds=0) == []
        for _ in range(20):
            await first.service.enqueue(heap, job())
            (delivery,) = await second.take(same, seconds=0)
            await second.ack(same, delivery)


async def test_a_repeat_of_the_same_producer_epoch_and_sequence_is_the_same_message_at_any_broker():
    """D-110, D-111, D-117, D-120"""
    async with two() as (first, second):
        heap = await first.service.admin.make("jobs", mode=Mode.MIN, partitions=8)
        same = await second.service.admin.find("jobs")
        once = await first.service.enqueue(heap, job(producer="p", epoch=1, seq=7, partition_key="a"))
        again = await second.service.enqueue(same, job(producer="p", epoch=1, seq=7, partition_key="b"))
        assert (once.duplicate, again.duplicate, once.id) == (False, True, again.id)
        other = await second.service.enqueue(same, job(producer="p", epoch=2, seq=7))
        by_key = [await second.service.enqueue(same, job(dedup_key="p")) for _ in range(2)]
        assert not other.duplicate
        assert [taken.duplicate for taken in by_key] == [False, True]
        together = await asyncio.gather(*(b.service.enqueue(heap, job(dedup_key="k")) for b in (first, second) * 5))
        assert len({taken.id for taken in together}) == 1
        assert sum(not taken.duplicate for taken in together) == 1


async def test_an_unknown_outcome_is_told_so_and_the_repeat_settles_it():
    """HL4, E1, D-132"""
    inner = await new_log(version=2)
    log = MoodyLog(inner)
    hasty = Timing(ttl_ms=60_000, keepalive_ms=20_000, settle_ms=300)
    async with stand(log, MemoryObjects(), timing=hasty) as broker:
        heap = await broker.service.admin.make("jobs", mode=Mode.MIN)
        log.refuse = 1
        outcomes = []
        for _ in range(50):
            try:
                outcomes.append(await broker.service.enqueue(heap, job(dedup_key="once")))
                break
            except (Unavailable, Unknown) as error:
                outcomes.append(error)
                await asyncio.sleep(0.05)
        log.lose_replies = 1
        again = await broker.service.enqueue(heap, job(dedup_key="once"))
        assert again.duplicate
        assert len(broker.shard(heap).messages.rows) == 1


async def test_a_batch_is_taken_whole_or_not_at_all():
    """D-130, D-140, D-142"""
    async with one() as (broker, heap):
        taken = await broker.service.enqueue_batch(heap, [job(priority=n) for n in range(10)])
        assert len({one.id for one in taken}) == 10
        large = [job(b"x" * 50_000), job(b"y" * 50_000)]
        await broker.service.enqueue_batch(heap, large)
        await broker.service.admin.alter(heap, HeapConfig(max_messages=13))
        with pytest.raises(HeapFull) as full:
            await broker.service.enqueue_batch(heap, [job(), job(), job()])
        assert (full.value.facts["index"], full.value.facts["which"]) == (1, "messages")
        assert len(broker.shard(heap).messages.rows) == 12
        with pytest.raises(BadMessage):
            await broker.service.enqueue_batch(heap, [job()] * 1_001)


@pytest.mark.parametrize(
    "bad",
    [
        {"payload": b"x" * ((1 << 20) + 1)}, {"priority": 1 << 63}, {"seq": 1 << 36, "producer": "p"},
        {"producer": "p", "dedup_key": "k"}, {"dedup_key": "k" * 2_000}, {"headers": {"h": "x" * 20_000}},
        {"max_retries": 40_000}, {"delay_ms": -1}, {"payload": b"{", "json": True},
    ],
    ids=lambda bad: next(iter(bad)),
)  # fmt: skip
async def test_a_message_that_can_never_be_taken_is_refused_and_nothing_is_stored(bad):
    """D-022, D-032, D-035"""
    async with one() as (broker, heap):
        with pytest.raises(BadMessage):
            await broker.service.enqueue(heap, job(**bad))
        assert broker.shard(heap).next_arrival == 1


async def test_a_heap_is_made_altered_and_deleted_for_its_caller_when_its_shard_knows():
    """HA1, HA2, D-191, D-192, D-193"""
    async with two() as (first, second):
        heap = await first.service.admin.make("jobs", mode=Mode.MIN)
        with pytest.raises(HeapExists):
            await second.service.admin.make("jobs", mode=Mode.MAX)
        with pytest.raises(BadHeap):
            await second.service.admin.make("no/such name", mode=Mode.MAX)
        await second.replica.sync()
        await second.service.admin.alter(heap, HeapConfig(max_retries=0), expected=0)
        assert second.shard(heap).messages.config.max_retries == 0
        with pytest.raises(HeapAlteredMeanwhile):
            await first.service.admin.alter(heap, HeapConfig(), expected=0)
        await first.service.enqueue(heap, job())
        await second.service.admin.delete(heap)
        with pytest.raises(UnknownHeap):
            await first.service.admin.find("jobs")
        with pytest.raises(UnknownHeap):
            await first.service.enqueue(heap, job())
        again = await first.service.admin.make("jobs", mode=Mode.MAX)
        assert again.shard != heap.shard
        assert await first.take(again, seconds=0) == []


async def test_purge_and_replay_go_over_everything_that_came_before():
    """D-175, D-196"""
    async with one() as (broker, heap):
        await broker.service.admin.alter(heap, HeapConfig(max_retries=0))
        await asyncio.gather(*(broker.service.enqueue(heap, job()) for _ in range(30)))
        for delivery in await broker.take(heap, 10):
            await broker.service.settle(heap, Settlement.NACK, delivery.token, note="poison")
        assert broker.shard(heap).messages.rows.counts[State.DEAD] == 10
        assert await broker.service.dead_letters.purge(heap) == 20
        oldest = await broker.service.peeking.page(heap, State.DEAD, limit=4)
        assert (await broker.service.dead_letters.replay(heap, [one.id for one in oldest.messages])).count == 4
        assert len(await broker.take(heap, 10)) == 4
        assert await broker.service.dead_letters.purge(heap, leased=True, dead=True) == 10


class MoodyObjects(MemoryObjects):
    """A store that does not answer for a while."""

    down = False

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        if self.down:
            raise StoreUnavailable("not now")
        return await super().get(path, start, end)


@pytest.mark.slow
async def test_a_body_that_the_store_does_not_give_comes_back_later_and_no_attempt_is_counted():
    async with stand(await new_log(version=2), MoodyObjects(), cache_bytes=0) as broker:
        heap = await broker.service.admin.make("jobs", mode=Mode.MIN)
        await broker.service.enqueue(heap, job(b"z" * 60_000))
        broker.objects.down = True
        assert await broker.take(heap, seconds=0) == []
        broker.objects.down = False
        (delivery,) = await broker.take(heap)
        assert (delivery.message.attempts, delivery.body.payload) == (0, b"z" * 60_000)


class SlowObjects(MemoryObjects):
    """A store that takes its time for the first that asks."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.now = asyncio.Event(), asyncio.Event()

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        self.asked.set()
        await self.now.wait()
        return await super().get(path, start, end)


async def test_what_was_granted_later_does_not_overtake_a_body_that_is_still_being_read():
    """HL6"""
    objects = SlowObjects()
    async with stand(await new_log(version=2), objects, cache_bytes=0) as broker:
        heap = await broker.service.admin.make("jobs", mode=Mode.MIN)
        await broker.service.enqueue(heap, job(b"z" * 60_000, priority=1))
        popping = asyncio.create_task(broker.take(heap, 4))
        await objects.asked.wait()
        await broker.service.enqueue(heap, job(b"worse", priority=2))
        await broker.service.enqueue(heap, job(b"elsewhere", priority=3))
        (other,) = await broker.take(heap, 1, holder="other")
        assert other.body.payload == b"worse"  # it is anybody's but of the consumer that still reads
        objects.now.set()
        assert [delivery.message.priority for delivery in await popping] == [1]
        (last,) = await broker.take(heap, 4)
        assert last.body.payload == b"elsewhere"


async def test_a_consumer_whose_bodies_were_read_is_granted_more():
    """HL6: without anything else that happens to its heap."""
    objects = SlowObjects()
    async with stand(await new_log(version=2), objects, cache_bytes=0) as broker:
        heap = await broker.service.admin.make("jobs", mode=Mode.MIN)
        consumer = broker.service.consumer(heap, holder="c")
        consumer.add_credits(4)
        await broker.service.enqueue(heap, job(b"z" * 60_000, priority=1))
        await objects.asked.wait()
        await broker.service.enqueue(heap, job(b"small", priority=2))
        objects.now.set()
        got = []
        while len(got) < 2:
            got += await consumer.take(LONG_S)
        assert [delivery.message.priority for delivery in got] == [1, 2]


async def test_a_body_that_is_damaged_is_a_dead_letter_that_says_so():
    """HB3"""
    objects = MemoryObjects()
    async with stand(await new_log(version=2), objects, cache_bytes=0) as broker:
        heap = await broker.service.admin.make("jobs", mode=Mode.MIN)
        await broker.service.enqueue(heap, job(b"z" * 60_000))
        (record,) = broker.replica.machine.objects.all()
        whole = bytearray(await objects.get(record.path()))
        whole[30_000] ^= 1
        await objects.delete(record.path())
        await objects.put(record.path(), [bytes(whole)])
        await broker.service.enqueue(heap, job(b"fine", priority=9))
        (delivery,) = await broker.take(heap)
        assert delivery.body.payload == b"fine"
        messages = broker.shard(heap).messages
        while not messages.dead:
            await asyncio.sleep(0.01)
        assert list(messages.notes.values()) == ["body unreadable"]


async def test_bodies_that_wait_while_others_are_written_share_an_object():
    """HL4: each call is answered for its own messages."""
    async with one() as (broker, heap):
        payloads = [bytes([n]) * 20_000 for n in range(40)]
        taken = await asyncio.gather(*(broker.service.enqueue(heap, job(one)) for one in payloads))
        objects = list(broker.replica.machine.objects.all())
        assert len(objects) < 20
        assert sum(record.rows for record in objects) == 40
        wanted = dict(zip([one.id for one in taken], payloads, strict=True))
        found = []
        while len(found) < 40:
            found += await broker.take(heap, 40 - len(found))
        assert {delivery.id: delivery.body.payload for delivery in found} == wanted


async def test_how_many_share_an_entry_is_told():
    def told() -> tuple[float, float, float]:
        value = telemetry.REGISTRY.get_sample_value
        name = "dray_heap_messages_per_entry"
        return value(f"{name}_count"), value(f"{name}_sum"), value(f"{name}_bucket", {"le": "2.0"})

    async with one() as (broker, heap):
        entries, rows, small = told()
        await broker.service.enqueue_batch(heap, [job() for _ in range(40)])
        assert told() == (entries + 1, rows + 40, small)
        await broker.service.enqueue(heap, job())
        assert told() == (entries + 2, rows + 41, small + 1)
