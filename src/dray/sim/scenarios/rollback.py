"""An old copy of the log is restored under running brokers.

Everyone has seen entries that are gone now, and their positions are given to
others. Checked: every replica that can tell stops (Q6, R-050); until it stops
it never says that less exists than it said before; nobody asks afterwards that
something be deleted that the log ever named, though collectors run all the time.
"""

import asyncio
from typing import Final

from dray.machine.machine import Machine
from dray.machine.names import WalId, parse_wal_id
from dray.objects.paths import WalName
from dray.replica.errors import Diverged
from dray.sim.brokers import Cluster
from dray.sim.nemesis import Nemesis, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.scenarios.garbage import EAGER, GRACE_MS
from dray.sim.workload import Workload
from dray.sim.world import World

WORK_SECONDS: Final = 30.0
STOP_SECONDS: Final = 60.0
LAST_ANSWER_SECONDS: Final = 25.0
IN_FLIGHT_SECONDS: Final = ROUGH.max_delay
"""How long an answer of the log that was may be under way; who gets it may ask for a deletion."""


async def rollback(world: World) -> None:
    """R-050, Q6"""
    dice = world.dice("rollback")
    cluster = Cluster(world, min_grace_ms=GRACE_MS, settings=EAGER)
    cluster.expected = (*cluster.expected, Diverged)
    workload = Workload(cluster)
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created in fair weather")
    workload.start(plain=2, idempotent=1, readers=3, committers=1)
    nemesis = Nemesis(world, [pause(longest=10.0), rough_weather(ROUGH)], period=10.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    await world.within(PROGRESS_SECONDS, _all_know_the_tail(cluster), "every broker follows after heal")
    for node in world.nodes.values():
        node.restart_after = None  # an operator must look
    cluster.log.on_landed = None  # what lands now is no longer the log that was
    workload.rolled_back()
    cluster.log.rollback(dice.choice([1, 2, 5, 20, 100]))
    known_by = world.loop.time() + IN_FLIGHT_SECONDS
    await asyncio.sleep(STOP_SECONDS)
    workload.history.working = False
    await asyncio.sleep(LAST_ANSWER_SECONDS)
    if cluster.live():
        await _check_survivors(world, cluster)
    else:
        asked = [deletion.path for deletion in cluster.bucket.deletions if deletion.sent > known_by]
        named = [path for path in asked if _was_named(cluster.truth.machine, path)]
        world.check(not named, "something was deleted after the rollback", names=named)


def _was_named(machine: Machine, path: str) -> bool:
    """Whether an entry named the object; the second copy of a slow put is its broker's to delete (PR6)."""
    parts = parse_wal_id(WalId(WalName.parse(path).wal_id))
    return parts.counter in machine.objects.counters_of(parts.log_id, parts.session)


async def _check_survivors(world: World, cluster: Cluster) -> None:
    """Who saw what was lost, and looked again only when its place was filled or skipped, cannot know.

    Such replicas are of one mind, and nobody may join them: their entries name what the log does not hold.
    """
    digests: dict[int, int] = {}
    for broker in cluster.live():
        machine = broker.replica.machine
        agreed = digests.setdefault(machine.position, machine.digest)
        world.check(agreed == machine.digest, "two replicas serve two histories", position=machine.position)
    newcomer = cluster.add("newcomer")
    newcomer.restart_after = None
    process = newcomer.start()
    await asyncio.sleep(STOP_SECONDS)
    world.check(isinstance(process.error, Diverged), "a fresh replica joins a log that was rolled back")


async def _all_know_the_tail(cluster: Cluster) -> None:
    while True:
        tail = cluster.log.tail()
        if len(cluster.live()) == len(cluster.world.nodes) and all(
            broker.replica.machine.position >= tail for broker in cluster.live()
        ):
            return
        await asyncio.sleep(0.01)


SCENARIOS: Final[dict[str, Scenario]] = {"rollback": rollback}

PLANTED: Final[dict[str, Scenario]] = {}
