"""A short wait for company while many small batches come, and none for who comes alone."""

import asyncio
from datetime import timedelta

import pytest

from dray.clock import ManualClock
from dray.produce.pacing import CROWD_BYTES, ENOUGH, MANY, Crowd
from dray.produce.settings import WalSettings
from tests.produce.broker import Broker, GatedObjects, HeldLog, batch, broker, settle
from tests.replica.domain import new_log

CROWD = 40
LINGER_MS = 4
MS = 1_000_000


async def crowd_of(one: Broker, stream, size: int) -> None:
    """So many that come together and are answered together."""
    await asyncio.gather(*(one.produce.submit(batch(stream)) for _ in range(size)))


async def test_who_comes_alone_never_waits() -> None:
    objects = GatedObjects(gated=False)
    async with broker({0: await new_log()}, objects, clock=ManualClock(), crowd_linger_ms=LINGER_MS) as one:
        (stream,) = await one.streams()
        for number in range(5):
            await crowd_of(one, stream, MANY - 1)
            await crowd_of(one, stream, 1)  # the clock stands still: a wait would never end
            assert len(objects.puts) == 2 * number + 2


async def test_after_a_crowd_the_first_waits_until_most_of_it_is_back() -> None:
    objects = GatedObjects(gated=False)
    async with broker({0: await new_log()}, objects, clock=ManualClock(), crowd_linger_ms=LINGER_MS) as one:
        (stream,) = await one.streams()
        await crowd_of(one, stream, CROWD)
        answers = [one.produce.submit(batch(stream))]
        for _ in range(CROWD * 7 // 8 - 2):
            await settle(2)
            answers.append(one.produce.submit(batch(stream)))
        await settle()
        assert len(objects.puts) == 1, "one is missing"
        answers.append(one.produce.submit(batch(stream)))
        await asyncio.gather(*answers)
        assert len(objects.puts) == 2


async def test_a_crowd_that_does_not_come_back_is_waited_for_a_few_milliseconds_and_then_forgotten() -> None:
    """64 are expected, then 32, then 16: three batches wait, the fourth does not."""
    clock, objects = ManualClock(), GatedObjects(gated=False)
    async with broker({0: await new_log()}, objects, clock=clock, crowd_linger_ms=LINGER_MS) as one:
        (stream,) = await one.streams()
        await crowd_of(one, stream, 4 * MANY)
        for _ in range(3):
            answer = one.produce.submit(batch(stream))
            await settle()
            clock.advance(LINGER_MS - 1)
            await settle()
            assert not answer.done()
            clock.advance(1)
            async with asyncio.timeout(30):
                await answer
        await one.produce.submit(batch(stream))
        assert len(objects.puts) == 5


async def test_a_drain_waits_for_nobody() -> None:
    async with broker(
        {0: await new_log()}, GatedObjects(gated=False), clock=ManualClock(), crowd_linger_ms=LINGER_MS
    ) as one:
        (stream,) = await one.streams()
        await crowd_of(one, stream, CROWD)
        answer = one.produce.submit(batch(stream))
        await settle()
        assert not answer.done()
        await one.produce.drain()
        assert answer.result().base_offset == CROWD


def test_batches_that_fill_an_object_wait_for_nobody() -> None:
    crowd = Crowd(LINGER_MS * MS)
    crowd.begin(CROWD)
    assert crowd.wait_ns(1, CROWD_BYTES - 1, 0, 0) == LINGER_MS * MS
    assert crowd.wait_ns(1, CROWD_BYTES, 0, 0) == 0
    assert crowd.wait_ns(1, 1, 0, LINGER_MS * MS) <= 0
    crowd.begin(100 * ENOUGH)
    assert crowd.wait_ns(ENOUGH - 1, 1, 0, 0) == LINGER_MS * MS
    assert crowd.wait_ns(ENOUGH, 1, 0, 0) == 0


async def test_who_is_late_goes_with_the_next_crowd_and_not_before_the_answers() -> None:
    """The time of a wait counts from the answers: before them nobody of the crowd can be back."""
    clock, objects, log = ManualClock(), GatedObjects(gated=False), HeldLog(await new_log())
    async with broker({0: log}, objects, clock=clock, crowd_linger_ms=LINGER_MS) as one:
        (stream,) = await one.streams()
        await crowd_of(one, stream, CROWD)
        log.hold()
        back = [one.produce.submit(batch(stream)) for _ in range(CROWD)]
        async with asyncio.timeout(30):
            await objects.put_count(2)
        late = [one.produce.submit(batch(stream)) for _ in range(3)]
        for _ in range(5):
            await settle()
            clock.advance(LINGER_MS)
        assert len(objects.puts) == 2
        log.let_go()
        async with asyncio.timeout(30):
            await asyncio.gather(*back)
        await settle()
        assert len(objects.puts) == 2
        clock.advance(LINGER_MS)
        async with asyncio.timeout(30):
            await asyncio.gather(*late)
        assert len(objects.puts) == 3


@pytest.mark.parametrize(
    ("linger", "local", "expected"),
    [
        (None, True, (0, LINGER_MS)),
        (None, False, (250, 0)),
        (timedelta(0), True, (0, 0)),
        (timedelta(milliseconds=7), True, (7, 0)),
    ],
)
def test_only_local_files_without_a_setting_wait_for_a_crowd(
    linger: timedelta | None, local: bool, expected: tuple[int, int]
) -> None:
    policy = WalSettings(linger=linger).policy(local=local)
    assert (policy.linger_ms, policy.crowd_linger_ms) == expected
