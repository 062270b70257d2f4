"""Rules that seldom matter, each in a world where it does.

    memory    one broker's memory goes bad: it gives other offsets than the log says
    returns   whoever is about to be expired comes back while the expiry is under way
    clocks    the boot clocks of all machines but one run away, hour by hour
    pauses    machines come up in another hour while checkpoints are loaded and retention runs

Checked: no state that differs from the log's stays unnoticed (Q6, M4): the
first to disagree stops, whichever of them is wrong, and an operator looks; a
session that has spoken is not expired (Q5); machine time stays within reach
of the one clock that works (Q7); and whoever begins from a checkpoint knows
that time is paused, as everyone else does (Q7, CK1).
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Final

from dray.log import envelope
from dray.log.port import Log, Position
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.machine.sessions import Expire, Sessions
from dray.machine.timeline import HOUR_MS
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import MemoryCheckpoints
from dray.replica.errors import Diverged
from dray.replica.fold import InlineFolder
from dray.replica.writer import Timing
from dray.retention.settings import RetentionSettings
from dray.sim.brokers import SETTINGS, Broker, Cluster
from dray.sim.folding import TimedFolder
from dray.sim.nemesis import Fault, Nemesis, Undo, crash, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import rules as bugs
from dray.sim.process import EPOCH_MS, Process
from dray.sim.scenarios.appends import PROGRESS_SECONDS, REST_SECONDS, finish
from dray.sim.scenarios.sessions import Watch, wrong_clock_at_boot
from dray.sim.workload import Workload
from dray.sim.world import World

WORK_SECONDS: Final = 50.0
QUICK: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=4_000)
NOTICED_SECONDS: Final = 30.0


async def _begin(world: World, cluster: Cluster, **clients: int) -> Workload:
    workload = Workload(cluster)
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created in fair weather")
    workload.start(**{"plain": 2, "idempotent": 1, "readers": 1, "committers": 0, **clients})
    return workload


async def _work(world: World, workload: Workload, faults: list[Fault], seconds: float = WORK_SECONDS) -> None:
    nemesis = Nemesis(world, faults, period=8.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(seconds)
    nemesis.heal()
    workload.history.working = False


async def memory(world: World) -> None:
    """Q6, M4, R-050"""
    dice = world.dice("memory")
    cluster = Cluster(world, timing=QUICK)
    cluster.expected = (*cluster.expected, Diverged)
    workload = await _begin(world, cluster, readers=0, idempotent=0)
    await asyncio.sleep(dice.uniform(5, 20))
    workload.rolled_back()  # what the damaged one tells may be wrong, until it is noticed
    workload.may_vanish = True
    for node in world.nodes.values():
        node.restart_after = None  # an operator must look
    broker = dice.choice(cluster.live())
    stream = broker.replica.machine.streams.find(dice.choice(cluster.streams))
    assert stream is not None
    stream.index.end += dice.randint(1, 5)
    world.trace.add(broker.process.name, "its memory went bad", stream=stream.id)
    await asyncio.sleep(NOTICED_SECONDS)
    workload.history.working = False
    await asyncio.sleep(cluster.patience)
    fresh = Machine()
    for entry in cluster.log.history:
        fresh.apply(entry.position, entry.entry)
    noticed = len(cluster.live()) < len(world.nodes)
    for left in cluster.live():
        machine = left.replica.machine
        await asyncio.sleep(0)
        same = machine.position != fresh.position or checkpoint.fingerprint(machine) == checkpoint.fingerprint(fresh)
        world.check(same or noticed, "nobody notices that a broker serves another state", node=left.process.name)


class _LateExpiries:
    """The way to the log on which expiries are slow; whom they are about is woken meanwhile."""

    def __init__(self, cluster: "ReturnsCluster", process: Process, inner: Log) -> None:
        self._cluster = cluster
        self._process = process
        self._inner = inner

    async def append(self, entry: bytes) -> Position:
        head, decoders = envelope.decode_head(entry), self._cluster.truth.machine.decoders
        for kind, payload in envelope.decode_commands(entry, head.count):
            if kind == Expire.number and self._cluster.adversary.random() < 0.7:
                command = decoders.decode(kind, payload, head.version)
                assert isinstance(command, Expire)
                self._cluster.wake(command)
                await self._process.clock.sleep(self._cluster.adversary.uniform(0.5, 2.5))
        return await self._inner.append(entry)

    def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        return self._inner.follow(after)

    async def tail(self) -> Position:
        return await self._inner.tail()

    async def trim(self, upto: Position) -> None:
        await self._inner.trim(upto)

    async def close(self) -> None:
        await self._inner.close()


class ReturnsCluster(Cluster):
    """A cluster whose sleepers wake at the worst moment."""

    def __init__(self, world: World, **how: Timing) -> None:
        super().__init__(world, **how)  # type: ignore[arg-type]
        self.adversary = world.dice("adversary")

    def connect(self, process: Process, domain: int = 0) -> Log:
        return _LateExpiries(self, process, super().connect(process, domain))

    def wake(self, command: Expire) -> None:
        session = self.truth.machine.sessions.live.get(command.session)
        node = None if session is None else self.world.nodes.get(session.name)
        if node is not None and node.process is not None:
            self.world.trace.add(node.name, "wakes as it is about to be expired")
            node.process.resume()


async def returns(world: World) -> None:
    """Q5"""
    cluster = ReturnsCluster(world, timing=QUICK)
    Watch(cluster)
    workload = await _begin(world, cluster)
    await _work(world, workload, [pause(longest=40.0)], seconds=80.0)
    await finish(world, cluster, workload)


def runaway() -> Fault:
    """The boot clock of any machine but the last jumps ahead by most of an hour."""

    def strike(world: World, dice: Random) -> Undo | None:
        name = dice.choice(sorted(world.nodes)[:-1])
        jump = dice.uniform(0.7, 0.95) * HOUR_MS
        world.trace.add(name, "boot clock jumps", ms=jump)
        world.nodes[name].clock.jump_boot(int(jump))
        return lambda: None

    return Fault(name="runaway", strike=strike, weight=5.0)


async def clocks(world: World) -> None:
    """Q7"""
    cluster = Cluster(world, timing=QUICK)
    workload = await _begin(world, cluster, readers=0)
    await asyncio.sleep(5)
    await _work(world, workload, [runaway()], seconds=WORK_SECONDS)
    await asyncio.sleep(REST_SECONDS)
    most = EPOCH_MS + world.loop.time() * 1000 + 2 * HOUR_MS + 60_000  # an hour beyond the last, and a lead
    time_ms = cluster.truth.machine.time_ms
    world.check(time_ms <= most, "time ran away from a clock that works", hours=(time_ms - most) / HOUR_MS)


async def pauses(world: World) -> None:
    """Q7, CK1"""
    store = MemoryCheckpoints()
    settings = replace(
        SETTINGS, retention=RetentionSettings(interval=timedelta(seconds=2), expiry_interval=timedelta(seconds=3))
    )
    cluster = Cluster(world, timing=QUICK, checkpoints={0: store}, settings=settings)
    workload = Workload(cluster)
    workload.may_vanish = True

    async def make_checkpoints(broker: Broker) -> None:
        process = broker.process
        folder = TimedFolder(InlineFolder(cluster.connect(process), store))
        await Checkpointer(broker.replica, store, folder, process.clock, due_bytes=6_000, kept_ms=1_000).run()

    cluster.beside.append(make_checkpoints)
    cluster.start()
    topic = cluster.create_topic(2, retention_bytes="600")
    await world.within(PROGRESS_SECONDS, topic, "a topic is created in fair weather")
    workload.start(plain=3, idempotent=1, readers=1, committers=0)
    faults = [wrong_clock_at_boot(), crash(), rough_weather(ROUGH, longest=10.0)]
    await _work(world, workload, faults, seconds=80.0)
    await finish(world, cluster, workload)


SCENARIOS: Final[dict[str, Scenario]] = {"clocks": clocks, "memory": memory, "pauses": pauses, "returns": returns}

PLANTED: Final[dict[str, Scenario]] = {
    "clocks/bounded-by-the-newest": planted(clocks, (Sessions, "oldest_clock", bugs.newest_clock)),
    "memory/digest-without-offsets": planted(memory, (Machine, "_chain", bugs.chain_entries_alone)),
    "pauses/forgotten-by-the-checkpoint": bugs.pause_forgotten(pauses),
    "returns/expire-without-last-n": planted(returns, (Sessions, "_expire", bugs.expire_whoever)),
}
