"""What happens by itself: time, spilling, sagas left behind; and the names that clients see."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clock import ManualClock
from dray.heaps.bodies import Body, is_inline, pack_body, unpack_body
from dray.heaps.errors import BadMessageId, BadToken, UnreadableBody
from dray.heaps.ids import LeaseToken, MessageId, format_id, format_token, parse_id, parse_token
from dray.heaps.partitions import partition_of
from dray.heaps.policy import HeapPolicy
from dray.heaps.rewrite import Rewriter
from dray.heaps.spill import Spiller
from dray.heaps.ticker import Ticker
from dray.machine.heaps.catalog import CreateHeap, DeleteHeap
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.rows import State
from dray.objects.memory import MemoryObjects
from tests.replica.domain import new_log

from .stand import job, one, stand


async def test_a_lease_that_nobody_waits_for_ends_by_the_ticker_and_not_a_moment_early():
    """L8, D-092"""
    clock = ManualClock()
    async with stand(await new_log(version=2), MemoryObjects(), clock=clock) as broker:
        heap = await broker.service.admin.make("jobs", mode=Mode.MIN, config=HeapConfig(backoff_base_ms=0))
        await broker.service.enqueue(heap, job())
        consumer = broker.service.consumer(heap, holder="c", visibility_ms=30_000)
        consumer.add_credits(1)
        await consumer.take(60)
        await broker.service.close(consumer)
        ticker = Ticker(broker.replica, clock, HeapPolicy())
        counts = broker.shard(heap).messages.rows.counts
        for _ in range(29):
            clock.advance(1_000)
            await ticker.step()
            assert counts[State.LEASED] == 1
        clock.advance(2_000)
        await ticker.step()
        assert (counts[State.LEASED], counts[State.READY]) == (0, 1)
        assert broker.shard(heap).messages.totals.expired == 1
        before = broker.replica.machine.position
        await ticker.step()
        assert broker.replica.machine.position == before, "nothing is due, and nothing is written"


async def test_bodies_leave_memory_when_they_are_many_and_can_still_be_read():
    """L12, HB1"""
    async with one(inline_most_bytes=20_000, spill_bytes=8_000) as (broker, heap):
        payloads = [bytes([n]) * 1_000 for n in range(30)]
        for payload in payloads:
            await broker.service.enqueue(heap, job(payload))
        machine = broker.replica.machine
        inline = machine.heaps.inline
        assert inline.used < 20_000, "what did not fit went to objects at once"
        placer = broker.service._upkeep[0][1]
        assert isinstance(placer, Spiller)
        old = HeapPolicy(spill_after_ms=0, spill_bytes=8_000)
        placer._policy = old
        moved = [await placer.step() for _ in range(8)]
        assert inline.used == 0
        assert max(moved) <= 8
        assert sum(record.rows for record in machine.objects.all()) == 30
        found = []
        while len(found) < 30:
            found += await broker.take(heap, 30 - len(found))
        assert [delivery.body.payload for delivery in found] == payloads
        for delivery in found:
            await broker.ack(heap, delivery)
        assert all(record.id in machine.objects.dead for record in machine.objects.all())


async def test_one_old_message_does_not_keep_a_whole_object():
    """HB4, L12, D-164"""
    async with one(inline_max_bytes=100, rewrite_slack_bytes=50_000, spill_bytes=100_000) as (broker, heap):
        machine = broker.replica.machine
        payloads = [bytes([n]) * 20_000 for n in range(60)]
        taken = []
        for start in range(0, 60, 20):
            batch = [job(payload) for payload in payloads[start : start + 20]]
            taken += await broker.service.enqueue_batch(heap, batch)
        kept = {taken[at].id: payloads[at] for at in (0, 20, 40, 41)}
        wanted = [one.id for one in taken if one.id not in kept]
        await broker.service.dead_letters.bury(heap, wanted)
        await broker.service.dead_letters.delete(heap, None)

        def held() -> int:
            return sum(record.size for record in machine.objects.all() if record.rows)

        assert held() > 1_000_000
        rewriter = broker.service._upkeep[0][2]
        assert isinstance(rewriter, Rewriter)
        assert await rewriter.step() == 4
        assert held() <= 2 * 81_000 + 50_000
        assert await rewriter.step() == 0, "what holds is left alone"
        found = []
        while len(found) < 4:
            found += await broker.take(heap, 4 - len(found))
        assert {delivery.id: delivery.body.payload for delivery in found} == kept
        for delivery in found:
            await broker.ack(heap, delivery)
        assert held() == 0
        assert await rewriter.step() == 0


async def test_disk_use_is_bounded_over_many_fills_and_drains():
    """HB4, D-164: each round leaves a straggler behind."""
    async with one(inline_max_bytes=100, rewrite_slack_bytes=100_000) as (broker, heap):
        machine = broker.replica.machine
        rewriter = broker.service._upkeep[0][2]
        assert isinstance(rewriter, Rewriter)
        for turn in range(10):
            await broker.service.enqueue_batch(heap, [job(bytes(9_000), priority=n == 0) for n in range(30)])
            done = 0
            while done < 29:
                for delivery in await broker.take(heap, 29 - done):
                    await broker.ack(heap, delivery)
                    done += 1
            await rewriter.step()
            left = len(broker.shard(heap).messages.rows)
            assert left == turn + 1
            held = sum(record.size for record in machine.objects.all() if record.rows)
            assert held <= 2 * left * 9_100 + 100_000


async def test_a_saga_that_was_left_behind_is_finished_by_whoever_looks():
    """HA2, HP2"""
    clock = ManualClock()
    async with stand(await new_log(version=2), MemoryObjects(), clock=clock) as broker:
        await broker.replica.propose(CreateHeap(heap_id=b"h" * 16, name="jobs", mode=Mode.MIN))
        catalog = broker.replica.machine.heap_catalog
        await broker.service.admin.go_on()
        assert list(catalog.visible()) == []
        clock.advance(15_000)
        await broker.replica.propose(DeleteHeap(heap_id=b"x" * 16))  # time passes with an entry
        await broker.service.admin.go_on()
        (heap,) = catalog.visible()
        await broker.service.enqueue(heap, job())
        await broker.replica.propose(DeleteHeap(heap_id=heap.id))
        clock.advance(15_000)
        await broker.replica.propose(DeleteHeap(heap_id=b"x" * 16))
        await broker.service.admin.go_on()
        assert not catalog.all
        assert not broker.replica.machine.heaps.all


async def test_work_that_runs_for_ever_can_be_stopped():
    async with one(tick_ms=10) as (broker, heap):
        await broker.service.enqueue(heap, job(delay_ms=50))
        work = asyncio.create_task(broker.service.run())
        counts = broker.shard(heap).messages.rows.counts
        while not counts[State.READY]:
            await asyncio.sleep(0.01)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@given(
    st.builds(
        MessageId, st.integers(0, (1 << 48) - 1), st.integers(0, (1 << 12) - 1), st.integers(0, (1 << 32) - 1),
        st.integers(0, (1 << 36) - 1),
    )
)  # fmt: skip
def test_an_id_survives_its_text_and_sorts_by_time(identity):
    """HN1, D-030"""
    text = format_id(identity)
    assert len(text) == 26
    assert parse_id(text) == identity
    assert format_id(identity._replace(begun_ms=0)) <= text


@given(
    st.builds(
        LeaseToken, st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 48) - 1), st.binary(min_size=16, max_size=16)
    )
)
def test_a_token_survives_its_text(token):
    """HN1"""
    assert parse_token(format_token(token)) == token


@given(st.text(max_size=40))
def test_any_other_text_is_refused(text):
    """HN1"""
    for parse in (parse_id, parse_token):
        with suppress(BadMessageId, BadToken):
            parse(text)


@given(
    st.binary(max_size=200),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.integers(0, 10_000),
)
def test_a_body_survives_and_a_flipped_bit_is_seen(payload, headers, at):
    """HB3, D-034"""
    body = Body(payload=payload, headers=headers, producer="p", epoch=1, seq=2)
    packed = bytearray(pack_body(body))
    assert unpack_body(packed) == body
    packed[at % len(packed)] ^= 1 << at % 8
    with pytest.raises(UnreadableBody):
        unpack_body(packed)


def test_keys_spread_over_partitions_and_only_those_move_that_a_new_one_gets():
    """D-025, D-026, D-060"""
    keys = [f"key-{n}".encode() for n in range(40_000)]
    before = [partition_of(key, 20) for key in keys]
    after = [partition_of(key, 21) for key in keys]
    counts = [before.count(number) for number in range(20)]
    assert max(counts) / (sum(counts) / 20) <= 1.25
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {new for _, new in moved} == {20}
    assert 0.5 < len(moved) / (len(keys) / 21) < 1.5
    assert all(partition_of(key, 1) == 0 for key in keys[:10])


def test_where_a_body_lies_is_told_by_its_size_and_what_is_there():
    policy = HeapPolicy()
    assert is_inline(16 << 10, 0, 0, policy)
    assert not is_inline((16 << 10) + 1, 0, 0, policy)
    assert not is_inline(1_000, policy.inline_turn_bytes, 0, policy)
    assert not is_inline(1_000, 0, policy.inline_most_bytes, policy)
