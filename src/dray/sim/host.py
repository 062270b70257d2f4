"""One machine with several processes: they share its disk, its clock and its sockets.

A process may be killed alone, between two of its steps or inside a call of
the disk: what it wrote is in the cache and lives on. The power takes all of
them, and from the disk what was not synced.

Invariants
    HO1  Whoever dies inside a call of the disk takes no further step, and no
         other process meets a disk that is off unless the power went.
"""

from pathlib import Path
from random import Random
from typing import Final

from dray.sim.disk import FakeDisk, PowerLoss
from dray.sim.loop import GATE, Gate, GateState
from dray.sim.nemesis import Fault, Undo
from dray.sim.process import Process, SimClock
from dray.sim.sockets import Sockets
from dray.sim.world import Boot, Node, World

SOCKETS: Final = "sockets"


class HostDisk(FakeDisk):
    """A disk that tells its host who dies in one of its calls."""

    def __init__(self, host: "Host", seed: int) -> None:
        super().__init__(seed, host.clock)
        self._host = host
        self.only_kill = False
        """The call of number `crash_at` kills the process that makes it, and nobody else."""

    def enter(self, name: str, path: Path) -> None:
        gate = GATE.get()
        if gate is not None and gate.state is GateState.SHUT:
            raise PowerLoss(f"{name} {path}")  # HO1: the step in which it died still unwinds
        if self.crash_at == self.calls:
            self.crash_at = None
            self._host.died_in_a_call(only=gate if self.only_kill else None)
            raise PowerLoss(f"{name} {path}")
        super().enter(name, path)


class Host:
    """A machine."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = SimClock(world.loop)
        self.disk = HostDisk(self, world.dice("disk").randrange(1 << 30))
        self.sockets = Sockets(world.loop, world.network, SOCKETS)
        self.nodes: list[Node] = []

    def add(self, name: str, boot: Boot) -> Node:
        """A process of this machine, by the name it keeps while it comes and goes."""

        async def run(process: Process) -> None:
            process.offload.on_power_loss = _already_told
            self.world.network.start(self._bury(process))
            await boot(process)

        node = self.world.node(name, run)
        node.clock = self.clock
        node.restart_after = 1.0
        self.nodes.append(node)
        return node

    async def _bury(self, process: Process) -> None:
        await process.ended()
        self.sockets.bury(process.gate)

    def start(self) -> None:
        """Start whoever does not run."""
        for node in self.nodes:
            if not node.alive:
                node.start()

    def cut_power(self) -> None:
        """All processes die, and what was not synced may be gone."""
        self.world.trace.add("host", "power cut")
        for node in self.nodes:
            if node.process is not None:
                node.process.crash()
        self.clock.reboot()
        self.disk.crash()

    def died_in_a_call(self, *, only: Gate | None) -> None:
        """A call of the disk was the last of one process, or of all (HO1)."""
        if only is None:
            self.cut_power()
            return
        for node in self.nodes:
            if node.process is not None and node.process.gate is only:
                node.process.crash()


def power_loss(host: Host) -> Fault:
    """The power goes before one of the next calls of the disk, or now."""

    def strike(_world: World, dice: Random) -> Undo | None:
        if dice.random() < 0.7:
            host.disk.only_kill = False
            host.disk.crash_at = host.disk.calls + dice.randrange(40)
        else:
            host.cut_power()
        return host.start

    return Fault(name="power loss", strike=strike, weight=2.0, longest=5.0)


def kill(host: Host) -> Fault:
    """A process dies, now or inside one of the next calls of the disk."""

    def strike(_world: World, dice: Random) -> Undo | None:
        if dice.random() < 0.6:
            host.disk.only_kill = True
            host.disk.crash_at = host.disk.calls + dice.randrange(12)
        else:
            alive = [node for node in host.nodes if node.alive]
            if not alive:
                return None
            dice.choice(alive).crash()
        return host.start

    return Fault(name="kill", strike=strike, weight=2.0, longest=5.0)


def bad_syncs(host: Host, parts: tuple[str, ...]) -> Fault:
    """One of the next syncs of a path with such a part fails, and what it should have kept may be lost."""

    def strike(world: World, dice: Random) -> Undo | None:
        part = dice.choice(parts)
        world.trace.add("host", "the next sync fails", of=part)
        host.disk.fail_sync(part)
        return host.disk.mend

    return Fault(name="bad sync", strike=strike, weight=1.5, longest=4.0)


def full_disk(host: Host) -> Fault:
    """There is hardly any room left for a while."""

    def strike(world: World, dice: Random) -> Undo | None:
        host.disk.capacity_bytes = host.disk.used_bytes() + dice.randrange(2_000)
        world.trace.add("host", "the disk is full")
        return host.disk.mend

    return Fault(name="full disk", strike=strike, longest=10.0)


def cut_off(names: tuple[str, ...]) -> Fault:
    """The streams of one process stand still; what is under way comes later."""

    def strike(world: World, dice: Random) -> Undo | None:
        link = world.network.link(dice.choice(names), SOCKETS)
        link.note("cut off")
        link.cut()
        return link.join

    return Fault(name="cut off", strike=strike, weight=2.0, longest=40.0)


def resets(host: Host, names: tuple[str, ...]) -> Fault:
    """The streams of one process break, and what is under way is lost."""

    def strike(world: World, dice: Random) -> Undo | None:
        link = world.network.link(dice.choice(names), SOCKETS)
        link.note("reset")
        host.sockets.reset(link)
        return _nothing

    return Fault(name="reset", strike=strike, weight=2.0)


def _nothing() -> None:
    return None


def _already_told() -> None:
    """The disk has told the host."""
