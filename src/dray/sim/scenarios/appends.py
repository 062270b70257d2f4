"""Appends through several brokers, and LATEST while they happen.

Producers with and without ids send to shared streams through any broker;
crashes, pauses, cuts, lost replies and late copies strike; then everything
heals, every broker must take requests again, and the log, the replicas, a
fresh fold and what the clients saw must agree (`workload` says in what).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dray.errors import DrayError
from dray.machine.offsets import Offsets
from dray.machine.sessions import Sessions
from dray.replica.replica import Replica
from dray.replica.stall import StallWatch
from dray.sim.brokers import Cluster
from dray.sim.log import FaultyLog
from dray.sim.nemesis import Fault, Nemesis, clock_drift, clock_jump, crash, half_open, partition, pause, rough_weather
from dray.sim.network import ROUGH, Weather
from dray.sim.planted import Scenario, planted
from dray.sim.planted import appends as bugs
from dray.sim.workload import Workload
from dray.sim.world import World

WORK_SECONDS: Final = 60.0
REST_SECONDS: Final = ROUGH.copy_within + 30.0
PROGRESS_SECONDS: Final = 120.0
HELD: Final = Weather(max_delay=8.0, timeout=10.0)
IMPATIENT_SECONDS: Final = 6.0
"""As long as a broker keeps a commit before it sends it, and a little more: then its client goes to another one."""


def everything() -> list[Fault]:
    return [crash(), pause(), partition(), half_open(), rough_weather(ROUGH), clock_jump(), clock_drift()]


async def appends(world: World) -> None:
    """R-011..R-014, R-018..R-021, R-043, R-044, R-100, R-101"""
    await run(world, Cluster(world, nodes=world.dice("size").randint(2, 3)), everything)


async def latest(world: World) -> None:
    """R-012: many readers, few writers, processes that lag."""
    cluster = Cluster(world)
    faults = [pause(), partition(longest=10.0), half_open(), rough_weather(ROUGH)]
    await run(world, cluster, lambda: faults, readers=6, plain=1)


async def commits(world: World) -> None:
    """R-043, R-190: many consumers commit through any broker, while brokers sleep, and the network holds what they
    sent, for longer than a client waits."""
    cluster = Cluster(world)
    cluster.patience = IMPATIENT_SECONDS
    faults = [pause(longest=50.0), partition(longest=10.0), half_open(), rough_weather(ROUGH)]
    faults.append(rough_weather(HELD, name="held"))
    await run(world, cluster, lambda: faults, readers=1, plain=1, committers=6)


async def renewals(world: World) -> None:
    """W1, RP10: sessions that can name a dozen objects each."""
    cluster = Cluster(world, counters=12)
    await run(world, cluster, everything, plain=4)
    opened = cluster.truth.machine.sessions.newest
    world.check(opened > len(world.nodes), "no session was spent: the run proves nothing", opened=opened)


async def run(
    world: World,
    cluster: Cluster,
    faults: Callable[[], list[Fault]],
    *,
    readers: int = 2,
    plain: int = 2,
    committers: int = 1,
    work_seconds: float = WORK_SECONDS,
) -> Workload:
    """Work under faults, heal, come to rest, compare."""
    workload = Workload(cluster)
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(3), "a topic is created in fair weather")
    await world.within(PROGRESS_SECONDS, _open_sessions(cluster), "every broker opens its session")
    workload.start(readers=readers, plain=plain, committers=committers)
    nemesis = Nemesis(world, faults(), period=10.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(work_seconds)
    nemesis.heal()
    workload.history.working = False
    await finish(world, cluster, workload)
    return workload


async def _open_sessions(cluster: Cluster) -> None:
    while not all(broker.replica.session is not None for broker in cluster.live()):
        for broker in cluster.live():
            with suppress(DrayError):  # a fault of the scenario's own may strike already
                await cluster.ask(lambda broker: broker.replica.open_session(), broker=broker)


async def finish(world: World, cluster: Cluster, workload: Workload) -> None:
    """After heal: progress within a bound, and one truth."""
    await asyncio.sleep(REST_SECONDS)  # the latest copy may still be under way
    missing = [name for name, node in world.nodes.items() if node.restart_after is not None and not node.alive]
    world.check(not missing, "a node is not back after heal", nodes=missing)
    await world.within(PROGRESS_SECONDS, workload.prove_progress(), "every broker works after heal")
    world.check(bool(workload.history.reads), "nothing was read: the run proves nothing")
    await workload.check()
    await cluster.compare_states()


SCENARIOS: Final[dict[str, Scenario]] = {"appends": appends, "commits": commits, "latest": latest, "renewals": renewals}

PLANTED: Final[dict[str, Scenario]] = {
    "appends/no-n-check": planted(appends, (Sessions, "judge", bugs.without_n_check)),
    "appends/missed-entry": planted(appends, (FaultyLog, "follow", bugs.missing_one)),
    "appends/stalls-are-waited-for": planted(appends, (StallWatch, "stalled", bugs.never_stalled)),
    "commits/no-age": planted(commits, *bugs.OLD_COMMITS_ARE_SENT),
    "commits/stale-commits-are-taken": planted(commits, (Offsets, "_is_stale", bugs.never_stale)),
    "latest/no-tail-wait": planted(latest, (Replica, "sync", bugs.without_tail_wait)),
    "renewals/counters-again": planted(renewals, *bugs.COUNTERS_AGAIN),
}
