"""Processes: death without last words, pauses, clocks, threads."""

import asyncio
import gc

import pytest

from dray.sim.process import YEAR_MS, Life
from dray.sim.world import Violation, World


@pytest.fixture
def world():
    world = World(7)
    yield world
    world.close()


def test_a_crash_runs_no_finally_and_no_further_step(world):
    """SM2, SM5"""
    seen = []

    async def boot(process):
        async def child():
            try:
                while True:
                    await asyncio.sleep(1)
                    seen.append("child")
            finally:
                seen.append("child finally")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                group.create_task(child())
        except BaseException:
            seen.append("caught")
            raise
        finally:
            seen.append("main finally")

    async def scenario(world):
        node = world.node("a", boot)
        process = node.start()
        await asyncio.sleep(2.5)
        node.crash()
        before = list(seen)
        await process.ended()
        del process
        node.start()  # the dead process' objects have no owner now but the loop
        await asyncio.sleep(0.5)
        node.crash()
        await asyncio.sleep(1_000)
        return before

    before = world.run(scenario)
    gc.collect()
    assert before == ["child"] * 4
    assert seen == before


def test_a_dropped_generator_of_a_dead_process_is_not_closed(world):
    """SM2"""
    seen = []

    async def boot(process):
        async def numbers():
            try:
                while True:
                    yield 1
            finally:
                seen.append("generator finally")

        world.generator = numbers()
        await anext(world.generator)
        await asyncio.sleep(1_000)

    async def scenario(world):
        node = world.node("a", boot)
        node.start()
        await asyncio.sleep(1)
        node.crash()
        del world.generator
        await asyncio.sleep(10)

    world.run(scenario)
    assert seen == []


def test_a_crash_can_be_placed_before_each_single_step(world):
    """SM5: enumerated crashes leave out no await."""

    def progress(step):
        world = World(7)
        seen = []

        async def boot(process):
            for number in range(5):
                seen.append(number)
                await process.clock.sleep(1)
                await asyncio.sleep(0)

        async def scenario(world):
            process = world.node("a", boot).start()
            if step is not None:
                process.crash_at(step)
            await process.ended()
            return process.life, process.steps

        life, steps = world.run(scenario)
        world.close()
        return life, steps, seen

    life, total, seen = progress(None)
    assert (life, seen) == (Life.EXITED, [0, 1, 2, 3, 4])
    reached = [progress(step) for step in range(total)]
    assert [steps for _, steps, _ in reached] == list(range(total))
    assert {len(seen) for _, _, seen in reached} == {0, 1, 2, 3, 4, 5}
    assert {life for life, _, _ in reached} == {Life.DEAD}


def test_a_paused_process_stands_still_while_its_clocks_go_on(world):
    """SM6"""
    seen = []

    async def boot(process):
        while True:
            await process.clock.sleep(1)
            seen.append((process.clock.boot_ns(), process.clock.wall_ms()))

    async def scenario(world):
        process = world.node("a", boot).start()
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(60)
        assert len(seen) == 2
        process.resume()
        await asyncio.sleep(0)
        await asyncio.sleep(0.1)

    world.run(scenario)
    assert len(seen) == 3
    assert seen[2][0] - seen[1][0] == 60_500_000_000
    assert seen[2][1] - seen[1][1] == 60_500


def test_a_timeout_that_fell_due_during_a_pause_fires_after_it(world):
    """SM6"""
    seen = []

    async def boot(process):
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(1_000)
        except TimeoutError:
            seen.append(asyncio.get_running_loop().time())

    async def scenario(world):
        process = world.node("a", boot).start()
        await asyncio.sleep(1)
        process.pause()
        await asyncio.sleep(99)
        process.resume()
        await process.ended()

    world.run(scenario)
    assert seen == [100.0]


def test_when_main_returns_the_other_tasks_of_the_process_are_gone(world):
    seen = []

    async def boot(process):
        async def leftover():
            await asyncio.sleep(5)
            seen.append("leftover")

        process.leftover = asyncio.ensure_future(leftover())
        await asyncio.sleep(1)

    async def scenario(world):
        process = world.node("a", boot).start()
        await process.ended()
        await asyncio.sleep(10)
        return process.life

    assert world.run(scenario) is Life.EXITED
    assert seen == []


