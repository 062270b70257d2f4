"""An old and a new build on one log: nodes are upgraded one by one, one of them late, some back again.

The builds are those of versions 1 and 2, or of 2 and one that is made up
(`dray.sim.builds`). Meanwhile brokers die, sleep and are cut off, checkpoints
are made, confirmed and trimmed to by both builds, somebody sends commands that
only the newer version has, and an operator asks for `Activate` again and again:
it is taken as soon as no live session is an old build's, perhaps while one of
them sleeps.

Checked: until `Activate` an old build that reads the whole log has the same
digest and checkpoints as a new one, and nothing of the newer version is in
effect (M10, K2); whatever may be loaded is the fold of the log, in either
build (K1). No entry of an old build counts behind it (M12); an old build that
meets it ends itself and says why, and no other ends for that reason (M5). What
was acknowledged before and after is there in the end, through every broker.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final

from dray.errors import DrayError, Unavailable
from dray.machine import checkpoint
from dray.machine.checkpoint import CheckpointTooNew
from dray.machine.command import Command, Decoders
from dray.machine.group_configs import AlterGroup
from dray.machine.head import Activate
from dray.machine.machine import Machine
from dray.machine.step import Applied, Outcome
from dray.machine.verdict import Done
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import CheckpointStore, MemoryCheckpoints, newest_machine
from dray.replica.errors import TooNew
from dray.replica.fold import fold_to
from dray.replica.writer import Timing, Writer
from dray.sim.brokers import Broker, Cluster
from dray.sim.builds import FIRST, FirstMachine, NewMachine, Note
from dray.sim.log import LogEntry
from dray.sim.nemesis import Nemesis, crash, half_open, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import upgrades as bugs
from dray.sim.process import Process
from dray.sim.scenarios.appends import PROGRESS_SECONDS, finish
from dray.sim.scenarios.checkpoints import Notary
from dray.sim.workload import Workload
from dray.sim.world import World

WORK_SECONDS: Final = 60.0
LATE_SECONDS: Final = 45.0
DUE_BYTES: Final = 10_000
LOOK_SECONDS: Final = 0.2
COMPARE_EVERY: Final = 20
"""Entries between two looks at the whole state; digests are compared at each."""
QUICK: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=4_000)


class EarlyNote(Note, frozen=True, kw_only=True):
    """As a build would send it that does not ask which version is active."""

    since: ClassVar[int] = FIRST


class EarlyAlterGroup(AlterGroup, frozen=True, kw_only=True):
    """As a build would send it that does not ask which version is active."""

    since: ClassVar[int] = FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two builds, and what the newer one can do."""

    old: type[Machine]
    new: type[Machine]
    early: Callable[[str], Command]
    """A command of the newer version, sent whatever is active."""
    effects: Callable[[Machine], Collection[str]]
    """What such commands have left in a state."""


def _notes(machine: Machine) -> Collection[str]:
    assert isinstance(machine, NewMachine)
    return machine.notes.texts


FROM_FIRST: Final = Pair(
    old=FirstMachine,
    new=Machine,
    early=lambda name: EarlyAlterGroup(group=name, set={"consumer.session.timeout.ms": "45000"}),
    effects=lambda machine: machine.group_configs.all,
)
TO_NEXT: Final = Pair(old=Machine, new=NewMachine, early=lambda name: EarlyNote(text=name), effects=_notes)


class BuildStore(MemoryCheckpoints):
    """The checkpoints that all share, as one build reads them."""

    def __init__(self, shared: MemoryCheckpoints, kind: type[Machine]) -> None:
        super().__init__()
        self._made, self._confirmed, self.aside = shared._made, shared._confirmed, shared.aside
        self._kind = kind

    async def load(self, position: int) -> Machine:
        return checkpoint.load(self.loadable()[position], self._kind)


class BuildFolder:
    """Folds as one build does."""

    def __init__(self, cluster: "UpgradeCluster", process: Process) -> None:
        self._cluster = cluster
        self._process = process

    async def fold(self, upto: int) -> None:
        store = self._cluster.store(self._process)
        loaded = await newest_machine(store, upto, set_aside=False)
        machine = loaded if loaded.position else self._cluster.new_machine(self._process.name)
        await fold_to(machine, self._cluster.connect(self._process), upto)
        await store.write(machine.position, checkpoint.dump(machine))


