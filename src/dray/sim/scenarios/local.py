"""One process on the `local` engine, on a disk that forgets what a crash may forget.

The process is killed (the cache lives on) and the power is cut, at any call
of the disk; then it starts again on what is left.

Checked: whatever was acked or shown before a crash is there after it, at the
same position and with the same digest (R-017, LG10); then what the other
scenarios check of acks, order and duplicates; and the replica equals a fresh
fold of the files.
"""

import asyncio
from pathlib import Path
from random import Random
from typing import Final

from dray.log.files import FileLog
from dray.log.port import BEFORE_ALL, Position
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.machine.sessions import SessionKind
from dray.replica.replica import Replica
from dray.replica.session import Identity
from dray.sim.brokers import Cluster, genesis
from dray.sim.disk import FakeDisk, FakeFile
from dray.sim.nemesis import Fault, Nemesis, Undo
from dray.sim.planted import Scenario, planted
from dray.sim.planted import local as bugs
from dray.sim.process import Process
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.workload import Workload
from dray.sim.world import Node, World

DIRECTORY: Final = Path("/data/meta")
WORK_SECONDS: Final = 60.0
SEGMENT_BYTES: Final = 4_000


class MortalDisk(FakeDisk):
    """A disk under a process that may be killed inside a call, not only by the power: then the cache lives on."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.only_kill = False

    def crash(self) -> None:
        if self.only_kill:
            self.only_kill = False
            self.restart()
        else:
            super().crash()


class LocalCluster(Cluster):
    """A cluster of one node, whose log lies on its own disk."""

    def __init__(self, world: World, disk: MortalDisk) -> None:
        super().__init__(world, nodes=0)
        self.disk = disk
        self.shown: dict[int, int] = {}
        """Positions that were shown to anyone, with the digest there."""
        self.node = world.node("local", self.boot, disk=disk)
        self.node.restart_after = 0.2
        self.node.may_exit = self._may_exit
        self._dice_of_boots = world.dice("boots")

    async def boot(self, process: Process) -> None:
        log = await FileLog.open(
            DIRECTORY, disk=self.disk, offload=process.offload, clock=process.clock, segment_bytes=SEGMENT_BYTES
        )
        if await log.tail() == BEFORE_ALL:
            await log.append(genesis(60_000))
        replica = Replica(
            log=log,
            machine=Machine(),
            identity=Identity(
                name="local", instance=b"the-only-process", kind=SessionKind.BROKER, owner=True, asks_for_lead=True
            ),
            clock=process.clock,
            entropy=process.entropy,
            timing=self.timing,
        )
        async with replica.running(), self.serving(process, {0: replica}):
            raise await self._until_failed(replica, log)

    async def _until_failed(self, replica: Replica, log: FileLog) -> BaseException:
        self._check_shown(replica)
        while True:
            for failed in (replica.failed, log.failed):
                if failed.done():
                    return failed.result()
            await asyncio.sleep(0.05)
            self.shown[replica.machine.position] = replica.machine.digest

    def _check_shown(self, replica: Replica) -> None:
        """R-017: a start after a crash shows at least what was shown before it."""
        for position, digest in self.shown.items():
            self.world.check(
                replica._digests.at(position) == digest, "an entry that was shown is lost", position=position
            )


async def local(world: World) -> None:
    """R-017, LG10"""
    disk = MortalDisk(world.dice("disk").randrange(1 << 30))
    cluster = LocalCluster(world, disk)
    workload = Workload(cluster, pause=1.0)
    workload.rolled_back()  # the truth is on the disk, and is read in the end
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created")
    workload.start(plain=2, idempotent=2, readers=3, committers=1)
    nemesis = Nemesis(world, [power_loss(cluster.node, disk), kill(cluster.node, disk)], period=3.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    disk.crash_at = None
    await asyncio.sleep(5)  # the last power cut may still be due
    workload.history.working = False
    await asyncio.sleep(30)
    await world.within(PROGRESS_SECONDS, workload.prove_progress(), "the broker works after heal")
    await compare_files(world, cluster, workload)


async def compare_files(world: World, cluster: LocalCluster, workload: Workload) -> None:
    """What the files hold is what the replica holds and what clients were told."""
    (broker,) = cluster.live()
    replica = broker.replica
    fresh = Machine()
    async for position, entry in replica.log.follow(BEFORE_ALL):
        fresh.apply(position, entry)
        if position >= replica.machine.position:
            break
    world.check(position == Position(replica.machine.position), "the replica is beyond its log")
    same = checkpoint.fingerprint(fresh) == checkpoint.fingerprint(replica.machine)
    world.check(same, "the replica and a fresh fold of its files differ")
    cluster.truth.machine = fresh
    await workload.check()


def power_loss(node: Node, disk: MortalDisk) -> Fault:
    """The power goes before one of the next calls of the disk, or now."""

    def strike(_world: World, dice: Random) -> Undo | None:
        if not node.alive:
            return None
        disk.only_kill = False
        if dice.random() < 0.7:
            disk.crash_at = disk.calls + dice.randrange(30)
        else:
            node.crash(power=True)
        return _starter(node)

    return Fault(name="power loss", strike=strike, weight=2.0, longest=4.0)


def kill(node: Node, disk: MortalDisk) -> Fault:
    """The process dies inside a call of the disk; what it wrote is in the cache, and soon the power goes too."""

    def strike(world: World, dice: Random) -> Undo | None:
        if not node.alive:
            return None
        disk.only_kill = True
        disk.crash_at = disk.calls + dice.randrange(8)
        soon = dice.random()
        start = _starter(node)

        def undo() -> None:
            start()
            if dice.random() < 0.7:
                world.loop.call_later(soon, lose_power)

        def lose_power() -> None:
            disk.only_kill = False
            node.crash(power=True)
            world.loop.call_later(0.1, start)

        return undo

    return Fault(name="kill", strike=strike, weight=2.0, longest=2.0)


def _starter(node: Node) -> Undo:
    def undo() -> None:
        if not node.alive:
            node.start()

    return undo


SCENARIOS: Final[dict[str, Scenario]] = {"local": local}

PLANTED: Final[dict[str, Scenario]] = {
    "local/ack-before-sync": planted(local, (FakeFile, "sync", bugs.sync_later)),
    "local/no-sync-at-open": planted(
        local,
        (FakeDisk, "open", bugs.open_without_sync),
        (FakeDisk, "write_again", bugs.nothing_written_again),
    ),
}
