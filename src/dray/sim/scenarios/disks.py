"""Brokers of one machine: one keeps the log on its disk and serves it, the others joined it.

The product's own start, files, log server, client and checkpoints run here.
Processes are killed, the power goes at any call of the disk, syncs fail, the
disk is full, streams stall and break; in some runs they only stall. Some runs
begin with an accident: the volume of the log is not there when its broker
starts again.

Checked: a checkpoint that may be loaded is durable and the fold of its log
before anything is trimmed (CK1, CK2, CK4); a log that was begun is never
begun again (ND2); whoever serves was not expired (RP5); what was refused is
nowhere, what was acked is there once (LG4, R-044); and after everything has
started from the disk once more, every acknowledged entry is there, with the
same fold everywhere (R-017). After heal checkpoints are confirmed, the log is
trimmed, and everyone serves.
"""

import asyncio
from typing import Final

from dray.errors import Corrupt
from dray.log.server import _Connection
from dray.machine.confirmations import Confirmations
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import FileCheckpoints
from dray.sim.directories import (
    MARKS_BIRTH,
    log_of,
)
from dray.sim.disk import FakeDisk
from dray.sim.host import Host, bad_syncs, cut_off, full_disk, kill, power_loss, resets
from dray.sim.hosted import JOINERS, KEEPER, LOOK_SECONDS, OPTIONS, ROOTS, HostCluster, restart_all, until
from dray.sim.nemesis import Fault, Nemesis, pause
from dray.sim.planted import Scenario, planted
from dray.sim.planted import disks as bugs
from dray.sim.planted.local import nothing_written_again
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.scenarios.checkpoints import checkpoints
from dray.sim.witness import entries_of
from dray.sim.workload import Workload
from dray.sim.world import World

WORK_SECONDS: Final = 50.0
LIVE_SECONDS: Final = 400.0


async def disks(world: World) -> None:
    """R-017, R-044, LG4, CK1, CK2, CK4, ND2, RP5"""
    dice = world.dice("disks")
    cluster = HostCluster(world)
    workload = Workload(cluster, pause=1.0)
    workload.rolled_back()  # the truth is on the disk, and is read in the end
    if dice.random() < 0.3:
        await lost_volume(world, cluster, remembers=dice.random() < 0.3)
    cluster.start()
    world.network.start(_look(cluster))
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created")
    workload.start(plain=2, idempotent=1, readers=1, committers=1)
    faults = _stalls(cluster.host) if world.dice("kind").random() < 0.3 else _faults(cluster.host)
    nemesis = Nemesis(world, faults, period=6.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    cluster.host.disk.crash_at = None
    cluster.host.disk.mend()
    await world.within(LIVE_SECONDS, lives(cluster), "checkpoints are confirmed and the log is trimmed")
    workload.history.working = False
    await world.within(PROGRESS_SECONDS, workload.prove_progress(), "every broker works after heal")
    await restart_all(world, cluster)
    await asyncio.sleep(OPTIONS.timing.settle_ms / 1_000)
    await world.within(PROGRESS_SECONDS, workload.prove_progress(), "every broker works after a power cut")
    world.check(bool(workload.history.reads), "nothing was read: the run proves nothing")
    await compare(cluster, workload)


def _faults(host: Host) -> list[Fault]:
    return [
        power_loss(host),
        kill(host),
        bad_syncs(host, (".log", ".part")),
        full_disk(host),
        cut_off(JOINERS),
        resets(host, JOINERS),
        pause(longest=10.0),
    ]


def _stalls(host: Host) -> list[Fault]:
    """Only what keeps a process from the log for a while: whoever is cut off goes on running, and may not serve."""
    return [cut_off(JOINERS), resets(host, JOINERS), pause(longest=10.0)]


async def _look(cluster: HostCluster) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        cluster.look()


async def lives(cluster: HostCluster) -> None:
    """After heal, under work: every broker gets a new checkpoint, and the log is trimmed up to one made since."""
    at = max((broker.replica.machine.position for broker in cluster.live()), default=0)
    await until(lambda: min(cluster.witness.newest_confirmed()) > at and cluster.witness.first > at, every=1.0)


async def compare(cluster: HostCluster, workload: Workload) -> None:
    """One truth: files, replicas, and what clients were told."""
    left = cluster.host.disk.durable()
    cluster.witness.compare(left)
    await cluster.compare_states()
    cluster.witness.fold(cluster.host.disk.durable(), 1 << 62)
    cluster.truth.machine = cluster.witness.machine
    await workload.check()


async def lost_volume(world: World, cluster: HostCluster, *, remembers: bool) -> None:
    """A log was just begun; the power goes, and when its broker starts again the volume is not there (ND2)."""
    host, log = cluster.host, log_of(ROOTS / KEEPER)
    keeper = world.nodes[KEEPER]
    cluster.remembers = remembers
    keeper.start()
    await until(lambda: KEEPER in cluster.brokers)
    host.cut_power()
    cluster.refusals = (Corrupt,)
    volume = host.disk.unmount(log)
    keeper.start()
    await asyncio.sleep(5)
    begun = [position for position, _ in entries_of(host.disk.durable(), log, 0)]
    world.check(not begun, "a log that was begun is begun again", entries=len(begun))
    host.cut_power()
    host.disk.mount(log, volume)
    cluster.refusals, cluster.remembers = (), True
    del cluster.brokers[KEEPER]


SCENARIOS: Final[dict[str, Scenario]] = {"disks": disks}

PLANTED: Final[dict[str, Scenario]] = {
    "disks/checkpoint-not-synced": planted(disks, (FileCheckpoints, "_write", bugs.written_without_sync)),
    "disks/rename-not-synced": planted(disks, (FileCheckpoints, "_confirm", bugs.confirmed_without_sync)),
    "disks/born-not-synced": planted(disks, (*MARKS_BIRTH, bugs.born_without_sync)),
    "disks/nothing-to-tidy": planted(disks, (Checkpointer, "_tidy", bugs.tidies_something)),
    "disks/unknown-is-refused": planted(disks, (_Connection, "_answer", bugs.unknown_is_refused)),
    "disks/believed-at-open": planted(disks, (FakeDisk, "write_again", nothing_written_again)),
    "checkpoints/maker-confirms-itself": planted(checkpoints, (Confirmations, "_compare", bugs.maker_confirms_itself)),
}