class UpgradeCluster(Cluster):
    """Nodes that run one of two builds each."""

    def __init__(self, world: World, pair: Pair) -> None:
        self.shared = MemoryCheckpoints()
        self.pair = pair
        self.installed: dict[str, type[Machine]] = {}
        """By the name of a node: the build that its next process runs."""
        self._running: dict[Process, type[Machine]] = {}
        super().__init__(
            world, timing=QUICK, checkpoints={0: self.shared}, machine=pair.new, version=pair.old.supported
        )
        self.new_machine = lambda name: self.build(name)()
        for name, node in world.nodes.items():
            self.installed[name] = pair.old
            node.may_exit = lambda error, name=name: self._may_stop(name, error)  # type: ignore[misc]
        self.beside.append(self._make_checkpoints)

    @property
    def activated(self) -> bool:
        """Whether the newer version holds."""
        return self.truth.machine.version == self.pair.new.supported

    def build(self, name: str) -> type[Machine]:
        """Of the process that runs on a node; of one that is no node, the newer."""
        node = self.world.nodes.get(name)
        if node is None or node.process is None:
            return self.pair.new
        return self._running.setdefault(node.process, self.installed[name])

    def install(self, name: str, kind: type[Machine]) -> None:
        """Stop a node and start it again with another build."""
        node = self.world.nodes[name]
        self.world.trace.add(name, "upgraded" if kind is self.pair.new else "rolled back", to=kind.supported)
        self.installed[name] = kind
        node.crash()
        node.start()

    def store(self, process: Process, domain: int = 0) -> CheckpointStore:
        return BuildStore(self.shared, self.build(process.name))

    async def _make_checkpoints(self, broker: Broker) -> None:
        process = broker.process
        folder = BuildFolder(self, process)
        store = self.store(process)
        await Checkpointer(broker.replica, store, folder, process.clock, due_bytes=DUE_BYTES, kept_ms=1_000).run()

    def _may_stop(self, name: str, error: BaseException | None) -> bool:
        """M5: for an old build that is what is left to do, for a new one never, and for nobody before `Activate`."""
        if isinstance(error, TooNew | CheckpointTooNew):
            return self.activated and self.build(name) is self.pair.old
        return isinstance(error, Unavailable)


