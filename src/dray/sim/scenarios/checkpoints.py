"""Checkpoints: made, compared, adopted, trimmed to, and jumped to.

Every broker makes, checks and adopts checkpoints with the product's own
`Checkpointer`; the log is trimmed behind them. A broker that was away longer
than the log remembers loads one and goes on. In every second run one node's
folds are damaged, differently each time.

Checked: every checkpoint that may be loaded is, to the byte, the fold of the
log up to it, and the log is trimmed only to such (CK1, CK2, K1); whoever was
told "surely not" across a jump finds nothing of it in the log (RP3); in the
end every replica equals a fresh fold of everything that was ever in the log.
"""

from contextlib import suppress
from random import Random
from typing import Final

from dray.errors import DrayError
from dray.log.port import Log, Position
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.machine.step import Applied
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import CheckpointStore, MemoryCheckpoints, newest_machine
from dray.replica.fold import Folder, InlineFolder, fold_to
from dray.replica.writer import Timing, Writer
from dray.sim.brokers import TOPIC, Broker, Cluster
from dray.sim.folding import TimedFolder
from dray.sim.log import LogEntry
from dray.sim.nemesis import crash, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import checkpoints as bugs
from dray.sim.scenarios.appends import run
from dray.sim.world import World

DUE_BYTES: Final = 15_000
KEPT_MS: Final = 2_000
WORK_SECONDS: Final = 100.0
PATIENT: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=60_000)
"""Callers who wait for their verdict longer than a session lives."""


class DamagedFolder:
    """A fold on a machine with bad memory: never twice the same."""

    def __init__(self, log: Log, store: CheckpointStore, dice: Random) -> None:
        self._log = log
        self._store = store
        self._dice = dice

    async def fold(self, upto: int) -> None:
        machine = await newest_machine(self._store)
        await fold_to(machine, self._log, upto)
        for stream in machine.streams.all():
            stream.opened_ms ^= self._dice.randrange(1, 1 << 20)
        await self._store.write(machine.position, checkpoint.dump(machine))


class Notary:
    """Holds every trim and every checkpoint that may be loaded against the whole log."""

    def __init__(self, cluster: Cluster, store: MemoryCheckpoints, kind: type[Machine] = Machine) -> None:
        self._cluster = cluster
        self._store = store
        self._checked: set[int] = set()
        self._kind = kind
        self._machine = kind()
        self._folded = 0
        """How many entries the machine has: the log is long, and looked at with every trim."""
        self.trims = 0
        cluster.log.on_trim = self.trimmed

    def trimmed(self, upto: Position) -> None:
        self.trims += 1
        known = self._store.loadable()
        newer = [position for position in known if position >= upto]
        self._cluster.world.check(
            len(newer) >= 2, "the log was trimmed past its checkpoints", upto=upto, known=sorted(known)
        )
        self.check()

    def check(self) -> None:
        wanted = {position: data for position, data in self._store.loadable().items() if position not in self._checked}
        if wanted and min(wanted) <= self._machine.position:  # made before one that was confirmed sooner
            self._machine, self._folded = self._kind(), 0
        history = self._cluster.log.history
        while wanted and self._folded < len(history):
            entry = history[self._folded]
            self._folded += 1
            self._machine.apply(entry.position, entry.entry)
            data = wanted.pop(entry.position, None)
            if data is not None:
                self._checked.add(entry.position)
                same = checkpoint.dump(self._machine) == data
                self._cluster.world.check(same, "a checkpoint is not the fold of its log", position=entry.position)


class _Cutter:
    """Cuts a writer off at the moment its entry is ordered: it is in the log, and its writer cannot know."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._dice = cluster.world.dice("cutter")

    def look(self, _entry: LogEntry, applied: Applied) -> None:
        world = self._cluster.world
        session = self._cluster.truth.machine.sessions.live.get(applied.session)
        if session is None or self._dice.random() > 0.005 or world.loop.time() > WORK_SECONDS:
            return
        link = world.network.link(session.name, self._cluster.log.name)
        link.cut()
        world.trace.add("cutter", "cut off", node=session.name)
        world.loop.call_later(self._dice.uniform(15, 58), link.join)


async def _chatter(broker: Broker) -> None:
    """Entries from every broker while its clients wait for another: the log goes on without those who are away."""
    count = 0
    while True:
        await broker.process.clock.sleep(0.3)
        count += 1
        with suppress(DrayError):
            await broker.commit(TOPIC, f"chatter of {broker.process.name}", count)


async def checkpoints(world: World) -> None:
    """R-048, K1, CK1, CK2"""
    dice = world.dice("checkpoints")
    store = MemoryCheckpoints()
    damaged = dice.choice([None, None, None, "node-0", "node-1"])
    cluster = Cluster(world, checkpoints={0: store}, timing=None if damaged else dice.choice([None, PATIENT, PATIENT]))
    cluster.patience = 150.0
    notary = Notary(cluster, store)

    async def make_checkpoints(broker: Broker) -> None:
        process = broker.process
        log = cluster.connect(process)
        folder: Folder = InlineFolder(log, store)
        if process.name == damaged:
            folder = DamagedFolder(log, store, world.dice(f"damage/{world.loop.time()}"))
        await Checkpointer(
            broker.replica, store, TimedFolder(folder), process.clock, due_bytes=DUE_BYTES, kept_ms=KEPT_MS
        ).run()

    cluster.beside.extend([make_checkpoints, _chatter])
    if damaged:
        # Alone, a damaged node would confirm itself (K1): here the others never lose their sessions.
        faults = [pause(longest=5.0), rough_weather(ROUGH, longest=5.0)]
    else:
        faults = [crash(), pause(longest=90.0), partition(longest=60.0), rough_weather(ROUGH)]
        cluster.truth.watchers.append(_Cutter(cluster).look)
    await run(world, cluster, lambda: faults, work_seconds=WORK_SECONDS)
    notary.check()


SCENARIOS: Final[dict[str, Scenario]] = {"checkpoints": checkpoints}

PLANTED: Final[dict[str, Scenario]] = {
    "checkpoints/trusts-dead-after-a-jump": planted(checkpoints, (Writer, "jumped", bugs.trusts_dead_after_a_jump)),
    "checkpoints/nobody-compares": planted(checkpoints, (Checkpointer, "_refold", bugs.refold_by_reading)),
}
