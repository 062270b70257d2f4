"""A simulated machine: who dies with whom, and what its disk keeps."""

import asyncio
from pathlib import Path

import pytest

from dray.sim.host import Host
from dray.sim.world import World

FILES = Path("/files")


def run(scenario, seed=1):
    world = World(seed)
    try:
        return world.run(scenario)
    finally:
        world.close()


def writer_on(host, name, done):
    """Creates and syncs a file every second, through its offload."""

    def write(number):
        file = host.disk.create(FILES / f"{name}-{number}")
        file.write([b"x"])
        file.sync()
        host.disk.sync_dir(FILES)

    async def boot(process):
        await process.offload.run(host.disk.make_dir, FILES)
        for number in range(100):
            await process.offload.run(write, number)
            done.append((name, number))
            await asyncio.sleep(1)

    return boot


@pytest.mark.parametrize("only_kill", [True, False])
def test_who_dies_in_a_call_of_the_disk_dies_alone_unless_the_power_goes(only_kill):
    """HO1"""

    async def scenario(world):
        host, done = Host(world), []
        nodes = [host.add(name, writer_on(host, name, done)) for name in ("a", "b")]
        host.start()
        await asyncio.sleep(5.5)
        host.disk.only_kill = only_kill
        host.disk.crash_at = host.disk.calls + 2
        await asyncio.sleep(3)
        alive = [node.alive for node in nodes]
        assert sorted(alive) == ([False, True] if only_kill else [False, False])
        before = set(done)
        await asyncio.sleep(3)
        assert (set(done) != before) == only_kill, "whoever lives goes on, on the same disk"
        assert {f"{name}-{number}" for name, number in before} <= set(host.disk.list(FILES))

    run(scenario)


def test_the_power_takes_what_was_not_synced_and_all_processes_share_a_clock():
    async def scenario(world):
        host = Host(world)
        times = {}

        async def boot(process):
            host.disk.make_dir(FILES)
            file = host.disk.create(FILES / process.name)
            file.write([b"x"])
            await asyncio.sleep(1)
            times[process.name] = process.clock.boot_ns()
            await asyncio.sleep(100)

        for name in ("a", "b"):
            host.add(name, boot)
        host.start()
        await asyncio.sleep(3)
        assert times["a"] == times["b"]
        assert host.disk.durable().list(FILES) == []
        host.disk.sync_dir(FILES)
        assert host.disk.durable().list(FILES) == ["a", "b"]
        assert host.disk.durable().read(FILES / "a") == b""
        host.cut_power()
        assert host.clock.boot_ns() == 0
        assert not any(node.alive for node in host.nodes)

    run(scenario)