class Registrar:
    """Holds the log against what an old build makes of it."""

    def __init__(self, cluster: UpgradeCluster) -> None:
        self._cluster = cluster
        self._check = cluster.world.check
        self._old = cluster.pair.old()
        self._entries = 0
        self._activated_at = 0
        for entry in cluster.log.history:
            self._old.apply(entry.position, entry.entry)
        cluster.truth.watchers.append(self.look)

    def look(self, entry: LogEntry, applied: Applied) -> None:
        pair, truth = self._cluster.pair, self._cluster.truth.machine
        old = self._old.apply(entry.position, entry.entry)
        self._entries += 1
        if self._activated_at:
            self._check(old.outcome is Outcome.HALTED, "an old build goes on under rules that it does not know")
            writer = truth.sessions.live.get(applied.session)
            knows = writer is None or applied.verdicts is None or writer.highest_version >= truth.version
            self._check(knows, "an entry of an old build counts", position=entry.position)
            return
        self._check(old.outcome is applied.outcome, "an old and a new build judge an entry differently")
        self._check(self._old.digest == truth.digest, "an old and a new build differ in digest", at=entry.position)
        effects = pair.effects(truth)
        self._check(
            not effects, "the newer version is in effect before it is active", at=entry.position, effects=list(effects)
        )
        if self._cluster.activated:
            self._activated_at = entry.position
            self._cluster.world.trace.add("operator", "activated", position=entry.position)
        elif self._entries % COMPARE_EVERY == 0:
            same = checkpoint.dump(self._old) == checkpoint.dump(truth)
            self._check(same, "an old and a new build differ in their checkpoints", at=entry.position)

    async def watch(self) -> None:
        """What brokers of the old build do behind `Activate`."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for broker in self._cluster.live():
                if self._activated_at and self._cluster.build(broker.process.name) is self._cluster.pair.old:
                    at = broker.replica.machine.position
                    self._check(at <= self._activated_at, "an old build read on", node=broker.process.name, at=at)
                    self._check(not broker.serves, "an old build serves", node=broker.process.name)


class Operators:
    """Who upgrades, who activates, and who cannot wait."""

    def __init__(self, cluster: UpgradeCluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._version = cluster.pair.new.supported
        self.taken: list[str] = []
        """Commands of the newer version that were acknowledged."""
        self.refused: list[str] = []

    async def upgrade(self, dice: Random) -> None:
        """All but one soon, perhaps one back, and the last one late; perhaps it is away meanwhile."""
        pair = self._cluster.pair
        *soon, last = dice.sample(sorted(self._world.nodes), len(self._world.nodes))
        for name in soon:
            await asyncio.sleep(dice.uniform(1, 10))
            self._cluster.install(name, pair.new)
        fate = dice.random()
        if fate < 0.3:
            await asyncio.sleep(dice.uniform(0, 10))
            self._cluster.install(dice.choice(soon), pair.old)
        elif fate < 0.8:
            await self._lose(last, dice)
        await asyncio.sleep(max(0.0, LATE_SECONDS - self._world.loop.time() + dice.uniform(0, 10)))
        self._cluster.install(last, pair.new)
        if dice.random() < 0.3:  # too late for that, if the newer version is active
            await asyncio.sleep(dice.uniform(0, 5))
            self._cluster.install(dice.choice(soon), pair.old)

    async def _lose(self, name: str, dice: Random) -> None:
        """A node is away for longer than a session lives: nobody need wait for it with `Activate`."""
        process, links = self._world.nodes[name].process, self._world.network.links(name)
        self._world.trace.add(name, "away")
        asleep = dice.random() < 0.5
        if asleep and process is not None:
            process.pause()
        for link in () if asleep else links:
            link.cut()
        await asyncio.sleep(dice.uniform(15, 30))
        if process is not None:
            process.resume()
        for link in links:
            link.join()

    def finish(self) -> None:
        """Whatever was left behind or rolled back."""
        for name in sorted(self._world.nodes):
            if self._cluster.build(name) is self._cluster.pair.old:
                self._cluster.install(name, self._cluster.pair.new)

    async def activate(self, dice: Random) -> None:
        while not self._cluster.activated:
            await asyncio.sleep(dice.uniform(0.2, 1.5))
            with suppress(DrayError):
                await self._cluster.ask(lambda broker: broker.replica.propose(Activate(version=self._version)))

    async def hurry(self, dice: Random, working: Callable[[], bool]) -> None:
        """Send what the newer version has, whatever is active."""
        count = 0
        while working():
            await asyncio.sleep(dice.random() * 2)
            count += 1
            await self.send(f"early-{count}")

    async def send(self, name: str) -> bool:
        """Whether it was taken."""
        command = self._cluster.pair.early(name)
        try:
            (verdict,) = await self._cluster.ask(lambda broker: broker.replica.propose(command))
        except DrayError:
            return False
        (self.taken if isinstance(verdict, Done) else self.refused).append(name)
        return isinstance(verdict, Done)

    async def insist(self) -> None:
        while not await self.send("at last"):  # noqa: ASYNC110
            await asyncio.sleep(1)

    def check(self) -> None:
        """What was taken is there, what was refused is not."""
        there = set(self._cluster.pair.effects(self._cluster.truth.machine))
        self._world.check(there.issuperset(self.taken), "a command of the newer version is lost")
        self._world.check(there.isdisjoint(self.refused), "a command that was refused is there")


async def upgrades(world: World) -> None:
    """M5, M10, M12, K1, K2, R-048"""
    cluster = UpgradeCluster(world, world.dice("builds").choice([FROM_FIRST, TO_NEXT]))
    registrar = Registrar(cluster)
    notary = Notary(cluster, cluster.shared, cluster.pair.new)
    operators = Operators(cluster)
    workload = Workload(cluster)
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created in fair weather")
    workload.start(plain=2, idempotent=1, readers=1, committers=1)
    faults = [crash(), pause(longest=25.0), partition(longest=20.0), half_open(), rough_weather(ROUGH)]
    nemesis = Nemesis(world, faults, period=8.0)
    world.network.start(registrar.watch())
    world.network.start(nemesis.run())
    upgrade = world.network.start(operators.upgrade(world.dice("upgrade")))
    activate = world.network.start(operators.activate(world.dice("activate")))
    world.network.start(operators.hurry(world.dice("hurry"), lambda: workload.history.working))
    await asyncio.wait([upgrade])
    await asyncio.sleep(max(0.0, WORK_SECONDS - world.loop.time()))
    nemesis.heal()
    operators.finish()
    workload.history.working = False
    await world.within(PROGRESS_SECONDS, asyncio.wait([activate]), "the newer version is activated")
    await world.within(PROGRESS_SECONDS, operators.insist(), "the newer rules hold")
    await finish(world, cluster, workload)
    notary.check()
    operators.check()


SCENARIOS: Final[dict[str, Scenario]] = {"upgrades": upgrades}

PLANTED: Final[dict[str, Scenario]] = {
    "upgrades/activated-over-an-old-build": planted(upgrades, (Machine, "_activate", bugs.activate_at_once)),
    "upgrades/new-commands-at-once": planted(upgrades, (Decoders, "_make_readers", bugs.readers_of_all_versions)),
    "upgrades/new-sections-at-once": planted(upgrades, (checkpoint, "_dump_sections", bugs.dump_every_noun)),
    "upgrades/not-halted": planted(upgrades, (Machine, "apply", bugs.apply_whatever)),
    "upgrades/writes-its-newest": planted(upgrades, (Writer, "_settle", bugs.settle_its_newest)),
}
