"""Recovery of a damaged or rolled-back log: what can be saved becomes the beginning of a new one (Q6).

Nothing is deleted: the old log and its checkpoints are kept aside. The saved
state is written as the first checkpoint of a new log id and generation before
the old log is moved, so a recovery that is cut short is simply run again.

Invariants
    RC1  What was there is read and moved, never changed; at every moment the
         directory either opens as it was, or is refused, or opens as
         recovered.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from dray.clock import Clock
from dray.disk import Disk
from dray.errors import Invalid, Unavailable
from dray.ids import Entropy
from dray.log.closed import ClosedLog
from dray.log.salvage import Salvage, salvage
from dray.log.writer import create_segment
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.machine.names import LogId
from dray.machine.recovery import renew
from dray.node.directory import DataDirectory, mark_born
from dray.offload import InlineOffload
from dray.replica.checkpoints import FileCheckpoints, newest_machine
from dray.replica.fold import fold_to


class LockedOut(Invalid):
    """Between the newest checkpoint and the oldest entry of the log something is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a recovery kept."""

    position: int
    generation: int
    log_id: LogId
    salvage: Salvage
    aside: Path
    """Where the old log and its checkpoints are."""
    set_back_ms: int
    """How far the log's time had run ahead of its records and of the clock."""


def recover(directory: DataDirectory, domain: int, disk: Disk, entropy: Entropy, clock: Clock) -> Recovered:
    """Begin a new log with what the old one still tells. The caller holds the directory's lock."""
    return asyncio.run(recovered(directory, domain, disk, entropy, clock))


async def recovered(directory: DataDirectory, domain: int, disk: Disk, entropy: Entropy, clock: Clock) -> Recovered:
    """The same, for who has a loop already. It does not wait for anything but the disk."""
    home = directory.home(domain)
    fresh = directory.meta / f"fresh-{home.name}"
    if not disk.list(home) and disk.list(fresh):
        raise _finish_first(disk, home, fresh)
    found = salvage(directory.log(domain), disk)
    machine = await _saved(directory, domain, disk, found.log)
    if machine.version == 0:
        raise Invalid("nothing of this log can be saved: restore the directory from a backup", path=directory.root)
    log_id = LogId(entropy.random_bytes(8))
    old_ms = machine.time_ms
    renew(machine, log_id, clock.wall_ms())
    _clear(disk, fresh)
    await build_home(disk, fresh, machine)
    aside = _free_name(directory.meta, home.name, disk)
    disk.rename(home, aside)
    disk.rename(fresh, home)  # RC1: between these two the directory is refused, and recovery goes on from here
    disk.sync_dir(directory.meta)
    return Recovered(
        position=machine.position,
        generation=machine.head.generation,
        log_id=log_id,
        salvage=found,
        aside=aside,
        set_back_ms=old_ms - machine.time_ms,
    )


def _finish_first(disk: Disk, home: Path, fresh: Path) -> Unavailable:
    """A recovery was cut short after everything was prepared: its last step is done now."""
    disk.rename(fresh, home)
    disk.sync_dir(home.parent)
    return Unavailable("an earlier recovery was cut short and is now finished: look, and run it again if needed")


async def _saved(directory: DataDirectory, domain: int, disk: Disk, log: ClosedLog) -> Machine:
    """The newest state that log and checkpoints give: a checkpoint above a rolled-back log counts."""
    store = FileCheckpoints(directory.checkpoints(domain), disk, InlineOffload())
    machine = await newest_machine(store, set_aside=False)  # all of them are kept aside below
    if machine.position + 1 < log.first <= log.last:
        raise LockedOut(
            "the log is trimmed above the newest checkpoint that can be read here, so there is no one state to save:"
            " copy a newer .checkpoint of another broker of this cluster into the directory of checkpoints, or restore"
            " a backup; to go on from the checkpoint alone, move the files of the log away first",
            checkpoint=machine.position, log_from=log.first, checkpoints=directory.checkpoints(domain),
        )  # fmt: skip
    if machine.position < log.last:
        await fold_to(machine, log, log.last)
    return machine


async def build_home(disk: Disk, fresh: Path, machine: Machine) -> None:
    """A domain that begins with a state, whole and durable, under a name that nobody opens."""
    for part in ("log", "checkpoints"):
        disk.make_dir(fresh / part)
    create_segment(disk, fresh / "log", machine.position + 1).close()
    store = FileCheckpoints(fresh / "checkpoints", disk, InlineOffload())
    await store.write(machine.position, checkpoint.dump(machine))
    await store.confirm(machine.position)
    mark_born(disk, fresh)


def _clear(disk: Disk, fresh: Path) -> None:
    """What an earlier attempt prepared and never used."""
    for part in ("log", "checkpoints", ""):
        for name in disk.list(fresh / part):
            if name not in ("log", "checkpoints"):
                disk.remove(fresh / part / name)


def _free_name(meta: Path, name: str, disk: Disk) -> Path:
    taken = disk.list(meta)
    number = 1
    while f"recovered-{number}-{name}" in taken:
        number += 1
    return meta / f"recovered-{number}-{name}"