def test_a_process_that_exits_with_an_error_is_a_violation_unless_it_may(world):
    async def boot(process):
        raise ValueError("bad")

    async def scenario(world):
        node = world.node("a", boot)
        node.may_exit = lambda error: isinstance(error, ValueError)
        node.start()
        await asyncio.sleep(1)
        strict = world.node("b", boot)
        strict.start()
        await asyncio.sleep(1)

    with pytest.raises(Exception, match="stopped"):
        world.run(scenario)
    assert "node=b" in str(world.violations[0])
    assert "ValueError: bad" in str(world.violations[0])


def test_a_supervised_node_starts_again_after_it_exits(world):
    """SM7"""
    lives = []

    async def boot(process):
        lives.append(process.entropy.random_bytes(4))
        await asyncio.sleep(1)

    async def scenario(world):
        node = world.node("a", boot)
        node.restart_after = 2.0
        node.start()
        await asyncio.sleep(10)

    world.run(scenario)
    assert len(lives) == 4
    assert len(set(lives)) == 4, "each process has its own dice"


def test_clocks_jump_and_drift_by_machine(world):
    """SM7"""

    async def boot(process):
        await asyncio.sleep(1_000)

    async def scenario(world):
        a, b = world.node("a", boot), world.node("b", boot)
        a.start(), b.start()
        boot_before = a.clock.boot_ns()
        a.clock.jump_wall(10 * YEAR_MS)
        assert a.clock.wall_ms() - b.clock.wall_ms() == 10 * YEAR_MS
        assert a.clock.boot_ns() == boot_before
        a.clock.drift(1.1)
        await asyncio.sleep(100)
        assert a.clock.wall_ms() - b.clock.wall_ms() == 10 * YEAR_MS + 10_000
        assert a.clock.boot_ns() == 110_000_000_000
        a.clock.drift(1.0)
        a.crash(power=True)
        assert a.clock.boot_ns() == 0
        assert a.clock.wall_ms() - b.clock.wall_ms() == 10 * YEAR_MS + 10_000

    world.run(scenario)


def test_offloaded_work_goes_on_when_its_caller_is_cancelled_and_ends_with_its_process(world):
    seen = []

    async def boot(process):
        process.offload.max_delay = 0.0
        assert await process.offload.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await process.offload.run(divmod, 7, 0)
        task = asyncio.ensure_future(process.offload.run(seen.append, "cancelled caller"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(1)
        process.offload.max_delay = 10.0
        for _ in range(20):
            process.spawn(process.offload.run(seen.append, "after death"))
        await asyncio.sleep(1_000)

    async def scenario(world):
        node = world.node("a", boot)
        node.start()
        await asyncio.sleep(1.000001)
        before = len(seen)
        node.crash()
        await asyncio.sleep(1_000)
        return before

    before = world.run(scenario)
    assert seen[0] == "cancelled caller"
    assert len(seen) == before < 21


def test_a_disk_that_loses_power_in_a_call_takes_its_machine_with_it(world):
    class Gone(BaseException):
        pass

    cuts, seen = [], []

    class Disk:
        def crash(self):
            cuts.append("power")

        def restart(self):
            cuts.append("kill")

    def write():
        raise Gone

    async def boot(process):
        try:
            await process.offload.run(write)
        finally:
            seen.append("finally")

    async def scenario(world):
        node = world.node("a", boot, disk=Disk())
        process = node.start()
        await process.ended()
        await asyncio.sleep(10)
        assert cuts == ["power"]
        node.start()
        return process.life

    assert world.run(scenario) is Life.DEAD
    assert (cuts, seen) == (["power", "kill"], [])


def test_a_clone_draws_the_same_dice_and_reads_the_same_clocks_as_its_original(world):
    drawn = {}

    async def boot(process):
        await asyncio.sleep(1)
        drawn[process.name] = process.entropy.random_bytes(8), process.clock.wall_ms(), process.clock.boot_ns()
        await asyncio.sleep(100)

    async def scenario(world):
        node = world.node("a", boot)
        node.clock.jump_wall(12_345)
        process = node.start()
        process.entropy.random_bytes(3)
        node.clone("b", boot).start()
        await asyncio.sleep(10)

    world.run(scenario)
    assert drawn["a"] == drawn["b"]


def test_a_violation_ends_the_run_even_if_product_code_swallows_it(world):
    async def boot(process):
        while True:
            try:
                await asyncio.sleep(1)
                raise world.violate("broken", number=7)
            except Exception:
                continue

    async def scenario(world):
        world.node("a", boot).start()
        await asyncio.sleep(1_000)

    with pytest.raises(Exception, match="stopped"):
        world.run(scenario)
    assert [str(violation) for violation in world.violations] == ["broken number=7"]
    assert isinstance(world.violations[0], Violation)
