"""Histories of heaps become records, through brokers that die at any step of it."""

import asyncio

import msgspec
import pytest

from dray.clock import ManualClock
from dray.errors import Unknown
from dray.heaps.asking import AskedBy
from dray.heaps.errors import BadHeap, HeapFull
from dray.heaps.history import Historian, row_of
from dray.machine.heaps import history as histories
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.history import EventKind, Tell
from dray.objects.memory import MemoryObjects
from dray.topics.service import NewTopic, TopicService
from tests.replica.domain import new_log

from .stand import Stand, job, one, stand, two

TOPIC = "jobs.history"
TOLD = HeapConfig(history=TOPIC, backoff_base_ms=0)


def historian(broker: Stand) -> Historian:
    return next(work for work in broker.service._upkeep[0] if isinstance(work, Historian))


def told(broker: Stand) -> int:
    """How many records the topic has."""
    topic = broker.replica.machine.topics.named(TOPIC)
    return broker.replica.machine.streams.find(topic.streams[0]).end


async def test_what_happens_to_a_message_is_told_by_the_oldest_broker():
    """HI1, D-031"""
    async with one() as (broker, _):
        heap = await broker.service.admin.make("told", mode=Mode.MIN, config=TOLD)
        assert told(broker) == 0, "the topic is there before the heap"
        await broker.service.enqueue(heap, job(producer="anna", seq=1))
        (delivery,) = await broker.take(heap)
        await broker.ack(heap, delivery)
        history = broker.shard(heap).messages.history
        found = [(EventKind(event.kind).name, event.who) for event in history.events]
        assert found == [("ENQUEUED", "anna"), ("LEASED", "c"), ("ACKED", "c")]
        assert await historian(broker).step() == 3
        assert (told(broker), history.first, len(history.events)) == (3, 3, 0)
        assert await historian(broker).step() == 0
        before = broker.replica.machine.position
        await historian(broker).step()
        assert broker.replica.machine.position == before, "nothing is untold, and nothing is written"


@pytest.mark.parametrize("dies", ["before it is written", "before it is proposed", "before it is answered"])
async def test_a_teller_that_dies_leaves_each_event_to_be_told_once(dies, monkeypatch):
    """HI1"""
    async with two() as (first, second):
        heap = await first.service.admin.make("told", mode=Mode.MIN, config=TOLD)
        for n in range(5):
            await first.service.enqueue(heap, job(b"%d" % n))
        await second.replica.sync()
        worker = historian(first)
        real_place, real_propose = worker._placer.place_batches, first.replica.propose

        async def place(stream, batches):
            if dies == "before it is written":
                raise Unknown("gone")
            return await real_place(stream, batches)

        async def propose(*commands):
            if not isinstance(commands[0], Tell):
                return await real_propose(*commands)
            if dies == "before it is answered":
                await real_propose(*commands)
            raise Unknown("gone")

        monkeypatch.setattr(worker._placer, "place_batches", place)
        monkeypatch.setattr(first.replica, "propose", propose)
        assert await worker.step() == 0
        await second.replica.sync()
        monkeypatch.setattr("dray.heaps.history.is_oldest", lambda replica: True)
        assert await historian(second).step() == (0 if dies == "before it is answered" else 5)
        assert told(second) == 5
        assert second.replica.machine.histories.all[heap.shard].first == 5


async def test_two_who_tell_at_once_tell_it_once(monkeypatch):
    """HI1"""
    monkeypatch.setattr("dray.heaps.history.is_oldest", lambda replica: True)
    async with two() as (first, second):
        heap = await first.service.admin.make("told", mode=Mode.MIN, config=TOLD)
        for n in range(5):
            await first.service.enqueue(heap, job(b"%d" % n))
        await second.replica.sync()
        counts = await asyncio.gather(historian(first).step(), historian(second).step())
        await first.replica.sync()
        assert sorted(counts) == [0, 5]
        assert told(first) == 5


