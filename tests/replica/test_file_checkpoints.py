"""Checkpoints as files, on a disk that forgets what was not synced."""

from pathlib import Path

from dray.offload import InlineOffload
from dray.replica.checkpoints import FileCheckpoints
from dray.sim.disk import FakeDisk

DIRECTORY = Path("/data/checkpoints")


async def test_a_name_that_a_start_finds_is_durable_before_it_is_trusted() -> None:
    """CK1, CK2: killed between the rename and its sync; the log would be trimmed on a name in the cache."""
    disk = FakeDisk()
    store = FileCheckpoints(DIRECTORY, disk, InlineOffload())
    await store.write(5, b"a checkpoint")
    disk.rename(DIRECTORY / f"{5:020d}.made", DIRECTORY / f"{5:020d}.checkpoint")
    disk.restart()
    again = FileCheckpoints(DIRECTORY, disk, InlineOffload())
    await again.sweep()
    assert await again.confirmed() == [5]
    disk.crash()
    assert await again.confirmed() == [5]


async def test_a_start_sweeps_a_directory_that_is_not_there() -> None:
    await FileCheckpoints(DIRECTORY, FakeDisk(), InlineOffload()).sweep()
