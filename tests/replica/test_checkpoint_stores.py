"""What every place for checkpoints does alike: each adapter of `dray.replica.checkpoints.port` passes."""

from pathlib import Path

import pytest

from dray.disk import LocalDisk
from dray.errors import Corrupt, NotFound
from dray.log.memory import MemoryLog
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.offload import InlineOffload
from dray.replica.checkpoints import (
    CheckpointStore,
    FileCheckpoints,
    JoinedCheckpoints,
    MemoryCheckpoints,
    newest_machine,
)
from dray.replica.fold import fold_to, state_at
from tests.replica.domain import new_log

POSITION = 1
"""Of the machine below: it has seen the first entry of a log."""


@pytest.fixture(params=["files", "joined", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    match request.param:
        case "files":
            return FileCheckpoints(tmp_path / "ours", LocalDisk(), InlineOffload())
        case "joined":
            return JoinedCheckpoints(tmp_path / "ours", tmp_path / "theirs", LocalDisk(), InlineOffload())
    return MemoryCheckpoints()


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