async def test_whoever_is_not_the_oldest_tells_what_is_overdue(monkeypatch):
    monkeypatch.setattr("dray.heaps.history.is_oldest", lambda replica: False)
    clock = ManualClock()
    async with stand(await new_log(version=2), MemoryObjects(), clock=clock) as broker:
        heap = await broker.service.admin.make("told", mode=Mode.MIN, config=TOLD)
        await broker.service.enqueue(heap, job())
        assert await historian(broker).step() == 0
        clock.advance(5_000)
        assert await historian(broker).step() == 1


async def test_a_topic_that_was_deleted_is_made_again_and_nothing_is_lost():
    """HI1"""
    async with one() as (broker, _):
        heap = await broker.service.admin.make("told", mode=Mode.MIN, config=TOLD)
        topics = historian(broker)._topics._topics
        assert isinstance(topics, TopicService)
        await broker.service.enqueue(heap, job())
        await topics.delete(await topics.find(TOPIC))
        assert await historian(broker).step() == 1
        assert told(broker) == 1


async def test_a_heap_is_deleted_and_its_history_is_told_to_the_end():
    """HI1"""
    async with one() as (broker, _):
        heap = await broker.service.admin.make("told", mode=Mode.MIN, config=TOLD)
        await broker.service.enqueue(heap, job())
        await broker.service.admin.delete(heap, by=AskedBy(actor="ops"))
        assert await historian(broker).step() == 2
        assert not broker.replica.machine.histories.all
        assert told(broker) == 2


async def test_a_history_cannot_go_to_a_heap_or_to_what_is_no_name():
    async with one() as (broker, heap):
        for wrong in ("jobs", "a/b", "..", "x" * 250, "other"):
            with pytest.raises(BadHeap):
                await broker.service.admin.make("other", mode=Mode.MIN, config=HeapConfig(history=wrong))
        with pytest.raises(BadHeap):
            await broker.service.admin.alter(heap, HeapConfig(history="jobs"))
        await broker.service.admin.alter(heap, HeapConfig(history=TOPIC))
        assert broker.replica.machine.topics.named(TOPIC) is not None
        assert broker.shard(heap).messages.history is not None


async def test_a_topic_that_is_there_is_told_to_beside_what_others_write():
    async with one() as (broker, heap):
        topics = historian(broker)._topics._topics
        await topics.create(NewTopic(name=TOPIC, partitions=3, replication_factor=1, configs={}))
        await broker.service.admin.alter(heap, TOLD)
        await broker.service.enqueue(heap, job())
        assert await historian(broker).step() == 1
        assert told(broker) == 1


async def test_a_producer_is_told_when_a_history_is_not_told_so_fast(monkeypatch):
    """HI2"""
    async with one() as (broker, heap):
        await broker.service.admin.alter(heap, TOLD)
        monkeypatch.setattr(histories, "MAX_UNTOLD", 2)
        for _ in range(2):
            await broker.service.enqueue(heap, job())
        with pytest.raises(HeapFull) as full:
            await broker.service.enqueue(heap, job())
        assert full.value.facts["which"] == "history"
        assert await historian(broker).step() == 2
        await broker.service.enqueue(heap, job())


async def test_the_rows_are_what_the_page_says(monkeypatch):
    batches = []
    async with one() as (broker, heap):
        await broker.service.admin.alter(heap, TOLD)
        worker = historian(broker)
        real = worker._batch
        monkeypatch.setattr(worker, "_batch", lambda *given: batches.append(given) or real(*given))
        await broker.service.enqueue(heap, job(priority=-3, delay_ms=700, asker="User:anna", producer="p", seq=0))
        await worker.step()
        ((history, first, events),) = batches
        row = msgspec.to_builtins(row_of(history, 0, first, events[0]))
    assert row.pop("time").endswith("Z")
    assert len(row.pop("message")) == 26
    assert row.pop("position") > 0
    assert row == {
        "heap": "jobs", "number": 0, "event": "enqueued", "who": "User:anna", "priority": -3, "partition": 0,
        "attempts": 0, "span_ms": 700, "error": "",
    }  # fmt: skip
