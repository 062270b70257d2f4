"""Objects in a directory: the contract on a real and on a fake disk, a crash at every call, and bad disks."""

import asyncio
import itertools
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dray.disk import LocalDisk, SyncFailed
from dray.errors import DrayError
from dray.ids import SeededEntropy
from dray.objects.files import TEMPORARY, FileObjects
from dray.objects.port import AlreadyExists, NoSuchObject, PutUnknown, ShortObject, StoreUnavailable
from dray.offload import InlineOffload, ThreadOffload
from dray.sim.disk import FakeDisk, PowerLoss, every_crash
from tests.disk.mounts import Mounted, small_filesystem
from tests.objects.contract import ObjectsContract

ROOT = Path("/objects")
NAME = "wal/v1/zone=a/one.wo"
BODY = bytes(range(256)) * 20


class TestFilesOnTheLocalDisk(ObjectsContract):
    @pytest.fixture
    async def objects(self, tmp_path: Path) -> AsyncIterator[FileObjects]:
        offload = ThreadOffload(8)
        objects = FileObjects(tmp_path / "objects", LocalDisk(), offload)
        await objects.open()
        yield objects
        offload.close()
        assert LocalDisk().list(tmp_path / "objects" / TEMPORARY) == [], "no put leaves a temporary file"


class TestFilesOnTheFakeDisk(ObjectsContract):
    @pytest.fixture
    async def objects(self) -> FileObjects:
        return await opened(FakeDisk(seed=3))


async def opened(disk: FakeDisk, process: int = 0) -> FileObjects:
    objects = FileObjects(ROOT, disk, InlineOffload(), SeededEntropy(process))
    await objects.open()
    return objects


async def test_a_crash_at_any_call_leaves_the_whole_object_or_none_and_keeps_what_was_acknowledged() -> None:
    """O1, O2, O6"""
    crashes = 0
    for disk in every_crash(seeds=(None, *range(12))):
        acknowledged = []
        deleted = False
        with disk.until_crash():
            objects = await opened(disk)
            for number in range(3):
                name = f"wal/{number % 2}/{number}.wo"
                await objects.put(name, [BODY, name.encode()])
                acknowledged.append(name)
            acknowledged.remove("wal/0/0.wo")
            await objects.delete("wal/0/0.wo")
            deleted = True
        crashes += 1
        after = await opened(disk, process=1)
        for number in range(3):
            name = f"wal/{number % 2}/{number}.wo"
            found = await content_of(after, name)
            assert found in (None, BODY + name.encode()), (disk, name)
            assert found is not None or name not in acknowledged, (disk, name)
        if deleted:
            assert await content_of(after, "wal/0/0.wo") is None, "an acknowledged delete stays"
        assert disk.list(ROOT / TEMPORARY) == [], "opening swept what was left"
    assert crashes > 200


async def test_a_repeat_after_a_killed_process_is_acknowledged_only_when_durable() -> None:
    """O3: the first process dies anywhere, the second repeats its put, then the power goes."""
    for disk in every_crash(seeds=(None, *range(12))):
        with disk.until_crash(keep_cache=True):
            await (await opened(disk)).put(NAME, [BODY])
        await (await opened(disk, process=1)).put(NAME, [BODY[:100], BODY[100:]])
        disk.crash()
        assert await content_of(await opened(disk, process=2), NAME) == BODY, disk


async def test_a_file_that_something_else_copied_there_is_made_durable_before_a_put_is_acknowledged() -> None:
    """O3, after a restore that synced nothing."""
    disk = FakeDisk()
    objects = await opened(disk)
    await objects.put("dir/other", [b"x"])
    disk.create(ROOT / "dir" / "copied").write([BODY])
    await objects.put("dir/copied", [BODY])
    disk.crash()
    assert await content_of(await opened(disk, process=1), "dir/copied") == BODY


