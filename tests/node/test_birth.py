"""A part of a cluster that is not there at a start is damage: exit code 4 with the cause, and never a new cluster."""

import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from dray.cli.serving import exit_code
from dray.clock import ManualClock, SystemClock
from dray.disk import LocalDisk
from dray.errors import Corrupt
from dray.ids import SeededEntropy, SystemEntropy
from dray.log.port import LostReply
from dray.log.writer import LogFailed
from dray.machine.machine import Machine
from dray.node.birth import check_birth, remember_birth
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects, MetadataOptions
from dray.node.owning import open_logs
from dray.node.recovery import recover
from dray.objects.cluster import bind
from dray.objects.files import FileObjects
from dray.offload import InlineOffload
from dray.replica.fold import fold_to
from dray.sim import disk as sim
from dray.testing import broker

ROOT = Path("/data")


def start(path: Path, **settings: object) -> None:
    """A broker comes up on a directory, and stops."""
    with broker(path, **settings):
        pass


def refused(path: Path, **settings: object) -> str:
    with pytest.raises(Corrupt) as raised:
        start(path, **settings)
    assert exit_code(raised.value) == 4
    return str(raised.value)


def empty(path: Path) -> Path:
    """What a volume leaves that is not mounted."""
    aside = path.with_name(f"{path.name}-aside")
    path.rename(aside)
    path.mkdir()
    return aside


def back(aside: Path) -> None:
    path = aside.with_name(aside.name.removesuffix("-aside"))
    shutil.rmtree(path)
    aside.rename(path)


def as_it_was_before_the_marks(path: Path) -> None:
    (path / "log.json").unlink()
    (path / "objects" / "log.json").unlink()


@pytest.mark.slow
def test_a_log_that_is_not_there_is_damage_and_not_a_new_cluster(tmp_path):
    """ND2, ND3: its directory vanished, is empty, or lies below a mount point; and it is found again afterwards."""
    start(tmp_path)
    home = tmp_path / "meta" / "domain-00000"
    for part in (tmp_path / "meta", home, home / "log"):
        aside = empty(part)
        assert "log" in refused(tmp_path)
        back(aside)
        start(tmp_path)
    (tmp_path / "meta").rename(tmp_path / "elsewhere")
    assert "mount its volume" in refused(tmp_path)
    (tmp_path / "identity.json").unlink()
    assert "identity.json is missing" in refused(tmp_path)


@pytest.mark.slow
def test_a_log_that_is_kept_elsewhere_is_looked_for_there(tmp_path):
    """ND2, ND3: with another --log or with none, and with its volume not mounted."""
    start(tmp_path / "a", log__url=f"local:{tmp_path / 'log'}")
    assert f"kept={tmp_path / 'log'}" in refused(tmp_path / "a")
    assert "kept elsewhere" in refused(tmp_path / "a", log__url=f"local:{tmp_path / 'other'}")
    assert not (tmp_path / "other").exists()
    aside = empty(tmp_path / "log")
    assert "mount its volume" in refused(tmp_path / "a", log__url=f"local:{tmp_path / 'log'}")
    assert not list((tmp_path / "log").iterdir())
    back(aside)
    (tmp_path / "log").rename(tmp_path / "moved")
    start(tmp_path / "a", log__url=f"local:{tmp_path / 'moved'}")
    assert "moved" in refused(tmp_path / "a")
    found = DataDirectory.at(tmp_path / "a", LocalDisk())
    assert recover(found, 0, LocalDisk(), SystemEntropy(), SystemClock()).generation == 1
    start(tmp_path / "a", log__url=f"local:{tmp_path / 'moved'}")


@pytest.mark.slow
def test_a_broker_joins_one_whose_log_is_kept_elsewhere(tmp_path):
    """Its directory says where."""
    with broker(tmp_path / "a", log__url=f"local:{tmp_path / 'log'}"):
        start(tmp_path / "b", log__url=f"unix:{tmp_path / 'a' / 'meta.sock'}")
        assert not (tmp_path / "b" / "log.json").exists()


@pytest.mark.slow
def test_a_store_that_is_not_there_is_damage_too(tmp_path):
    """ND3: an empty directory in its place would be bound, and every record would be missing."""
    start(tmp_path)
    aside = empty(tmp_path / "objects")
    assert "objects.url" in refused(tmp_path)
    back(aside)
    (tmp_path / "objects" / "cluster.json").rename(tmp_path / "kept")
    assert "cluster.json" in refused(tmp_path)
    (tmp_path / "kept").rename(tmp_path / "objects" / "cluster.json")
    start(tmp_path)


@pytest.mark.slow
def test_a_directory_that_is_older_than_the_marks_opens_and_gets_them(tmp_path):
    """ND3: until then what is born in its log, and bound in its store, speaks for it."""
    start(tmp_path)
    as_it_was_before_the_marks(tmp_path)
    start(tmp_path)
    assert (tmp_path / "log.json").is_file()
    assert (tmp_path / "objects" / "log.json").is_file()
    as_it_was_before_the_marks(tmp_path)
    aside = empty(tmp_path / "objects")
    assert "cluster.json" in refused(tmp_path)
    back(aside)
    records = tmp_path / "objects" / "wal" / "v1" / "zone=" / "domain=0" / "date=2026" / "11" / "17"
    records.mkdir(parents=True)
    (records / f"{0:032x}.wo").write_bytes(b"records")
    empty(tmp_path / "meta")
    assert "not in this directory" in refused(tmp_path)


class Cluster:
    """What a first start does to a disk, in the order in which a broker does it."""

    def __init__(self, disk: sim.FakeDisk) -> None:
        self.disk = disk
        self.directory = DataDirectory(ROOT)
        self.effects = Effects(
            clock=ManualClock(), entropy=SeededEntropy(disk.boots), disk=disk, offload=InlineOffload()
        )

    async def start(self) -> SimpleNamespace:
        effects = self.effects
        self.disk.make_dir(ROOT)
        identity = self.directory.claim(self.disk, effects.entropy)
        objects = FileObjects(self.directory.objects, self.disk, effects.offload, effects.entropy)
        await objects.open()
        await check_birth(objects, self.directory, identity, self.disk)
        await bind(objects, identity.cluster_id)
        async with AsyncExitStack() as stack:
            logs = await open_logs(stack, self.directory, identity, effects, MetadataOptions())
            await remember_birth(objects, self.directory, self.disk)
            machine = Machine()
            await fold_to(machine, logs[0], await logs[0].tail())
        return SimpleNamespace(cluster=identity.cluster_id, log_id=machine.log_id)


async def test_a_first_start_that_was_cut_short_anywhere_goes_on_and_forgets_nothing():
    """ND3: power is lost at every single call; what a whole start began is there ever after."""
    points = 0
    for disk in sim.every_crash((None, 0, 1)):
        points += 1
        with disk.until_crash():
            try:
                await Cluster(disk).start()
            except (LostReply, LogFailed):
                assert disk.crashed
        begun = await Cluster(disk).start()
        assert await Cluster(disk).start() == begun, f"{disk!r}"
        with disk.until_crash():
            pass
        assert await Cluster(disk).start() == begun, f"{disk!r}"
        log = DataDirectory(ROOT).log(0)
        for name in disk.list(log):
            disk.remove(log / name)
        with pytest.raises(Corrupt):
            await Cluster(disk).start()
    assert points > 60
