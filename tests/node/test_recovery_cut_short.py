"""A recovery that loses power: whatever it leaves is refused, or is the new log."""

from pathlib import Path

import pytest

from dray.clock import ManualClock
from dray.errors import Corrupt, Unavailable
from dray.ids import SeededEntropy
from dray.log.files import FileLog
from dray.log.reader import segment_firsts
from dray.log.segment import segment_name
from dray.machine.head import SUPPORTED
from dray.node.directory import DataDirectory, mark_born
from dray.node.metadata import Effects, begin_log
from dray.node.recovery import LockedOut, recovered
from dray.offload import InlineOffload
from dray.replica.checkpoints import FileCheckpoints, newest_machine
from dray.sim.disk import FakeDisk, every_crash

DIRECTORY = DataDirectory(Path("/data"))


def effects_on(disk):
    return Effects(clock=ManualClock(), entropy=SeededEntropy("recovery"), disk=disk, offload=InlineOffload())


async def open_log(effects):
    return await FileLog.open(
        DIRECTORY.log(0), disk=effects.disk, offload=effects.offload, clock=effects.clock, segment_bytes=600
    )


async def a_log(effects):
    """A directory whose log has a few segments of entries that the machine does not understand."""
    effects.disk.make_dir(DIRECTORY.root)
    identity = DIRECTORY.claim(effects.disk, effects.entropy)
    log = await open_log(effects)
    await begin_log(log, identity.cluster, 0, effects, 1, SUPPORTED)
    mark_born(effects.disk, DIRECTORY.home(0))
    for number in range(20):
        await log.append(f"entry {number}".encode().ljust(80, b"."))
    await log.close()


def recover(effects):
    return recovered(DIRECTORY, 0, effects.disk, effects.entropy, effects.clock)


async def generation_of(effects) -> int | None:
    """Of the log that a start finds; None if it is refused."""
    try:
        if not DIRECTORY.domains(effects.disk):
            return None
        await open_log(effects)
    except Corrupt:
        return None
    store = FileCheckpoints(DIRECTORY.checkpoints(0), effects.disk, effects.offload)
    return (await newest_machine(store)).head.generation


@pytest.mark.slow
async def test_a_recovery_cut_short_at_any_call_leaves_a_log_that_is_refused_or_new() -> None:
    """RC1, LG14: never the old log, shorter, under its old name: it would give ids and positions a second time."""
    found = set()
    for disk in every_crash((None, 1)):
        effects = effects_on(disk)
        crash_at, disk.crash_at = disk.crash_at, None
        await a_log(effects)
        first = segment_firsts(disk, DIRECTORY.log(0))[1]
        disk.remove(DIRECTORY.log(0) / "verified")  # a mark would let the damage be found by reading only
        disk.sync_dir(DIRECTORY.log(0))
        disk.flip(DIRECTORY.log(0) / segment_name(first), 200)
        disk.restart()
        disk.crash_at = crash_at
        with disk.until_crash():
            await recover(effects)
        generation = await generation_of(effects)
        assert generation in (None, 1), disk
        found.add(generation)
        try:
            done = await recover(effects)
        except Unavailable:  # it was cut before its last step, which is done now
            continue
        assert done.generation == (generation or 0) + 1
        assert await generation_of(effects) == done.generation
    assert found == {None, 1}, "crashes came before and behind"


async def test_a_log_that_is_trimmed_above_its_checkpoints_is_not_recovered_and_says_what_to_do() -> None:
    disk = FakeDisk()
    effects = effects_on(disk)
    await a_log(effects)
    first = segment_firsts(disk, DIRECTORY.log(0))[0]
    disk.remove(DIRECTORY.log(0) / segment_name(first))
    with pytest.raises(LockedOut, match=r"copy a newer \.checkpoint of another broker"):
        await recover(effects)
    assert disk.list(DIRECTORY.meta) == ["domain-00000"], "nothing was moved"
