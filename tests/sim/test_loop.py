"""The loop: virtual time, a seeded schedule, no way out."""

import asyncio
import gc
import random
import subprocess
import sys

import pytest

from dray.sim.loop import Deadlock, OutOfBounds, SimLoop, SimulationError
from dray.sim.world import World


def play(main, seed=1, **bounds):
    loop = SimLoop(seed, **bounds)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def test_sleeping_for_years_costs_nothing_and_time_is_exact():
    async def main():
        await asyncio.sleep(10 * 365 * 86_400)
        return asyncio.get_running_loop().time()

    assert play(main) == 10 * 365 * 86_400


def test_timers_fire_in_order_of_their_time():
    async def main():
        seen = []
        loop = asyncio.get_running_loop()
        for delay in (3, 1, 2, 1):
            loop.call_later(delay, seen.append, delay)
        await asyncio.sleep(4)
        return seen

    assert play(main) == [1, 1, 2, 3]


def order_of_steps(seed):
    async def main():
        seen = []

        async def step(name):
            seen.append(name)

        async with asyncio.TaskGroup() as group:
            for name in range(6):
                group.create_task(step(name))
        return seen

    return play(main, seed)


def test_tasks_that_are_ready_together_run_in_an_order_drawn_from_the_seed():
    """SM1"""
    orders = {tuple(order_of_steps(seed)) for seed in range(20)}
    assert len(orders) > 10
    assert all(order_of_steps(seed) == order_of_steps(seed) for seed in range(20))


def test_callbacks_keep_the_order_in_which_they_were_scheduled():
    async def main():
        seen, steps = [], []
        loop = asyncio.get_running_loop()
        for number in range(10):
            loop.call_soon(seen.append, number)
            steps.append(asyncio.ensure_future(asyncio.sleep(0)))
        await asyncio.gather(*steps)
        return seen

    for seed in range(20):
        assert play(main, seed) == list(range(10))


def test_a_cancelled_timer_does_not_fire_and_dead_timers_do_not_pile_up():
    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(10_000):
            async with asyncio.timeout(1_000):
                await asyncio.sleep(0)
        assert len(loop._timers) < 200
        await asyncio.sleep(2_000)
        return loop.time()

    assert play(main) == 2_000


def test_waiting_for_ever_is_a_deadlock_that_names_the_line():
    """SM3"""

    async def waits_for_nobody():
        await asyncio.get_running_loop().create_future()

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_nobody(), name="lonely")

    with pytest.raises(Deadlock, match=r"lonely waits at .*waits_for_nobody \(test_loop.py:\d+\)"):
        play(main)


def test_spinning_is_out_of_bounds():
    """SM3"""

    async def main():
        while True:
            await asyncio.sleep(0)

    with pytest.raises(OutOfBounds, match="main waits at"):
        play(main, max_steps=1_000)


def test_time_without_end_is_out_of_bounds():
    """SM3"""

    async def main():
        while True:
            await asyncio.sleep(1_000)

    with pytest.raises(OutOfBounds):
        play(main, max_seconds=1e6)


def test_threads_and_sockets_do_not_exist():
    async def in_a_thread():
        await asyncio.to_thread(print)

    async def over_a_socket():
        await asyncio.open_connection("localhost", 1)

    async def by_a_process():
        await asyncio.create_subprocess_exec("true")

    with pytest.raises(SimulationError, match="Offload"):
        play(in_a_thread)
    with pytest.raises(NotImplementedError):
        play(over_a_socket)
    with pytest.raises(NotImplementedError):
        play(by_a_process)


def test_the_collector_is_off_while_the_loop_runs_and_on_again_after():
    """SM1"""

    async def main():
        return gc.isenabled()

    assert gc.isenabled()
    assert play(main) is False
    assert gc.isenabled()


def test_a_dropped_generator_is_closed_by_the_loop():
    async def main():
        closed = []

        async def numbers():
            try:
                while True:
                    yield 1
            finally:
                await asyncio.sleep(1)
                closed.append(True)

        async for _ in numbers():
            break
        await asyncio.sleep(2)
        return closed

    assert play(main) == [True]


def test_an_exception_that_nobody_takes_is_kept_as_a_failure():
    world = World(1)

    async def bad():
        raise ValueError("lost")

    async def scenario(world):
        world.kept = asyncio.ensure_future(bad())
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    world.run(scenario)
    assert "ZeroDivisionError" in world.loop.failures[0]
    assert "lost" in world.loop.untaken()[0]
    world.close()


PROGRAM = """
import asyncio
from dray.sim.world import World

async def scenario(world):
    names = set("alpha beta gamma delta epsilon zeta eta theta".split())
    dice = world.dice("work")

    async def worker(name):
        try:
            for i in range(5):
                await asyncio.sleep(dice.random())
                world.trace.add(name, "step", i=i)
                if i == 3:
                    raise ValueError
        finally:
            world.trace.add(name, "end")

    try:
        async with asyncio.TaskGroup() as group:
            for name in sorted(names):
                group.create_task(worker(name))
    except* ValueError:
        pass
    futures = {world.loop.create_future() for _ in range(50)}
    for place, future in enumerate(futures):
        future.set_result(place)
        future.add_done_callback(lambda f: world.trace.add("done", str(f.result())))
    done, _ = await asyncio.wait(futures)
    world.trace.add("order", str([f.result() for f in done]))

world = World(11)
world.run(scenario)
print(world.fingerprint())
"""


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_in_other_processes_and_under_other_hash_seeds():
    """SM1, SM4: cancellation order of a TaskGroup and sets of futures included."""
    seen = set()
    for hash_seed in ("0", "1", "12345", "random"):
        ballast = f"ballast = [object() for _ in range({random.randrange(10_000)})]\n"
        done = subprocess.run(
            [sys.executable, "-c", ballast + PROGRAM],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1
