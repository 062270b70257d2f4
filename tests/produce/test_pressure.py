"""What is bounded: bytes that wait, objects a second, memory of the index."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clock import ManualClock
from dray.config import Section
from dray.produce.errors import Overloaded
from dray.produce.pacing import Tokens
from dray.produce.pressure import BATCH_OVERHEAD, IndexBudget, Pressure
from dray.produce.settings import WalSettings
from tests.produce.broker import GatedObjects, batch, broker, settle
from tests.replica.domain import new_log

SECOND = 1_000_000_000


async def test_beyond_the_bound_a_batch_is_refused_and_nothing_is_taken():
    """R-090, PR5."""
    objects = GatedObjects()
    size = len(batch(1).data) + BATCH_OVERHEAD
    async with broker({0: await new_log()}, objects, max_buffer_bytes=10 * size, pause_bytes=5 * size) as one:
        (stream,) = await one.streams()
        pressure = one.produce.pressure
        answers = []
        for number in range(10):
            assert pressure.over is (number > 5)
            answers.append(one.produce.submit(batch(stream)))
        with pytest.raises(Overloaded):
            one.produce.submit(batch(stream))
        assert pressure.unacked == 10 * size
        relief = asyncio.create_task(pressure.relief())
        await settle()
        assert not relief.done()
        objects.open_all()
        assert len(await asyncio.gather(*answers)) == 10
        await relief
        assert pressure.unacked == 0
        assert (await one.produce.submit(batch(stream))).base_offset == 10


async def test_a_batch_larger_than_the_bound_is_taken_alone():
    """PR5: it could never be stored otherwise."""
    async with broker({0: await new_log()}, GatedObjects(gated=False), max_buffer_bytes=50, pause_bytes=50) as one:
        (stream,) = await one.streams()
        assert (await one.produce.submit(batch(stream, b"x" * 1_000))).base_offset == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=60))
def test_the_bound_holds_and_reading_goes_on_again_whatever_comes(steps):
    """PR5."""

    async def run() -> None:
        pressure = Pressure(limit=1_000, high=600)
        held: list[int] = []
        for comes, size in steps:
            if comes:
                try:
                    pressure.take(size)
                    held.append(size)
                except Overloaded:
                    assert sum(held) + size > 1_000
            elif held:
                pressure.give_back(held.pop(0))
            assert pressure.unacked == sum(held) <= 1_000
            assert not (pressure.over and pressure.unacked <= 450)
            assert not (pressure.unacked > 600 and not pressure.over)

    asyncio.run(run())


async def test_flushes_of_a_domain_are_paced_after_a_burst():
    """A thousand trickling partitions do not write a thousand objects a second."""
    clock, objects = ManualClock(), GatedObjects(gated=False)
    async with broker({0: await new_log()}, objects, clock=clock, appends_per_second=2) as one:
        (stream,) = await one.streams()
        for _ in range(2):
            await one.produce.submit(batch(stream))
        answers = []
        for _ in range(30):
            answers.append(one.produce.submit(batch(stream)))
            await settle()
        assert len(objects.puts) == 2
        clock.advance(500)
        await asyncio.gather(*answers)
        assert len(objects.puts) == 3


@given(st.integers(1, 1_000), st.lists(st.integers(0, 2 * SECOND), min_size=1, max_size=200))
def test_in_no_stretch_of_time_are_there_more_flushes_than_the_budget_and_one_burst(per_second, pauses):
    now = 5 * SECOND
    pace = Tokens(per_second, now)
    begun = []
    for pause in pauses:
        now += pause
        now += max(0, pace.wait_ns(now, braked=False))
        assert pace.wait_ns(now, braked=False) <= 0
        pace.begin(now)
        begun.append(now)
    for first in range(0, len(begun), 7):
        for last in range(first, len(begun)):
            allowed = (begun[last] - begun[first]) * per_second / SECOND + per_second
            # The interval is rounded down to whole nanoseconds.
            assert last - first <= allowed * 1.001 + 1


async def test_an_index_beyond_its_budget_refuses_and_one_near_it_brakes():
    clock, objects = ManualClock(), GatedObjects(gated=False)
    async with broker({0: await new_log()}, objects, clock=clock, index_bytes=10_000) as one:
        (stream,) = await one.streams()
        for _ in range(100):  # 1,400 bytes a stream, 42 a row, 36 an object
            await one.produce.submit(batch(stream))
        clock.advance(1_000)
        await settle()
        assert one.replica.machine.streams.footprint().bytes > 8_000
        first, second = one.produce.submit(batch(stream)), None
        await first
        second = one.produce.submit(batch(stream))
        await settle()
        assert not second.done(), "near the budget a flush waits"
        clock.advance(250)
        await second
        answers = [one.produce.submit(batch(stream)) for _ in range(100)]
        clock.advance(250)
        await asyncio.gather(*answers)
        clock.advance(1_000)
        await settle()
        with pytest.raises(Overloaded):
            one.produce.submit(batch(stream))


def test_an_index_that_shrinks_is_served_again():
    budget = IndexBudget(1_000)
    seen = []
    for size in (100, 801, 1_001, 900, 10):
        budget.seen(size)
        seen.append((budget.throttled, budget.exhausted))
    assert seen == [(False, False), (True, False), (True, True), (True, False), (False, False)]


def test_settings_resolve_by_the_kind_of_store():
    """Design section 4: no linger and no hedge on local files, 250 ms on remote stores."""
    local, remote = WalSettings().policy(local=True), WalSettings().policy(local=False)
    assert (local.linger_ms, local.hedge_floor_s) == (0, None)
    assert (remote.linger_ms, remote.hedge_floor_s) == (250, 0.3)
    assert local.pause_bytes * 2 == local.max_buffer_bytes
    assert WalSettings.model_validate({"linger": "10ms"}).policy(local=True).linger_ms == 10
    assert issubclass(WalSettings, Section)


@pytest.mark.parametrize(
    "wrong",
    [
        {"flush_bytes": "0"},
        {"flush_bytes": "1GiB"},
        {"flush_bytes": "64MiB", "max_buffer_bytes": "32MiB"},
        {"pause_bytes": "1GiB"},
        {"flushes": 0},
        {"flush_batches": 3_001},
        {"append_budget": 0},
        {"index_budget": "0"},
        {"linger": "-1s"},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError):
        WalSettings.model_validate(wrong)
