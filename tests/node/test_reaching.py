"""The logs of a directory for who does not run on it: beside the owner, in its place, wherever they lie."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dray.clock import SystemClock
from dray.disk import DirectoryInUse, DirectoryLock, LocalDisk
from dray.errors import NotFound, Unavailable
from dray.ids import SystemEntropy
from dray.machine.machine import Machine
from dray.node import reaching
from dray.node.activation import activate
from dray.node.directory import DataDirectory
from dray.node.inspection import current_machine, inspect, verify
from dray.node.metadata import Effects
from dray.node.reaching import reach
from dray.offload import InlineOffload
from dray.testing import broker


@pytest.fixture
def effects() -> Effects:
    return Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())


async def _look(data: Path, effects: Effects) -> tuple[bool, dict[int, tuple[int, int]], Machine]:
    """What an operator sees of a directory, and what a step of one does."""
    directory = DataDirectory.at(data, effects.disk)
    done = await activate(directory, Machine.supported, effects)
    async with inspect(directory, 0, effects.disk) as inspected:
        await verify(inspected)
        return inspected.live, done, await current_machine(inspected)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in it", "elsewhere"])
def test_a_log_is_found_where_its_directory_says_beside_the_broker_and_without_it(tmp_path, effects, elsewhere) -> None:
    """ND2: by the mark that a start leaves; nobody has to say it again."""
    settings = {"log__url": f"local:{tmp_path / 'logs'}"} if elsewhere else {}
    data = tmp_path / "data"
    with broker(data, **settings):
        live, done, machine = asyncio.run(_look(data, effects))
        assert live
    assert done == {0: (Machine.supported, Machine.supported)}
    live, done, later = asyncio.run(_look(data, effects))
    assert not live
    assert (later.log_id, done) == (machine.log_id, {0: (Machine.supported, Machine.supported)})
    assert later.position > machine.position


async def test_a_directory_of_nobody_is_refused_and_left_as_it_is(tmp_path, effects) -> None:
    with pytest.raises(NotFound):
        async with reach(DataDirectory(tmp_path), effects):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_who_comes_while_an_owner_starts_or_stops_waits_for_it(tmp_path, effects, monkeypatch) -> None:
    directory = DataDirectory(tmp_path)
    directory.claim(effects.disk, effects.entropy)
    lock = DirectoryLock(tmp_path)
    monkeypatch.setattr(reaching, "OPENING_LIMIT_S", 0)
    with pytest.raises(Unavailable, match="does not answer"):
        async with reach(directory, effects):
            pass
    monkeypatch.setattr(reaching, "OPENING_LIMIT_S", 600)
    tried = asyncio.Event()

    def take(directory: Path) -> DirectoryLock:
        tried.set()
        return DirectoryLock(directory)

    async def reached() -> bool:
        async with reach(directory, replace(effects, lock=take)) as found:
            with pytest.raises(DirectoryInUse):
                DirectoryLock(tmp_path)
            return found.live

    waiting = asyncio.create_task(reached())
    await tried.wait()
    lock.release()
    assert not await waiting
    DirectoryLock(tmp_path).release()
