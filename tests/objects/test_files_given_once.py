"""Files whose name is given once are written under it: what a crash, a full disk and a rival may leave behind."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dray.disk import LocalDisk, SyncFailed
from dray.errors import Unavailable
from dray.machine.names import SessionId
from dray.objects.files import TEMPORARY, FileObjects
from dray.objects.paths import WalName, is_given_once
from dray.objects.port import AlreadyExists, NoSuchObject, PutUnknown, StoreUnavailable
from dray.offload import ThreadOffload
from dray.sim.disk import FakeDisk, every_crash
from dray.wal.ids import LogId, wal_id
from tests.objects.contract import ObjectsContract
from tests.objects.test_file_objects import ROOT, content_of, opened

BODY = bytes(range(256)) * 20
LOG = LogId(b"12345678")


def name_of(counter: int, session: int = 1) -> str:
    return WalName.of(zone="a", domain=0, created_ms=1_000, wal_id=wal_id(LOG, SessionId(session), counter)).path()


def test_only_a_name_with_a_wal_id_is_given_once() -> None:
    """O10"""
    assert is_given_once(name_of(1))
    for other in ("cluster.json", "wal/v1/zone=a/one.wo", name_of(1)[:-3], name_of(1) + "x", "a/" + name_of(1)):
        assert not is_given_once(other)


class TestNamesGivenOnce(ObjectsContract):
    """The contract, with every name of the suite turned into one that is given once."""

    @pytest.fixture
    async def objects(self) -> "Renamed":
        return Renamed(await opened(FakeDisk(seed=3)))


class Renamed(FileObjects):
    """Every object is written as those are whose name is given once."""

    def __init__(self, inner: FileObjects) -> None:
        self.__dict__.update(inner.__dict__)

    def _place(self, target: Path, parts: object) -> bool:
        return self._create(target, parts)  # type: ignore[arg-type]


@pytest.mark.slow
async def test_a_crash_at_any_call_keeps_what_was_acknowledged_and_harms_nobody_who_comes_after() -> None:
    """O1, O6, O10: what was not acknowledged may be torn; it is listed, deleted and stepped over."""
    crashes = torn = 0
    for disk in every_crash(seeds=(None, *range(12))):
        acknowledged = []
        with disk.until_crash():
            objects = await opened(disk)
            for counter in range(3):
                await objects.put(name_of(counter), [BODY, b"%d" % counter])
                acknowledged.append(counter)
        crashes += 1
        after = await opened(disk, process=1)
        for counter in range(3):
            found = await content_of(after, name_of(counter))
            if counter in acknowledged:
                assert found == BODY + b"%d" % counter, (disk, counter)
            elif found is not None and found != BODY + b"%d" % counter:
                torn += 1
        listed = [found.path async for found in after.list("wal/")]
        assert set(listed) >= {name_of(counter) for counter in acknowledged}
        await after.put(name_of(0, session=2), [b"of the next session"])
        for path in listed:
            await after.delete(path)
        assert [found.path async for found in after.list("wal/")] == [name_of(0, session=2)]
    assert crashes > 100
    assert torn > 20, "the disk left torn files, or this test is about nothing"


@pytest.mark.slow
async def test_a_repeat_is_never_acknowledged_on_a_torn_file() -> None:
    """O2, O3, O10: should a name be given twice after all, other bytes are found out, and the same ones are synced."""
    outcomes = set()
    for disk in every_crash(seeds=(None, *range(12))):
        with disk.until_crash(keep_cache=bool(disk.seed and disk.seed % 2)):
            await (await opened(disk)).put(name_of(1), [BODY])
        again = await opened(disk, process=1)
        try:
            await again.put(name_of(1), [BODY[:100], BODY[100:]])
        except AlreadyExists:
            outcomes.add("torn")
            continue
        outcomes.add("whole")
        disk.crash()
        assert await content_of(await opened(disk, process=2), name_of(1)) == BODY, disk
    assert outcomes == {"torn", "whole"}


async def test_a_directory_whose_maker_died_is_synced_before_a_file_in_it_is_acknowledged() -> None:
    """D3, O6"""
    for disk in every_crash(seeds=(None, *range(4))):
        with disk.until_crash(keep_cache=True):
            await (await opened(disk)).put(name_of(1), [BODY])
        await (await opened(disk, process=1)).put(name_of(1, session=2), [BODY])
        disk.crash()
        assert await content_of(await opened(disk, process=2), name_of(1, session=2)) == BODY, disk


def full(disk: FakeDisk) -> None:
    disk.capacity_bytes = 1_000


def failing(disk: FakeDisk) -> None:
    disk.fail_sync(".wo")


@pytest.mark.parametrize("break_", [full, failing])
async def test_a_put_that_fails_takes_its_file_away(break_: Callable[[FakeDisk], None]) -> None:
    """O10: nothing happened, and the same put works when the disk does."""
    disk = FakeDisk(seed=1)
    objects = await opened(disk)
    break_(disk)
    with pytest.raises(StoreUnavailable):
        await objects.put(name_of(1), [BODY])
    assert await content_of(objects, name_of(1)) is None
    disk.capacity_bytes = None
    await objects.put(name_of(1), [BODY])
    disk.crash()
    assert await content_of(await opened(disk, process=1), name_of(1)) == BODY


async def test_a_torn_file_that_stays_is_an_outcome_that_nobody_knows() -> None:
    """O10, E1"""
    disk = FakeDisk(seed=1)
    objects = await opened(disk)
    full(disk)

    def refuse(call: str, path: Path) -> None:
        if call == "remove":
            raise Unavailable("not now", path=path)

    disk.on_call = refuse
    with pytest.raises(PutUnknown):
        await objects.put(name_of(1), [BODY])
    disk.on_call = None
    with pytest.raises(AlreadyExists):
        await objects.put(name_of(1), [BODY])


async def test_no_temporary_file_is_made(tmp_path: Path) -> None:
    offload = ThreadOffload(4)
    objects = FileObjects(tmp_path, LocalDisk(), offload)
    try:
        await asyncio.gather(*(objects.put(name_of(counter), [BODY]) for counter in range(20)))
        assert await content_of(objects, name_of(7)) == BODY
    finally:
        offload.close()
    assert not (tmp_path / TEMPORARY).exists()


async def test_of_racing_puts_one_wins_and_its_bytes_are_there(tmp_path: Path) -> None:
    """O2: nobody should race for such a name; who does learns that it was taken."""
    offload = ThreadOffload(8)
    objects = FileObjects(tmp_path, LocalDisk(), offload)
    won = []

    async def put(number: int) -> None:
        with contextlib.suppress(AlreadyExists):
            await objects.put(name_of(1), [b"%d" % number * 5_000])
            won.append(number)

    try:
        await asyncio.gather(*(put(number) for number in range(8)))
        assert len(won) == 1
        assert await content_of(objects, name_of(1)) == b"%d" % won[0] * 5_000
    finally:
        offload.close()


async def test_a_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    offload = ThreadOffload(1)
    objects = FileObjects(tmp_path, LocalDisk(), offload)
    try:
        await objects.put(name_of(1), [BODY])
        target = tmp_path / name_of(1)
        target.unlink()
        target.parent.rmdir()
        await objects.put(name_of(2), [BODY])
        assert await content_of(objects, name_of(2)) == BODY
        with pytest.raises(NoSuchObject):
            await objects.get(name_of(1))
    finally:
        offload.close()


async def test_after_a_failed_directory_sync_nothing_in_it_is_acknowledged() -> None:
    """O7"""
    disk = FakeDisk(seed=2)
    objects = await opened(disk)
    await objects.put(name_of(1), [BODY])

    def fail(call: str, path: Path) -> None:
        if call == "sync_dir":
            disk.on_call = None
            raise SyncFailed("the disk did not take the entry", path=path)

    disk.on_call = fail
    for counter in (2, 3, 1):
        with pytest.raises(PutUnknown):
            await objects.put(name_of(counter), [BODY])
    assert await content_of(await opened(disk, process=1), name_of(1)) == BODY
    assert disk.list(ROOT / TEMPORARY) == []
