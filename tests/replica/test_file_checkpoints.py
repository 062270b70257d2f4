"""Checkpoints as files, on a disk that forgets what was not synced."""

from pathlib import Path

import pytest

from dray.errors import Corrupt, NotFound
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


def large(fill: int, *, changed: int = 0, prefix: bytes = b"") -> bytes:
    """Bytes of some pages."""
    parts = [bytes([fill + at % 7]) * 1_000 for at in range(2_000)]
    for at in range(changed):
        parts[at] = b"!" * 1_000
    return prefix + b"".join(parts)


def names(disk: FakeDisk) -> set[str]:
    return set(disk.list(DIRECTORY / "pages"))


async def test_what_did_not_change_is_not_written_again_even_when_what_lies_before_it_grew() -> None:
    """D-154"""
    disk = FakeDisk()
    store = FileCheckpoints(DIRECTORY, disk, InlineOffload())
    await store.write(1, b"a" * 10, large(1))
    first = names(disk)
    await store.write(2, b"b" * 5_000, large(1, changed=3))
    fresh = names(disk) - first
    assert len(first) >= 8
    assert len(fresh) == 2, "the prefix, and the page that was changed"
    assert await store.read_made(1) == large(1, prefix=b"a" * 10)
    assert await store.read_made(2) == large(1, prefix=b"b" * 5_000, changed=3)


async def test_pages_go_when_no_kept_checkpoint_names_them() -> None:
    """CK8"""
    disk = FakeDisk()
    store = FileCheckpoints(DIRECTORY, disk, InlineOffload())
    for position in (1, 2, 3):
        await store.write(position, large(1, changed=position))
        await store.confirm(position)
    await store.write(4, large(9))
    both = names(disk)
    await store.discard(4)
    assert names(disk) < both
    await store.remove(1)
    for position in (2, 3):
        assert await store.read(position) == large(1, changed=position)
    await store.set_aside(3)
    await store.remove(2)
    assert names(disk), "what is kept for an operator keeps its pages"
    small = FileCheckpoints(DIRECTORY, disk, InlineOffload())
    await small.write(5, b"small")
    await small.sweep()
    assert await small.made() == []


async def test_a_checkpoint_in_pages_is_whole_or_not_there_wherever_the_power_goes() -> None:
    """CK7: a cut after each step of the disk; what has its name can be read, and a confirmed one stays."""
    steps = 0
    while True:
        disk = FakeDisk()
        store = FileCheckpoints(DIRECTORY, disk, InlineOffload())
        await store.write(1, large(1))
        await store.confirm(1)
        cut = Cut(disk, steps)
        broken = FileCheckpoints(DIRECTORY, cut, InlineOffload())
        done = False
        try:
            await broken.write(2, large(1, changed=2))
            await broken.confirm(2)
            await broken.remove(1)
            done = True
        except PowerCut:
            pass
        disk.crash()
        again = FileCheckpoints(DIRECTORY, disk, InlineOffload())
        await again.sweep()
        found = await again.confirmed()
        assert found, steps
        for position in found:
            assert await again.read(position) == large(1, changed=0 if position == 1 else 2)
        if done:
            assert found == [2]
            return
        steps += 1


async def test_a_page_that_was_damaged_is_seen_kept_aside_and_written_anew() -> None:
    """CK3, K3"""
    disk = FakeDisk()
    store = FileCheckpoints(DIRECTORY, disk, InlineOffload())
    await store.write(1, large(1))
    victim = sorted(names(disk))[0]
    whole = disk.read(DIRECTORY / "pages" / victim)
    disk.remove(DIRECTORY / "pages" / victim)
    file = disk.create(DIRECTORY / "pages" / victim)
    file.write([bytes([whole[0] ^ 1]) + whole[1:]])
    file.sync()
    file.close()
    with pytest.raises(Corrupt):
        await store.read_made(1)
    with pytest.raises(Corrupt):
        await store.examine(1)
    await store.discard(1)
    await store.write(2, large(1))
    assert await store.read_made(2) == large(1)
    assert f"{victim}.damaged" in names(disk)
    disk.remove(DIRECTORY / "pages" / victim)
    with pytest.raises(Corrupt):
        await store.read_made(2)
    await store.discard(2)
    with pytest.raises(NotFound):
        await store.read_made(2)


class PowerCut(Exception):
    """Nothing more happens."""


class Cut:
    """A disk whose power goes after so many changes."""

    def __init__(self, disk: FakeDisk, steps: int) -> None:
        self._disk = disk
        self._left = steps

    def __getattr__(self, name):
        act = getattr(self._disk, name)
        if name not in {"create", "rename", "remove", "sync_dir"}:
            return act

        def counted(*arguments):
            if not self._left:
                raise PowerCut
            self._left -= 1
            return act(*arguments)

        return counted
