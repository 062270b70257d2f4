"""Heaps in several domains, whose time only their brokers move."""

from dray.clock import ManualClock
from dray.heaps.policy import HeapPolicy
from dray.heaps.ticker import Ticker
from dray.machine.heaps.config import Mode
from dray.machine.heaps.rows import State
from dray.objects.memory import MemoryObjects
from dray.replica.expiry import SILENT_BEATS
from tests.replica.domain import new_log, replica_on

from .stand import CALM, job, stand

SILENT_MS = SILENT_BEATS * CALM.keepalive_ms + 1


async def test_a_broker_lets_time_pass_where_something_waits_for_it_and_nobody_else_is_heard():
    """HK1"""
    log, clock = await new_log(version=2), ManualClock()
    async with stand(log, MemoryObjects(), clock=clock) as first:
        heap = await first.service.admin.make("jobs", mode=Mode.MIN)
        await first.service.enqueue(heap, job(delay_ms=5_000))
        async with replica_on(log, "broker-2", clock=clock, timing=CALM).running() as other:
            await other.sync()
            await Ticker(other, clock, HeapPolicy()).step()
            assert other.session is None, "the first is heard"
    async with replica_on(log, "broker-2", clock=clock, timing=CALM).running() as alone:
        await alone.sync()
        ticker = Ticker(alone, clock, HeapPolicy())
        await ticker.step()
        assert alone.session is None, "the first may still live"
        clock.advance(SILENT_MS)
        await ticker.step()
        assert alone.session is not None
        clock.advance(6_000)
        await ticker.step()
        counts = next(iter(alone.machine.heaps)).messages.rows.counts
        assert (counts[State.DELAYED], counts[State.READY]) == (0, 1)


async def test_where_nothing_waits_for_time_nobody_opens_a_session_for_it():
    log, clock = await new_log(version=2), ManualClock()
    async with stand(log, MemoryObjects(), clock=clock) as first:
        heap = await first.service.admin.make("jobs", mode=Mode.MIN)
        await first.service.enqueue(heap, job())
    async with replica_on(log, "broker-2", clock=clock, timing=CALM).running() as alone:
        await alone.sync()
        ticker = Ticker(alone, clock, HeapPolicy())
        for _ in range(3):
            await ticker.step()
            clock.advance(SILENT_MS)
        assert alone.session is None
