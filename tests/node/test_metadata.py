"""The metadata plane on a real directory: open, write, stop, open again."""

import asyncio
import uuid
from contextlib import asynccontextmanager

import pytest

from dray.clock import SystemClock
from dray.disk import DirectoryInUse, DirectoryLock, LocalDisk
from dray.errors import Corrupt
from dray.ids import SystemEntropy
from dray.log.client import ClientLog
from dray.log.port import Position
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.machine.sessions import KeepAlive
from dray.machine.topics import CreateTopic
from dray.node.directory import DataDirectory, WrongDirectory
from dray.node.metadata import Effects, MetadataOptions, run_metadata
from dray.node.owning import Owned
from dray.offload import ThreadOffload
from dray.replica.fold import fold_to


@pytest.fixture
def effects():
    offload = ThreadOffload(4)
    yield Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    offload.close()


@asynccontextmanager
async def metadata(path, effects, **options):
    directory = DataDirectory(path)
    lock = DirectoryLock(path)
    try:
        identity = directory.claim(effects.disk, effects.entropy)
        async with run_metadata(Owned(directory=directory), identity, effects, MetadataOptions(**options)) as running:
            yield running
    finally:
        lock.release()


def topic(number: int, partitions: int = 1) -> CreateTopic:
    return CreateTopic(topic_id=uuid.uuid4().bytes, name=f"topic-{number}", partitions=partitions)


async def test_what_was_written_is_there_after_a_restart(tmp_path, effects):
    """R-021: memory is rebuilt from the log alone."""
    async with metadata(tmp_path, effects) as running:
        for number in range(10):
            await running.domains.catalog.propose(topic(number))
        before = running.domains.catalog.machine.position
    async with metadata(tmp_path, effects) as running:
        machine = running.domains.catalog.machine
        assert machine.position >= before
        assert {entry.name for entry in machine.topics.all.values()} == {f"topic-{number}" for number in range(10)}


@pytest.mark.slow
async def test_a_child_makes_the_checkpoint_and_it_is_what_a_fold_of_the_whole_log_gives(tmp_path, effects):
    """K2, CK1: byte for byte."""
    async with metadata(tmp_path, effects, checkpoint_due_bytes=2_000) as running:
        catalog = running.domains.catalog
        for number in range(60):
            await catalog.propose(topic(number, partitions=3))
        made = tmp_path / "meta" / "domain-00000" / "checkpoints"
        async with asyncio.timeout(60):
            while not list(made.glob("*.checkpoint")):
                await asyncio.sleep(0.05)
        data = next(made.glob("*.checkpoint")).read_bytes()
        position = checkpoint.summary(data).position
        log = ClientLog(tmp_path / "meta.sock", 0)
        whole = Machine()
        await fold_to(whole, log, Position(position))
        await log.close()
        assert checkpoint.dump(whole) == data
    async with metadata(tmp_path, effects) as running:
        assert len(running.domains.catalog.machine.topics.all) == 60


async def test_two_processes_cannot_use_one_directory(tmp_path, effects):
    async with metadata(tmp_path, effects):
        with pytest.raises(DirectoryInUse, match="another process"):
            DirectoryLock(tmp_path)


async def test_a_directory_of_another_cluster_is_refused(tmp_path, effects):
    directory = DataDirectory(tmp_path)
    directory.claim(effects.disk, effects.entropy)
    with pytest.raises(WrongDirectory, match="another cluster"):
        directory.claim(effects.disk, effects.entropy, cluster_id=uuid.uuid4())


async def test_a_log_copied_from_another_cluster_is_refused(tmp_path, effects):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    for path in (one, two):
        async with metadata(path, effects) as running:
            await running.domains.catalog.propose(KeepAlive())
    (two / "meta").rename(tmp_path / "aside")
    (one / "meta").rename(two / "meta")
    with pytest.raises(WrongDirectory, match="do not mix"):
        async with metadata(two, effects):
            pass


async def test_a_directory_that_holds_something_else_is_refused_and_left_alone(tmp_path, effects):
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(WrongDirectory, match="not empty"):
        DataDirectory(tmp_path).claim(effects.disk, effects.entropy)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


async def test_a_directory_of_a_newer_version_is_refused(tmp_path, effects):
    """R-214."""
    directory = DataDirectory(tmp_path)
    directory.claim(effects.disk, effects.entropy)
    path = tmp_path / "identity.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(WrongDirectory, match="newer Dray"):
        directory.claim(effects.disk, effects.entropy)


async def test_a_damaged_identity_is_an_error_and_not_a_new_cluster(tmp_path, effects):
    """R-064, ND1."""
    directory = DataDirectory(tmp_path)
    directory.claim(effects.disk, effects.entropy)
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(Corrupt, match="restore"):
        directory.claim(effects.disk, effects.entropy)
