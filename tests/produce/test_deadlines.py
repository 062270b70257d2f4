"""PR9: a producer is told in time that nobody knows yet, and that costs nothing while answers come quickly."""

import asyncio

import pytest

from dray.produce.batches import Stored
from dray.produce.deadlines import TICK_S, Deadlines
from dray.produce.errors import TimedOut
from dray.sim.loop import SimLoop

STORED = Stored(5, 0)


class Producers:
    """Deadlines on a loop whose time passes only when nothing else is to be done."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(self.loop)

    def wait(self, timeout_ms: int) -> "asyncio.Future[Stored]":
        answer = self.loop.create_future()
        self.deadlines.watch(answer, timeout_ms)
        return answer

    async def time_of(self, answer: "asyncio.Future[Stored]") -> float:
        """When an answer was given up."""
        with pytest.raises(TimedOut):
            await answer
        return self.loop.time()


def on_simulated_time(story) -> None:
    loop = SimLoop(seed=1)
    loop.run_until_complete(story())


def test_an_answer_is_given_up_when_it_is_due_and_not_before() -> None:
    """PR9"""

    async def story() -> None:
        producers = Producers()
        for timeout_ms in (1, 49, 50, 51, 1_000, 1_001, 30_000):
            begun = producers.loop.time()
            waited = await producers.time_of(producers.wait(timeout_ms)) - begun
            assert timeout_ms / 1000 <= waited <= timeout_ms / 1000 + 2 * TICK_S + 1e-6, timeout_ms

    on_simulated_time(story)


def test_who_gave_little_time_is_told_in_time_beside_those_who_gave_much() -> None:
    """PR9: they came in the same tick."""

    async def story() -> None:
        producers = Producers()
        patient, hasty = producers.wait(30_000), producers.wait(100)
        begun = producers.loop.time()
        assert await producers.time_of(hasty) - begun <= 0.1 + 2 * TICK_S + 1e-6
        assert not patient.done()
        assert await producers.time_of(patient) - begun >= 30

    on_simulated_time(story)


def test_an_answer_that_came_is_left_alone() -> None:
    async def story() -> None:
        producers = Producers()
        quick, slow = producers.wait(200), producers.wait(200)
        quick.set_result(STORED)
        await asyncio.sleep(0.1)
        slow.set_result(STORED)
        await asyncio.sleep(1)
        assert (await quick, await slow) == (STORED, STORED)

    on_simulated_time(story)


@pytest.mark.parametrize("timeout_ms", [0, -1, -(1 << 31)])
def test_without_a_time_it_waits_for_ever(timeout_ms: int) -> None:
    async def story() -> None:
        producers = Producers()
        answer = producers.wait(timeout_ms)
        await asyncio.sleep(100_000)
        assert not answer.done()

    on_simulated_time(story)


def test_nothing_that_was_answered_is_held_for_long() -> None:
    """Producers give half a minute; holding each answer for that long would fill the memory."""

    async def story() -> None:
        producers = Producers()
        answers = [producers.wait(30_000) for _ in range(100)]
        await asyncio.sleep(0.3)
        for answer in answers:
            answer.set_result(STORED)
        await asyncio.sleep(1.5)
        held = producers.deadlines
        assert not held._new
        assert not any(held._slow.values())

    on_simulated_time(story)


def test_nothing_is_looked_at_while_nobody_waits() -> None:
    async def story() -> None:
        producers = Producers()
        producers.wait(30_000).set_result(STORED)
        await asyncio.sleep(1)
        assert producers.deadlines._timer is None
        assert await producers.time_of(producers.wait(100))

    on_simulated_time(story)
