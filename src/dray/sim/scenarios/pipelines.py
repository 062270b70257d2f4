"""Producers that do not wait, a store that is slow and refuses, and commits whose outcome nobody learns.

`pipelines`: clients without producer ids send several batches of one stream
at once; puts fail one by one, are late, and are hedged. Checked besides what
other scenarios check: a batch is stored only behind those that its client
sent before it (PR2, R-092), and of a hedged pair one is stored (PR6).

`unknowns`: whoever has an Append ordered is often cut off from the log at
that moment, for longer than it waits for a verdict, while it reaches the
store. Checked: what may have been committed is not deleted (PR4).
"""

import asyncio
from dataclasses import replace
from random import Random
from typing import Final

from dray.log import envelope
from dray.machine.append import Append
from dray.machine.step import Applied
from dray.produce.lane import Lane
from dray.produce.placing import Placer
from dray.produce.settings import FlushPolicy
from dray.replica.writer import Timing
from dray.sim.brokers import SETTINGS, Cluster
from dray.sim.log import LogEntry
from dray.sim.nemesis import Fault, Nemesis, Undo, crash, partition, pause, rough_weather
from dray.sim.network import FAIR, ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import produce as bugs
from dray.sim.scenarios.appends import PROGRESS_SECONDS, finish
from dray.sim.scenarios.garbage import Warden
from dray.sim.store import SERVICE as STORE
from dray.sim.workload import Sent, Workload, value_of
from dray.sim.world import World

WORK_SECONDS: Final = 60.0
IMPATIENT: Final = Timing(ttl_ms=12_000, keepalive_ms=3_000, settle_ms=3_000)
"""A verdict is given up long before the session."""
SMALL: Final = replace(
    SETTINGS, flush=FlushPolicy(flushes=4, flush_batches=1, appends_per_second=10_000, hedge_floor_s=0.05)
)
"""An object for each batch: those of one client are in different hands."""


class Pipelines:
    """Clients that send several batches at once, in order."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._groups: list[list[Sent]] = []

    async def work(self, name: str, dice: Random) -> None:
        workload = self._workload
        while workload.history.working:
            await asyncio.sleep(dice.random() ** 2 * 2)
            stream = dice.choice(workload.cluster.streams)
            sent = [workload.note(workload.batch(dice, name, stream)) for _ in range(dice.randint(2, 6))]
            self._groups.append(sent)
            await workload.try_once(sent)

    def check(self) -> None:
        """PR2: whatever is there has all that was sent before it in front of it."""
        world, cluster = self._workload.world, self._workload.cluster
        places: dict[bytes, int] = {}
        for stream in cluster.streams:
            places |= self._workload.places[stream]
        for group in self._groups:
            found = [places.get(one.batch.data, -1) for one in group]
            for number, at in enumerate(found):
                overtaken = at >= 0 and not all(0 <= before < at for before in found[:number])
                world.check(
                    not overtaken,
                    "a batch has overtaken one that was sent before it",
                    value=value_of(group[number].batch),
                    at=found,
                )


def refusing_store() -> Fault:
    """The store takes a part of what one node, or everybody, sends, and late."""

    def strike(world: World, dice: Random) -> Undo | None:
        process = None if dice.random() < 0.3 else dice.choice(sorted(world.nodes))
        links = world.network.links(process, STORE)
        weather = replace(FAIR, refused=dice.uniform(0.3, 0.8), max_delay=dice.choice([0.05, 1.5]), timeout=1.0)
        world.trace.add("nemesis", "the store refuses", process=process or "all")
        for link in links:
            link.weather = weather

        def undo() -> None:
            for link in links:
                link.weather = FAIR

        return undo

    return Fault(name="refusing store", strike=strike, weight=4.0, longest=20.0)


async def pipelines(world: World) -> None:
    """R-092, PR2, PR6"""
    dice = world.dice("pipelines")
    cluster = Cluster(world, nodes=2, data_domains=dice.choice([1, 1, 2]), timing=IMPATIENT, settings=SMALL)
    Warden(cluster)
    workload = Workload(cluster)
    clients = Pipelines(workload)
    await _begin(world, cluster)
    workload.start(plain=0, idempotent=1, readers=1, committers=0)
    for number in range(3):
        world.network.start(clients.work(f"pipeline-{number}", world.dice(f"pipeline/{number}")))
    await _work(world, workload, [refusing_store(), rough_weather(ROUGH), partition(longest=10.0), crash()])
    await finish(world, cluster, workload)
    clients.check()


async def unknowns(world: World) -> None:
    """PR4, R-014"""
    cluster = Cluster(world, timing=IMPATIENT)
    Warden(cluster)
    workload = Workload(cluster)
    await _begin(world, cluster)
    cluster.truth.watchers.append(_Cutter(cluster).look)
    workload.start(plain=3, idempotent=1, readers=1, committers=0)
    await _work(world, workload, [crash(), pause(longest=10.0), rough_weather(ROUGH, longest=5.0)])
    await finish(world, cluster, workload)


class _Cutter:
    """Cuts a writer off from the log, and from nothing else, when an Append of it is ordered."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._dice = cluster.world.dice("cutter")

    def look(self, entry: LogEntry, applied: Applied) -> None:
        world = self._cluster.world
        session = self._cluster.truth.machine.sessions.live.get(applied.session)
        if session is None or not _appends(entry) or self._dice.random() > 0.1 or world.loop.time() > WORK_SECONDS:
            return
        link = world.network.link(session.name, self._cluster.log.name)
        link.cut()
        world.trace.add("cutter", "cut off", node=session.name)
        world.loop.call_later(self._dice.uniform(2, 9), link.join)


def _appends(entry: LogEntry) -> bool:
    head = envelope.decode_head(entry.entry)
    return any(kind == Append.number for kind, _ in envelope.decode_commands(entry.entry, head.count))


async def _begin(world: World, cluster: Cluster) -> None:
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created in fair weather")


async def _work(world: World, workload: Workload, faults: list[Fault]) -> None:
    nemesis = Nemesis(world, faults, period=8.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    workload.history.working = False


SCENARIOS: Final[dict[str, Scenario]] = {"pipelines": pipelines, "unknowns": unknowns}

PLANTED: Final[dict[str, Scenario]] = {
    "pipelines/overtakes-a-failed-batch": planted(pipelines, (Lane, "_overtake", bugs.overtakes_nobody)),
    "pipelines/both-of-a-pair": planted(
        pipelines, (Placer, "_lay_out", bugs.lay_out_and_remember), (Placer, "_outlive", bugs.commit_the_loser)
    ),
    "unknowns/deletes-what-may-be-there": planted(unknowns, (Lane, "_lose", bugs.lose_and_delete)),
}
