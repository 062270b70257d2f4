"""The fake disk: the contract, and the faults of a real one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.disk import DiskFull, ReadOnly, SyncFailed
from dray.errors import NotFound
from dray.sim.disk import FakeDisk, PowerLoss, every_crash
from tests.disk.contract import DiskContract

ROOT = Path("/disk")
SEEDS = range(200)


class TestFakeDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> FakeDisk:
        disk = FakeDisk(seed=1)
        disk.make_dir(ROOT)
        return disk

    @pytest.fixture
    def root(self) -> Path:
        return ROOT


def new_disk(seed: int | None = None) -> FakeDisk:
    disk = FakeDisk(seed=seed)
    disk.make_dir(ROOT)
    return disk


def durable_file(disk: FakeDisk, name: str, content: bytes) -> None:
    file = disk.create(ROOT / name)
    file.write([content])
    file.sync()
    file.close()
    disk.sync_dir(ROOT)


def after_crashes(prepare: Callable[[FakeDisk], object], look: Callable[[FakeDisk], object]) -> set[object]:
    """Everything that a look finds after a crash, over many seeds."""
    seen = set()
    for seed in (None, *SEEDS):
        disk = new_disk(seed)
        prepare(disk)
        disk.crash()
        seen.add(look(disk))
    return seen


@pytest.mark.parametrize("seed", [None, *range(20)])
def test_synced_bytes_under_a_synced_name_survive(seed: int | None) -> None:
    """D1"""
    disk = new_disk(seed)
    durable_file(disk, "a", b"kept")
    file = disk.open(ROOT / "a")
    file.write([b" and more"])
    file.sync()
    file.write([b"unsynced"])
    disk.crash()
    assert disk.read(ROOT / "a").startswith(b"kept and more")


def test_without_a_seed_a_crash_loses_all_that_was_not_synced() -> None:
    disk = new_disk()
    durable_file(disk, "a", b"kept")
    durable_file(disk, "gone", b"comes back")
    disk.open(ROOT / "a").write([b" lost"])
    disk.create(ROOT / "b").sync()
    disk.link(ROOT / "a", ROOT / "c")
    disk.remove(ROOT / "gone")
    disk.crash()
    assert disk.list(ROOT) == ["a", "gone"]
    assert disk.read(ROOT / "a") == b"kept"


def test_an_unsynced_name_may_or_may_not_survive() -> None:
    def prepare(disk: FakeDisk) -> None:
        file = disk.create(ROOT / "a")
        file.write([b"x"])
        file.sync()

    assert after_crashes(prepare, lambda disk: tuple(disk.list(ROOT))) == {(), ("a",)}


def test_a_synced_name_may_lead_to_unsynced_bytes() -> None:
    def prepare(disk: FakeDisk) -> None:
        disk.create(ROOT / "a").write([b"abc"])
        disk.sync_dir(ROOT)

    seen = after_crashes(prepare, lambda disk: disk.read(ROOT / "a"))
    assert {b"", b"a", b"ab", b"abc", b"\0\0\0"} <= seen


def test_a_long_write_may_be_torn_at_any_byte_and_have_holes() -> None:
    content = bytes(range(1, 251)) * 10

    def prepare(disk: FakeDisk) -> None:
        durable_file(disk, "a", b"head")
        disk.open(ROOT / "a").write([content])

    tails = [tail for tail in after_crashes(prepare, lambda disk: disk.read(ROOT / "a")) if isinstance(tail, bytes)]
    assert all(tail.startswith(b"head") for tail in tails)
    assert any(b"\0" in tail and tail[-1:] != b"\0" for tail in tails), "holes"
    assert len({len(tail) % 512 for tail in tails}) > 20, "any byte"
    assert len(tails) > 50


def test_a_rename_is_undone_or_done_but_never_half() -> None:
    def prepare(disk: FakeDisk) -> None:
        durable_file(disk, "a", b"new")
        durable_file(disk, "b", b"old")
        disk.rename(ROOT / "a", ROOT / "b")

    def look(disk: FakeDisk) -> tuple[object, ...]:
        return (*disk.list(ROOT), disk.read(ROOT / "b"))

    assert after_crashes(prepare, look) == {("a", "b", b"old"), ("b", b"new")}


def test_changes_of_one_name_are_undone_newest_first() -> None:
    def prepare(disk: FakeDisk) -> None:
        durable_file(disk, "b", b"old")
        durable_file(disk, "a", b"new")
        disk.rename(ROOT / "a", ROOT / "b")
        disk.remove(ROOT / "b")

    def look(disk: FakeDisk) -> tuple[str, ...]:
        return tuple(disk.list(ROOT))

    assert after_crashes(prepare, look) == {("a", "b"), ("b",), ()}


def test_a_cut_may_be_undone() -> None:
    def prepare(disk: FakeDisk) -> None:
        durable_file(disk, "a", b"long content")
        file = disk.open(ROOT / "a")
        file.truncate(4)

    seen = after_crashes(prepare, lambda disk: disk.read(ROOT / "a"))
    assert {b"long", b"long content"} <= seen


def test_a_synced_cut_stays() -> None:
    def prepare(disk: FakeDisk) -> None:
        durable_file(disk, "a", b"long content")
        file = disk.open(ROOT / "a")
        file.truncate(4)
        file.write([b"er"])
        file.sync()

    assert after_crashes(prepare, lambda disk: disk.read(ROOT / "a")) == {b"longer"}


def test_a_made_directory_survives_with_what_is_synced_in_it() -> None:
    def prepare(disk: FakeDisk) -> None:
        disk.make_dir(ROOT / "x" / "y")
        disk.create(ROOT / "x" / "y" / "a")
        disk.sync_dir(ROOT / "x" / "y")

    assert after_crashes(prepare, lambda disk: tuple(disk.list(ROOT / "x" / "y"))) == {("a",)}


def test_a_crash_inside_make_dir_never_loses_what_a_second_maker_synced_below() -> None:
    """D3: the second maker finds a directory that the first made and did not sync."""
    for disk in every_crash(seeds=(None, *range(5))):
        with disk.until_crash(keep_cache=True):
            disk.make_dir(ROOT / "x" / "y")
        disk.make_dir(ROOT / "x" / "y")
        disk.create(ROOT / "x" / "y" / "a").sync()
        disk.sync_dir(ROOT / "x" / "y")
        disk.crash()
        assert disk.list(ROOT / "x" / "y") == ["a"], disk


def test_a_failed_sync_is_final_and_loses_bytes() -> None:
    """D2: the pages count as clean afterwards, so that even a new descriptor cannot save them."""
    lost = 0
    for seed in (None, *SEEDS):
        disk = new_disk(seed)
        durable_file(disk, "a", b"kept")
        file = disk.open(ROOT / "a")
        file.write([b"dropped"])
        disk.fail_sync("a")
        with pytest.raises(SyncFailed, match="did not take the bytes"):
            file.sync()
        with pytest.raises(SyncFailed, match="earlier sync"):
            file.sync()
        again = disk.open(ROOT / "a")
        again.write([b"later"])
        again.sync()
        assert disk.read(ROOT / "a") == b"keptdroppedlater", "the cache still shows it"
        disk.crash()
        content = disk.read(ROOT / "a")
        assert content.startswith(b"kept")
        assert content.endswith(b"later")
        assert len(content) == len(b"keptdroppedlater")
        lost += content != b"keptdroppedlater"
    assert lost > 50


def test_a_failed_directory_sync_loses_names_that_no_later_sync_saves() -> None:
    """D2"""

    def prepare(disk: FakeDisk) -> None:
        disk.create(ROOT / "a").sync()
        disk.fail_sync(str(ROOT))
        with pytest.raises(SyncFailed):
            disk.sync_dir(ROOT)
        disk.sync_dir(ROOT)

    assert after_crashes(prepare, lambda disk: tuple(disk.list(ROOT))) == {(), ("a",)}


def test_a_full_disk_takes_what_fits_and_removing_makes_room() -> None:
    disk = new_disk()
    durable_file(disk, "a", b"12345")
    disk.capacity_bytes = 8
    file = disk.create(ROOT / "b")
    with pytest.raises(DiskFull):
        file.write([b"6789"])
    assert disk.size(ROOT / "b") == 3
    disk.remove(ROOT / "a")
    file.write([b"x"])
    assert disk.read(ROOT / "b") == b"678x"


def test_a_read_only_disk_refuses_every_write() -> None:
    disk = new_disk()
    durable_file(disk, "a", b"kept")
    file = disk.open(ROOT / "a")
    disk.read_only = True
    for call in (
        lambda: file.write([b"x"]),
        lambda: file.truncate(0),
        lambda: disk.create(ROOT / "b"),
        lambda: disk.open(ROOT / "a"),
        lambda: disk.link(ROOT / "a", ROOT / "b"),
        lambda: disk.rename(ROOT / "a", ROOT / "b"),
        lambda: disk.remove(ROOT / "a"),
        lambda: disk.make_dir(ROOT / "d"),
    ):
        with pytest.raises(ReadOnly):
            call()
    assert disk.read(ROOT / "a") == b"kept"


def test_after_the_power_is_gone_nothing_works_until_the_machine_is_up() -> None:
    """D4"""
    disk = new_disk()
    durable_file(disk, "a", b"kept")
    file = disk.open(ROOT / "a")
    disk.power_off()
    for call in (file.sync, lambda: disk.read(ROOT / "a"), lambda: disk.remove(ROOT / "a")):
        with pytest.raises(PowerLoss):
            call()
    disk.crash()
    assert disk.read(ROOT / "a") == b"kept"
    with pytest.raises(PowerLoss):
        file.write([b"from the dead"])


def test_a_hook_sees_every_call_and_may_fail_it() -> None:
    disk = new_disk()
    seen: list[tuple[str, str]] = []

    def hook(name: str, path: Path) -> None:
        seen.append((name, path.name))
        if name == "link":
            raise DiskFull("no room for the entry")

    disk.on_call = hook
    file = disk.create(ROOT / "a")
    file.write([b"1"])
    file.sync()
    with pytest.raises(DiskFull):
        disk.link(ROOT / "a", ROOT / "b")
    assert seen == [("create", "a"), ("write", "a"), ("sync", "a"), ("link", "b")]


def test_every_call_of_a_scenario_gets_its_crash() -> None:
    calls: list[list[str]] = []
    for disk in every_crash(seeds=(None,)):
        calls.append([])
        disk.on_call = lambda name, _path: calls[-1].append(name)
        with disk.until_crash():
            disk.make_dir(ROOT)
            file = disk.create(ROOT / "a")
            file.write([b"1"])
            file.sync()
            disk.sync_dir(ROOT)
    assert [len(run) for run in calls] == [*range(1, len(calls)), len(calls) - 1]
    assert calls[-1][-4:] == ["create", "write", "sync", "sync_dir"]


def test_an_error_of_the_scenario_itself_is_not_taken_for_a_crash() -> None:
    disk = new_disk()
    with pytest.raises(NotFound), disk.until_crash():
        disk.read(ROOT / "nothing")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=25))
def test_the_same_seed_leaves_the_same_disk_and_never_harms_what_is_durable(
    seed: int, steps: list[tuple[int, int]]
) -> None:
    """D1, over random histories."""

    def run() -> tuple[dict[str, bytes], dict[str, bytes]]:
        disk = new_disk(seed)
        for kind, name in steps:
            _step(disk, kind, ROOT / f"f{name}")
        durable_file(disk, "anchor", b"synced")
        disk.crash()
        first = {name: disk.read(ROOT / name) for name in disk.list(ROOT)}
        disk.crash()
        return first, {name: disk.read(ROOT / name) for name in disk.list(ROOT)}

    first, second = run()
    assert first["anchor"] == b"synced"
    assert first == second, "what a crash left is durable"
    assert run() == (first, second)


def _step(disk: FakeDisk, kind: int, path: Path) -> None:
    exists = disk.size(path) is not None
    match kind:
        case 0 if not exists:
            disk.create(path)
        case 1 if exists:
            disk.open(path).write([b"x" * 700])
        case 2 if exists:
            disk.open(path).sync()
        case 3 if exists:
            disk.remove(path)
        case 4 if exists:
            disk.rename(path, ROOT / "f0")
        case 5 if exists:
            disk.open(path).truncate(300)
        case 6:
            disk.sync_dir(ROOT)
        case _:
            pass