async def test_a_loser_is_told_only_of_a_winner_that_stays() -> None:
    """O2: the first process links its object and dies; the second, with other bytes, loses to it for good or wins."""
    outcomes = set()
    for disk in every_crash(seeds=(None, *range(6))):
        with disk.until_crash(keep_cache=True):
            await (await opened(disk)).put(NAME, [BODY])
        try:
            await (await opened(disk, process=1)).put(NAME, [b"other"])
            expected = b"other"
        except AlreadyExists:
            expected = BODY
        disk.crash()
        assert await content_of(await opened(disk, process=2), NAME) == expected, disk
        outcomes.add(expected)
    assert outcomes == {BODY, b"other"}


@pytest.mark.slow
async def test_no_put_of_eight_in_flight_is_acknowledged_before_its_directory_was_synced() -> None:
    """O6, with a crash at every call of eight puts in flight."""
    names = [f"dir/{number}" for number in range(8)]
    for run, disk in enumerate(every_crash(seeds=(None, *range(8)))):
        acknowledged: list[str] = []

        async def put(objects: FileObjects, name: str, acknowledged: list[str] = acknowledged) -> None:
            await objects.put(name, [name.encode() * 50])
            acknowledged.append(name)

        with disk.until_crash():
            objects = FileObjects(ROOT, disk, YieldingOffload(run), SeededEntropy(0))
            await objects.open()
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(put(objects, name))
        after = await opened(disk, process=1)
        for name in acknowledged:
            assert await content_of(after, name) == name.encode() * 50, (disk, name)


