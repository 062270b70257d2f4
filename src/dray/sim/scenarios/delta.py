"""The delta log under brokers: offsets that are foretold, races that are lost, history that goes while writers sleep.

`deltalog` runs producers and readers as `appends` does, on a log that is kept
in the bucket: every commit is held against what it foretold, every
acknowledged entry against the log. `turns` lets writers that are never done
race for one log: each gets its share. `dozers` has one that falls asleep before
its puts, for longer than others keep what they have trimmed.
"""

import asyncio
from contextlib import suppress
from typing import Final

from dray.errors import DrayError
from dray.log.delta.boundaries import Boundaries
from dray.log.delta.engine import DeltaLog
from dray.log.delta.turns import FairTurns
from dray.sim.delta import DeltaCluster
from dray.sim.nemesis import crash, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import delta as bugs
from dray.sim.process import Process
from dray.sim.scenarios.appends import run
from dray.sim.world import World

WORK_SECONDS: Final = 60.0
WRITERS: Final = 3
LEAST_SHARE: Final = 0.25
"""Of a fair one, for the slowest of the writers."""
COMMITS: Final = 240
TURNS_SECONDS: Final = 120.0
DOZE_S: Final = 6.0
DOZE_SECONDS: Final = 600.0
SHORT_GRACE_S: Final = 1.0
WRITE_PAUSE_S: Final = 0.3
LATE: Final = 10
"""Commits that landed under names which were free again, before the run ends."""


async def deltalog(world: World) -> None:
    """L-12, L-13, L-14, M20, LG41, LG42, LG43, SM20"""
    cluster = DeltaCluster(world, nodes=world.dice("size").randint(2, 3))
    await cluster.found()
    faults = [crash(), pause(longest=40.0), partition(longest=15.0), rough_weather(ROUGH)]
    await run(world, cluster, lambda: faults, work_seconds=WORK_SECONDS)
    world.check(cluster.foretold > 20, "hardly an offset was foretold: the run proves nothing", told=cluster.foretold)
    world.check(cluster.trims > 0, "nothing was trimmed: the run proves nothing")
    world.check(cluster.races > 0, "nobody lost a race: the run proves nothing")


async def turns(world: World) -> None:
    """Fair weather, and every writer has always something to write."""
    cluster = DeltaCluster(world, nodes=0)
    await cluster.found()
    enough = asyncio.Event()
    won = dict.fromkeys((f"writer-{number}" for number in range(WRITERS)), 0)

    async def write(process: Process) -> None:
        log = await cluster.delta(process).open()
        while True:
            with suppress(DrayError):
                await log.append(f"{process.name}/{won[process.name]}".encode())
                won[process.name] += 1
            if sum(won.values()) >= COMMITS:
                enough.set()

    for name in won:
        world.node(name, write).start()
    await world.within(TURNS_SECONDS, enough.wait(), "writers write in fair weather")
    share = sum(won.values()) / WRITERS
    world.check(min(won.values()) >= LEAST_SHARE * share, "a writer was left behind", won=won)


async def dozers(world: World) -> None:
    """LG41, LG43, SM20: who wins the name of a version that others had, trimmed and deleted is not believed."""
    cluster = DeltaCluster(world, nodes=0, grace_s=SHORT_GRACE_S)
    await cluster.found()
    enough = asyncio.Event()

    async def write(process: Process) -> None:
        dice = world.dice(process.name)
        dozes = (lambda: DOZE_S * dice.random()) if process.name == "dozer" else None
        log, number = await cluster.delta(process, dozes=dozes).open(), 0
        while True:
            with suppress(DrayError):
                await log.append(f"{process.name}/{number}".encode())
            number += 1
            await process.clock.sleep(WRITE_PAUSE_S)

    async def trim(process: Process) -> None:
        log = await cluster.delta(process).open()
        while cluster.late < LATE:
            with suppress(DrayError):
                await log.trim(await log.tail())
            await process.clock.sleep(SHORT_GRACE_S / 2)
        enough.set()

    for name, boot in (("dozer", write), ("writer", write), ("trimmer", trim)):
        world.node(name, boot).start()
    await world.within(DOZE_SECONDS, enough.wait(), "somebody puts what others have deleted")


SCENARIOS: Final[dict[str, Scenario]] = {"deltalog": deltalog, "turns": turns, "dozers": dozers}

PLANTED: Final[dict[str, Scenario]] = {
    "deltalog/foretells-too-early": planted(deltalog, (DeltaLog, "_foretold", bugs.foretells_too_early)),
    "deltalog/cuts-at-once": planted(deltalog, (Boundaries, "raise_to", bugs.cuts_at_once)),
    "dozers/believes-every-put": planted(dozers, (DeltaLog, "_is_zombie", bugs.believes_every_put)),
    "turns/never-gives-way": planted(turns, (FairTurns, "pause_s", property(bugs.never_gives_way))),
}
