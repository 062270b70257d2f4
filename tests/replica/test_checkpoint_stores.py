"""What every place for checkpoints does alike: each adapter of `dray.replica.checkpoints.port` passes."""

import shutil
from pathlib import Path

import pytest

from dray.disk import LocalDisk
from dray.errors import Corrupt, NotFound
from dray.log.memory import MemoryLog
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.objects.memory import MemoryObjects
from dray.objects.port import Objects
from dray.offload import InlineOffload
from dray.replica.checkpoints import (
    CheckpointStore,
    FileCheckpoints,
    JoinedCheckpoints,
    MemoryCheckpoints,
    PublishedCheckpoints,
    SharedCheckpoints,
    VisitingCheckpoints,
    files,
    newest_machine,
    pages,
)
from dray.replica.fold import fold_to, state_at
from tests.replica.domain import LOG_ID, new_log

POSITION = 1
"""Of the machine below: it has seen the first entry of a log."""


@pytest.fixture(params=["files", "pages", "joined", "joined in pages", "shared", "visiting", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointStore:
    if "pages" in request.param:
        monkeypatch.setattr(files, "LARGE", 1)
        monkeypatch.setattr(pages, "PAGE", 64)
    match request.param.removesuffix(" in pages"):
        case "files" | "pages":
            return FileCheckpoints(tmp_path / "ours", LocalDisk(), InlineOffload())
        case "joined":
            theirs = FileCheckpoints(tmp_path / "theirs", LocalDisk(), InlineOffload())
            return JoinedCheckpoints(tmp_path / "ours", theirs, LocalDisk(), InlineOffload())
        case "shared":
            return shared(tmp_path / "ours", MemoryObjects())
        case "visiting":
            theirs = PublishedCheckpoints(MemoryObjects(), log_id=LOG_ID, domain=3, offload=InlineOffload())
            return VisitingCheckpoints(theirs, InlineOffload())
    return MemoryCheckpoints()


def shared(directory: Path, objects: Objects) -> SharedCheckpoints:
    published = PublishedCheckpoints(objects, log_id=LOG_ID, domain=3, offload=InlineOffload())
    return SharedCheckpoints(directory, published, LocalDisk(), InlineOffload())


@pytest.fixture
async def log() -> MemoryLog:
    return await new_log()


@pytest.fixture
async def data(log: MemoryLog) -> bytes:
    machine = Machine()
    await fold_to(machine, log, POSITION)
    return checkpoint.dump(machine)


async def test_what_is_made_cannot_be_loaded_before_it_is_confirmed(store: CheckpointStore, data: bytes) -> None:
    """CK1"""
    await store.write(POSITION, data)
    assert (await store.made(), await store.confirmed()) == ([POSITION], [])
    assert (await store.examine(POSITION)).position == POSITION
    with pytest.raises(NotFound):
        await store.load(POSITION)
    await store.confirm(POSITION)
    assert (await store.made(), await store.confirmed()) == ([], [POSITION])
    assert (await store.check(POSITION)).position == POSITION
    assert checkpoint.dump(await store.load(POSITION)) == data


async def test_one_that_cannot_be_read_is_kept_where_nobody_loads_it(
    store: CheckpointStore, data: bytes, log: MemoryLog
) -> None:
    """CK3: the one before it is loaded; who only looks leaves it where it is."""
    damaged = bytes([*data[:-1], data[-1] ^ 1])
    for position, content in ((POSITION, data), (POSITION + 1, damaged)):
        await store.write(position, content)
        await store.confirm(position)
    with pytest.raises(Corrupt):
        await store.check(POSITION + 1)
    assert (await state_at(POSITION, log, store)).position == POSITION
    assert await store.confirmed() == [POSITION, POSITION + 1]
    assert (await newest_machine(store)).position == POSITION
    assert await store.confirmed() == [POSITION]


async def test_what_is_missing_can_be_forgotten_and_not_be_read(store: CheckpointStore, data: bytes) -> None:
    for _ in range(2):
        await store.discard(POSITION)
        await store.remove(POSITION)
    for call in (store.examine, store.check, store.load):
        with pytest.raises(NotFound):
            await call(POSITION)
    await store.write(POSITION, data)
    await store.discard(POSITION)
    assert await store.made() == []
    for _ in range(2):
        await store.write(POSITION, data)  # made again: the same bytes
    await store.confirm(POSITION)
    await store.sweep()
    await store.discard(POSITION)
    assert await store.confirmed() == [POSITION]
    await store.remove(POSITION)
    assert (await store.confirmed(), (await newest_machine(store)).position) == ([], 0)


async def test_what_one_broker_confirmed_another_finds_whose_disk_is_empty(tmp_path: Path, data: bytes) -> None:
    """D-158, CK6, R-002: and it is still there when the disk of the first is gone."""
    objects = MemoryObjects()
    one = shared(tmp_path / "one", objects)
    await one.write(POSITION, data)
    late = shared(tmp_path / "late", objects)
    assert await late.confirmed() == [], "made, and nobody has confirmed it"
    await one.confirm(POSITION)
    shutil.rmtree(tmp_path / "one")
    assert checkpoint.dump(await newest_machine(late)) == data
    again = shared(tmp_path / "one", objects)
    await again.write(POSITION, data)
    await again.confirm(POSITION)  # the same bytes: the same object
    assert [len(await store.confirmed()) for store in (again, late)] == [1, 1]
    await again.remove(POSITION)
    assert [found.path async for found in objects.list("")] == []


async def test_two_checkpoints_of_one_position_are_a_dispute_and_none_is_taken(tmp_path: Path, data: bytes) -> None:
    """CK6"""
    objects = MemoryObjects()
    for name, content in (("one", data), ("two", data[:-1] + b"x")):
        store = shared(tmp_path / name, objects)
        await store.write(POSITION, content)
        await store.confirm(POSITION)
    late = shared(tmp_path / "late", objects)
    assert (await late.confirmed(), (await newest_machine(late)).position) == ([], 0)


async def test_checkpoints_of_another_log_are_not_found(tmp_path: Path, data: bytes) -> None:
    """Recovery begins a new log under another id: what lies in the store belongs to the old one."""
    objects = MemoryObjects()
    other = PublishedCheckpoints(objects, log_id=b"another!", domain=3, offload=InlineOffload())
    await other.publish(POSITION, data)
    assert await shared(tmp_path / "ours", objects).confirmed() == []


async def test_what_a_directory_had_before_it_was_shared_is_published_once(tmp_path: Path, data: bytes) -> None:
    objects = MemoryObjects()
    alone = FileCheckpoints(tmp_path / "one", LocalDisk(), InlineOffload())
    await alone.write(POSITION, data)
    await alone.confirm(POSITION)
    for _ in range(2):
        await shared(tmp_path / "one", objects).publish_own()
    assert len([found.path async for found in objects.list("")]) == 1
    assert (await newest_machine(shared(tmp_path / "late", objects))).position == POSITION
