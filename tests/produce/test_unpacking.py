"""Compressed batches are unpacked one of each connection at a time, in turns."""

import asyncio
import random
from collections import Counter

import pytest

from dray.produce.unpacking import Unpacking


class Gates:
    """An offload whose work ends when a test says so."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}
        self.begun: list[str] = []
        self.most: Counter[str] = Counter()

    async def run(self, function, /, *args, **kwargs):
        name = function(*args, **kwargs)
        self.begun.append(name)
        self.running[name] = asyncio.Event()
        owners = Counter(one[0] for one in self.running)
        self.most |= owners
        self.most["all"] = max(self.most["all"], len(self.running))
        try:
            await self.running[name].wait()
        finally:
            del self.running[name]
        return name


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def end(gates: Gates, name: str) -> None:
    gates.running[name].set()
    await settle()


async def test_one_that_sends_much_does_not_hold_up_one_that_sends_little() -> None:
    """KP21, KP22."""
    gates = Gates()
    unpacking = Unpacking(gates, 2)
    tasks = [asyncio.create_task(unpacking.run("a", lambda n=n: f"a{n}")) for n in range(40)]
    await settle()
    assert gates.begun == ["a0"], "the other thread is left for others"
    tasks += [asyncio.create_task(unpacking.run(owner, lambda o=owner: f"{o}0")) for owner in "bc"]
    await settle()
    assert gates.begun == ["a0", "b0"]
    await end(gates, "a0")
    assert gates.begun == ["a0", "b0", "c0"], "who has waited longest since its last turn"
    await end(gates, "b0")
    assert gates.begun == ["a0", "b0", "c0", "a1"]
    for n in range(1, 40):
        await end(gates, f"a{n}")
    await end(gates, "c0")
    assert await asyncio.gather(*tasks) == [*(f"a{n}" for n in range(40)), "b0", "c0"]


@pytest.mark.parametrize("seed", range(20))
async def test_whoever_comes_ends_or_gives_up_no_turn_is_lost(seed: int) -> None:
    """KP21: and in the end nothing is running and everybody could."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    gates = Gates()
    unpacking = Unpacking(gates, 2)
    tasks: list[asyncio.Task[str]] = []
    for number in range(60):
        owner = dice.choice("abcd")
        tasks.append(asyncio.create_task(unpacking.run(owner, lambda o=owner, n=number: f"{o}{n}")))
        if dice.random() < 0.5:
            await asyncio.sleep(0)
        if gates.running and dice.random() < 0.5:
            gates.running[dice.choice(list(gates.running))].set()
        if dice.random() < 0.3:
            dice.choice(tasks).cancel()
    while not all(task.done() for task in tasks):
        for gate in gates.running.values():
            gate.set()
        await asyncio.sleep(0)
    await settle()
    assert gates.most["all"] <= 2
    assert all(count == 1 for owner, count in gates.most.items() if owner != "all")
    late = [asyncio.create_task(unpacking.run(owner, lambda o=owner: f"{o}late")) for owner in "xy"]
    await settle()
    assert sorted(gates.running) == ["xlate", "ylate"]
    for gate in gates.running.values():
        gate.set()
    await asyncio.gather(*late)
