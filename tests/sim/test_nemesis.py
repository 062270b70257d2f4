"""The schedule of faults, and what is left when it ends."""

import asyncio

import pytest

from dray.sim.nemesis import Fault, Nemesis, clock_drift, clock_jump, crash, partition, pause, rollback, rough_weather
from dray.sim.network import FAIR, ROUGH
from dray.sim.process import Life
from dray.sim.world import World

FAULTS = (crash, pause, partition, clock_jump, clock_drift)


def play(seed, faults, seconds=300.0):
    world = World(seed)
    nemesis = Nemesis(world, faults(world), period=10.0)

    async def boot(process):
        log = world.connect(process, world.log())
        while True:
            await process.clock.sleep(1)
            try:
                async with asyncio.timeout(30):
                    await log.append(b"x")
            except Exception:
                continue

    async def scenario(world):
        for name in "abc":
            world.node(name, boot).start()
        world.network.start(nemesis.run())
        await asyncio.sleep(seconds)
        nemesis.heal()
        world.running = [(node.alive, node.process.life) for node in world.nodes.values()]
        world.links = [(link.is_up(), link.weather) for link in world.network.links()]
        before = [node.incarnation for node in world.nodes.values()]
        await asyncio.sleep(100)
        assert before == [node.incarnation for node in world.nodes.values()], "after heal nothing strikes"

    world.run(scenario)
    world.close()
    return world, nemesis


def all_faults(world):
    return [*(fault() for fault in FAULTS), rough_weather(ROUGH), rollback(world.log())]


@pytest.mark.slow
def test_every_kind_of_fault_strikes_and_heal_leaves_nothing_broken():
    """SM13"""
    struck = set()
    for seed in range(12):
        world, nemesis = play(seed, all_faults)
        struck |= set(nemesis.struck)
        assert world.running == [(True, Life.RUNNING)] * 3, f"seed={seed}"
        assert world.links == [(True, FAIR)] * 3, f"seed={seed}"
    assert struck == {"crash", "pause", "partition", "weather", "clock jump", "clock drift", "rollback"}


def test_about_a_quarter_of_the_periods_are_quiet_and_begin_healed():
    world = World(1)
    broken = []

    def strike(world, dice):
        broken.append(True)
        return broken.clear

    nemesis = Nemesis(world, [Fault(name="any", strike=strike, longest=1e6)], period=10.0)
    seen = []
    world.trace.add = lambda who, what: seen.append(what == "quiet" and len(broken))

    async def scenario(world):
        world.network.start(nemesis.run())
        await asyncio.sleep(20_000)

    world.run(scenario)
    world.close()
    assert 0.2 < nemesis.quiet_periods / nemesis.periods < 0.3
    assert any(seen), "something was broken when a quiet period began"
    assert nemesis.struck["any"] > 1_000


def test_the_same_seed_strikes_alike():
    once, again, other = (play(seed, all_faults, 60.0)[0].fingerprint() for seed in (3, 3, 4))
    assert once == again
    assert once != other
