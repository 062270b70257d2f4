"""`sync` shares calls of `tail`, and never an old one."""

import asyncio

import pytest

from dray.replica.barrier import Barrier, SharedTail


class Engine:
    """A tail whose answers a test hands out one by one."""

    def __init__(self) -> None:
        self.calls: list[asyncio.Future[int]] = []

    async def tail(self) -> int:
        self.calls.append(asyncio.get_running_loop().create_future())
        return await self.calls[-1]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_callers_that_come_during_a_call_share_the_next_one():
    engine = Engine()
    tails = SharedTail(engine.tail)
    first = asyncio.create_task(tails.get())
    await settle()
    later = [asyncio.create_task(tails.get()) for _ in range(5)]
    await settle()
    assert len(engine.calls) == 1
    engine.calls[0].set_result(10)
    await settle()
    assert first.result() == 10
    assert not any(task.done() for task in later), "LG3: they must not get an answer that is older than their question"
    assert len(engine.calls) == 2
    engine.calls[1].set_result(12)
    assert await asyncio.gather(*later) == [12] * 5


async def test_a_leader_that_is_cancelled_hands_the_call_over():
    engine = Engine()
    tails = SharedTail(engine.tail)
    leader = asyncio.create_task(tails.get())
    await settle()
    heirs = [asyncio.create_task(tails.get()) for _ in range(3)]
    await settle()
    leader.cancel()
    await settle()
    heirs[0].cancel()
    await settle()
    engine.calls[-1].set_result(5)
    assert await asyncio.gather(*heirs[1:]) == [5, 5]
    last = asyncio.create_task(tails.get())
    await settle()
    engine.calls[-1].set_result(6)
    assert await last == 6


async def test_an_heir_cancelled_before_it_could_lead_hands_over_too():
    engine = Engine()
    tails = SharedTail(engine.tail)
    leader = asyncio.create_task(tails.get())
    await settle()
    heirs = [asyncio.create_task(tails.get()) for _ in range(2)]
    await settle()
    engine.calls[0].set_result(1)
    await asyncio.sleep(0)
    heirs[0].cancel()
    await settle()
    engine.calls[-1].set_result(2)
    assert await heirs[1] == 2
    assert await leader == 1


async def test_an_error_reaches_every_sharer_and_the_next_call_is_fresh():
    engine = Engine()
    tails = SharedTail(engine.tail)
    first = asyncio.create_task(tails.get())
    await settle()
    second = asyncio.create_task(tails.get())
    third = asyncio.create_task(tails.get())
    await settle()
    engine.calls[0].set_exception(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await first
    await settle()
    engine.calls[1].set_exception(ConnectionError("gone"))
    for task in (second, third):
        with pytest.raises(ConnectionError):
            await task
    fourth = asyncio.create_task(tails.get())
    await settle()
    engine.calls[2].set_result(3)
    assert await fourth == 3


async def test_waiters_are_released_in_order_of_position():
    barrier = Barrier()
    early, late = barrier.wait(5), barrier.wait(9)
    barrier.reached(4)
    assert not early.done()
    barrier.reached(8)
    assert early.done()
    assert not late.done()