class YieldingOffload(InlineOffload):
    """Inline, but others run for a while before and after the call, as with threads."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    async def run(self, function, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        for _ in range(self._dice.randint(0, 4)):
            await asyncio.sleep(0)
        result = function(*args, **kwargs)
        for _ in range(self._dice.randint(0, 4)):
            await asyncio.sleep(0)
        return result


async def test_a_failed_sync_of_the_bytes_stores_nothing_and_the_next_put_works() -> None:
    """D2: the file is thrown away, never synced again."""
    disk = FakeDisk()
    objects = await opened(disk)
    disk.fail_sync(TEMPORARY + "/")
    with pytest.raises(StoreUnavailable, match="nothing was stored"):
        await objects.put(NAME, [BODY])
    assert await content_of(objects, NAME) is None
    await objects.put(NAME, [BODY])
    disk.crash()
    assert await content_of(await opened(disk), NAME) == BODY


async def test_after_a_failed_directory_sync_nothing_in_it_is_acknowledged() -> None:
    """O7: the kernel would say yes to a second sync and keep nothing."""
    for seed in (None, *range(10)):
        disk = FakeDisk(seed=seed)
        objects = await opened(disk)
        await objects.put("dir/before", [b"x"])
        disk.fail_sync(str(ROOT / "dir"))
        for _ in range(3):
            with pytest.raises(PutUnknown):
                await objects.put("dir/a", [BODY])
        with pytest.raises(PutUnknown, match="check the disk, then restart"):
            await objects.put("dir/b", [BODY])
        await objects.put("elsewhere/c", [b"y"])
        disk.crash()
        after = await opened(disk)
        assert await content_of(after, "dir/before") == b"x"
        assert await content_of(after, "elsewhere/c") == b"y"
        assert await content_of(after, "dir/a") in (None, BODY)


async def test_a_neighbour_that_opens_sweeps_and_a_put_in_flight_starts_again() -> None:
    disk = FakeDisk()
    objects = await opened(disk)
    swept = []

    def hook(name: str, path: Path) -> None:
        if name == "link" and len(swept) < 2:
            swept.append(path)
            for left in disk.list(ROOT / TEMPORARY):
                disk.remove(ROOT / TEMPORARY / left)

    disk.on_call = hook
    await objects.put(NAME, [BODY])
    assert len(swept) == 2
    assert await content_of(objects, NAME) == BODY


async def test_something_that_sweeps_for_ever_is_an_error_that_says_so() -> None:
    disk = FakeDisk()
    objects = await opened(disk)

    def hook(name: str, path: Path) -> None:
        if name == "link":
            for left in disk.list(ROOT / TEMPORARY):
                disk.remove(ROOT / TEMPORARY / left)

    disk.on_call = hook
    with pytest.raises(StoreUnavailable, match="does something clean this directory"):
        await objects.put(NAME, [BODY])


async def test_a_removed_directory_is_made_again(tmp_path: Path) -> None:
    objects = FileObjects(tmp_path / "objects", LocalDisk(), InlineOffload())
    await objects.put("dir/a", [b"x"])
    (tmp_path / "objects" / "dir" / "a").unlink()
    (tmp_path / "objects" / "dir").rmdir()
    (tmp_path / "objects" / TEMPORARY).rmdir()
    await objects.put("dir/b", [b"y"])
    assert await content_of(objects, "dir/b") == b"y"


async def test_foreign_files_in_the_directory_are_not_listed(tmp_path: Path) -> None:
    objects = FileObjects(tmp_path / "objects", LocalDisk(), InlineOffload())
    await objects.put("dir/a", [b"x"])
    (tmp_path / "objects" / "dir" / ".hidden").write_bytes(b"")
    (tmp_path / "objects" / "dir" / "not ours").write_bytes(b"")
    (tmp_path / "objects" / TEMPORARY / "left").write_bytes(b"")
    assert [info.path async for info in objects.list("")] == ["dir/a"]


async def test_objects_of_another_prefix_are_not_seen(tmp_path: Path) -> None:
    """R-027: two clusters side by side; a zone is only part of the name."""
    one = FileObjects(tmp_path / "one", LocalDisk(), InlineOffload())
    two = FileObjects(tmp_path / "two", LocalDisk(), InlineOffload())
    await one.put("wal/v1/zone=a/x", [b"1"])
    await one.put("wal/v1/zone=b/x", [b"2"])
    await two.delete("wal/v1/zone=a/x")
    assert [info.path async for info in two.list("")] == []
    assert bytes(await one.get("wal/v1/zone=a/x")) == b"1"
    assert bytes(await one.get("wal/v1/zone=b/x")) == b"2"


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    with small_filesystem(tmp_path / "small") as mount:
        yield mount


async def test_a_full_disk_is_a_clear_error_and_nothing_is_lost(mounted: Mounted) -> None:
    """Bad input: ENOSPC."""
    objects = FileObjects(mounted.path, LocalDisk(), InlineOffload())
    await objects.put("dir/kept", [BODY])
    with pytest.raises(StoreUnavailable, match="no space left: free some and try again"):
        await objects.put("dir/big", [bytes(1 << 20)] * 16)
    assert await content_of(objects, "dir/kept") == BODY
    assert await content_of(objects, "dir/big") is None
    await objects.put("dir/after", [bytes(4 << 20)])
    assert LocalDisk().list(mounted.path / TEMPORARY) == [], "the room came back"


async def test_a_read_only_file_system_is_a_clear_error_and_reads_go_on(mounted: Mounted) -> None:
    """Bad input: EROFS."""
    objects = FileObjects(mounted.path, LocalDisk(), InlineOffload())
    await objects.put("dir/kept", [BODY])
    mounted.remount_read_only()
    with pytest.raises(StoreUnavailable, match="remount it"):
        await objects.put("dir/new", [BODY])
    with pytest.raises(StoreUnavailable, match="remount it"):
        await objects.delete("dir/kept")
    assert await content_of(objects, "dir/kept") == BODY
    fresh = FileObjects(mounted.path / "sub", LocalDisk(), InlineOffload())
    with pytest.raises(DrayError, match="remount it"):
        await fresh.open()


async def test_a_truncated_object_and_a_deleted_one_are_clear_errors(tmp_path: Path) -> None:
    """Bad input: someone touched the files."""
    objects = FileObjects(tmp_path, LocalDisk(), InlineOffload())
    await objects.put("dir/a", [BODY])
    with (tmp_path / "dir" / "a").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ShortObject, match="ends before the bytes that were asked for: it was cut"):
        await objects.get("dir/a", 50, 150)
    assert bytes(await objects.get("dir/a", 50, 100)) == BODY[50:100]
    with pytest.raises(AlreadyExists):
        await objects.put("dir/a", [BODY])
    (tmp_path / "dir" / "a").unlink()
    with pytest.raises(NoSuchObject, match="no such object"):
        await objects.get("dir/a", 0, 10)


async def test_a_file_where_a_directory_belongs_is_an_error(tmp_path: Path) -> None:
    objects = FileObjects(tmp_path, LocalDisk(), InlineOffload())
    await objects.put("dir", [b"x"])
    with pytest.raises(DrayError, match="path="):
        await objects.put("dir/a", [BODY])
    assert bytes(await objects.get("dir")) == b"x"


async def content_of(objects: FileObjects, name: str) -> bytes | None:
    try:
        return bytes(await objects.get(name))
    except NoSuchObject:
        return None


async def test_a_dead_machine_acknowledges_nothing() -> None:
    disk = FakeDisk()
    objects = await opened(disk)
    disk.power_off()
    with pytest.raises(PowerLoss):
        await objects.put(NAME, [BODY])


@asynccontextmanager
async def in_threads(root: Path, disk: LocalDisk) -> AsyncIterator[FileObjects]:
    """A store whose puts run side by side, and whose directory `dir` is there already."""
    (root / "dir").mkdir()
    offload = ThreadOffload(8)
    objects = FileObjects(root, disk, offload)
    await objects.open()
    objects._made.add(root / "dir")
    try:
        yield objects
    finally:
        offload.close()


async def test_a_put_beside_a_directory_sync_that_fails_is_not_acknowledged(tmp_path: Path) -> None:
    """O6, O7: a disk tells a failure once. The puts whose links the failed sync was to save hear of it too."""
    inside, others_wait = threading.Event(), threading.Event()

    class TellsOnce(LocalDisk):
        """The first sync of the directory takes until the others wait for it, and fails; all others succeed."""

        def sync_dir(self, path: Path) -> None:
            if path.name == "dir" and not inside.is_set():
                inside.set()
                others_wait.wait(30)
                raise SyncFailed("lost", path=path)
            super().sync_dir(path)

    async with in_threads(tmp_path, TellsOnce()) as objects:
        puts = [asyncio.ensure_future(objects.put(f"dir/{number}", [b"x"])) for number in range(4)]
        while not all((tmp_path / "dir" / str(number)).exists() for number in range(4)):
            await asyncio.sleep(0.01)
        others_wait.set()
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [PutUnknown] * 4


async def test_puts_that_wait_for_one_sync_share_the_next(tmp_path: Path) -> None:
    """O6, with threads: the first sync is held until the other seven have asked for theirs."""
    syncs: list[Path] = []
    linked = threading.Event()

    class Counting(LocalDisk):
        def sync_dir(self, path: Path) -> None:
            if path.name == "dir":
                syncs.append(path)
                linked.wait(30)
            super().sync_dir(path)

    async with in_threads(tmp_path, Counting()) as objects:
        asked: list[int] = []
        numbers = itertools.count()
        sync = objects._sync_of(tmp_path / "dir")
        sync._tickets = map(lambda number: asked.append(number) or number, numbers)  # type: ignore[assignment]
        puts = [asyncio.ensure_future(objects.put(f"dir/{number}", [b"x"])) for number in range(8)]
        while len(asked) < 9:  # each put, and the sync that runs
            await asyncio.sleep(0.01)
        linked.set()
        await asyncio.gather(*puts)
    assert len(syncs) == 2
