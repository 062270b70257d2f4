"""A part of a cluster that is not there at a start is damage: exit code 4 with the cause, and never a new cluster."""

import shutil
from contextlib import AsyncExitStack, suppress
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
from dray.machine.head import all_domains
from dray.machine.machine import Machine
from dray.node.birth import check_birth, remember_birth
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects, MetadataOptions, check_whole
from dray.node.owning import open_logs
from dray.node.recovery import recover
from dray.objects.cluster import bind
from dray.objects.files import FileObjects
from dray.offload import InlineOffload
from dray.replica.fold import fold_to
from dray.sim import disk as sim
from dray.testing import broker
from tests.cli.test_serving import produce

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

    def __init__(self, disk: sim.FakeDisk, domains: int = 1) -> None:
        self.disk = disk
        self.domains = domains
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
            logs = await open_logs(stack, self.directory, identity, effects, MetadataOptions(domains=self.domains))
            machines = {}
            for domain, log in logs.items():
                machines[domain] = Machine()
                await fold_to(machines[domain], log, await log.tail())
            check_whole(machines[0], list(logs))
            await remember_birth(objects, self.directory, self.disk)
        return SimpleNamespace(cluster=identity.cluster_id, logs={n: one.log_id for n, one in machines.items()})


@pytest.mark.slow
@pytest.mark.parametrize("domains", [1, 4])
async def test_a_first_start_that_was_cut_short_anywhere_goes_on_and_forgets_nothing(domains):
    """ND3, ND5: power is lost at every single call; what a whole start began is there ever after."""
    points = 0
    for disk in sim.every_crash((None, 0, 1)):
        points += 1
        with disk.until_crash():
            try:
                await Cluster(disk, domains).start()
            except (LostReply, LogFailed):
                assert disk.crashed
        begun = await Cluster(disk, domains).start()
        assert sorted(begun.logs) == list(all_domains(domains))
        assert await Cluster(disk, domains + 3).start() == begun, f"{disk!r}"  # what is there counts
        with disk.until_crash():
            pass
        assert await Cluster(disk).start() == begun, f"{disk!r}"
        lost = points % len(begun.logs)
        log = DataDirectory(ROOT).log(lost)
        for name in disk.list(log):
            disk.remove(log / name)
        with pytest.raises(Corrupt):
            await Cluster(disk, domains).start()
    assert points > 60


@pytest.mark.slow
async def test_a_birth_that_was_cut_short_goes_on_with_the_number_that_it_began_with() -> None:
    """ND5: some of the logs say how many there are to be; the setting of the second start does not count."""
    found = set()
    for disk in sim.every_crash((None,)):
        with disk.until_crash(), suppress(LostReply, LogFailed):
            await Cluster(disk, 4).start()
        found.add(len((await Cluster(disk, 2).start()).logs))
    assert found == {3, 5}, "before anything was made the setting counts, and what was made after that"


@pytest.mark.slow
def test_a_domain_that_is_missing_is_damage_whatever_the_marks_say(tmp_path):
    """ND4: beside a catalog that names it; and a catalog that is missing beside a domain that was used (ND5)."""
    start(tmp_path, cluster__domains=4)
    assert len(list((tmp_path / "meta").glob("domain-*"))) == 5
    start(tmp_path)  # the number is the catalog's, not the setting's
    aside = empty(tmp_path / "meta" / "domain-00003")
    assert "domain=3" in refused(tmp_path)
    as_it_was_before_the_marks(tmp_path)
    (tmp_path / "meta" / "domain-00003").rmdir()
    assert "missing=3" in refused(tmp_path)
    aside.rename(tmp_path / "meta" / "domain-00003")
    with broker(tmp_path) as dray:
        produce(dray.bootstrap)
    (tmp_path / "log.json").unlink()
    (tmp_path / "meta" / "domain-00000").rename(tmp_path / "kept")
    assert "not in this directory" in refused(tmp_path)
    (tmp_path / "objects" / "log.json").unlink()
    shutil.rmtree(tmp_path / "objects" / "wal")
    assert "catalog is missing" in refused(tmp_path)
