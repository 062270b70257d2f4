"""The local engine on a disk that loses power at every single call.

What holds for every engine with files is said in `tests.log.crash`.
"""

import asyncio
from pathlib import Path

import pytest

from dray.clock import ManualClock
from dray.errors import Unavailable
from dray.log.files import FileLog
from dray.log.port import LostReply, NotAppended, Position
from dray.log.reader import LogDamaged
from dray.log.segment import segment_name
from dray.log.writer import LogFailed, SegmentWriter, create_segment
from dray.sim import disk as sim
from tests.log.contract import named, take, take_upto
from tests.log.crash import TurnOffload, crash_everywhere

DIRECTORY = Path("/data/meta/log")
SEEDS = (None, 0, 1, 2)


async def open_log(disk, **options) -> FileLog:
    options = {"segment_bytes": 700, "recent_bytes": 300, **options}
    return await FileLog.open(DIRECTORY, disk=disk, offload=TurnOffload(), clock=ManualClock(), **options)


@pytest.mark.slow
async def test_a_crash_at_any_call_loses_nothing_that_was_acknowledged_or_shown() -> None:
    """D-151, LG2, LG7, LG8, LG10, LG12."""
    points = await crash_everywhere(open_log, sim.every_crash(SEEDS))
    print(f"{points} crashes")
    assert points > len(SEEDS) * 80


@pytest.mark.slow
@pytest.mark.parametrize("write", [False, True])
async def test_a_kill_at_any_call_and_a_power_loss_after_it_lose_nothing_that_was_shown(write: bool) -> None:
    """LG10: what the page cache still had is synced before it is served, and its name too."""
    await crash_everywhere(open_log, sim.every_crash((None, 0)), keep_cache=True, write_before_second_crash=write)


async def test_the_crash_test_finds_a_log_that_acknowledges_before_its_sync(monkeypatch) -> None:
    monkeypatch.setattr(sim.FakeFile, "sync", lambda self: None)
    with pytest.raises((AssertionError, LogDamaged)):
        await crash_everywhere(open_log, sim.every_crash(SEEDS))


async def test_the_crash_test_finds_a_log_that_is_not_synced_at_open(monkeypatch) -> None:
    from dray.log import files

    class Deaf:
        def __init__(self, disk) -> None:
            self.disk = disk

        def __getattr__(self, name: str):
            return getattr(self.disk, name)

        def open(self, path: Path):
            file = self.disk.open(path)
            file.sync = lambda: None
            return file

        def sync_file(self, path: Path) -> None:
            pass

        def write_again(self, path: Path, start: int) -> None:
            pass

    recover = files._recover

    def careless(disk, directory, segment_bytes):
        writer, *others = recover(Deaf(disk), directory, segment_bytes)
        writer._file.__dict__.pop("sync", None)
        return writer, *others

    monkeypatch.setattr(files, "_recover", careless)
    with pytest.raises(AssertionError, match="gone"):
        await crash_everywhere(open_log, sim.every_crash((None, 0, 1)), keep_cache=True)


async def test_a_failed_sync_ends_the_log_and_is_never_tried_again() -> None:
    """LG9, LG4: unknown for what was being written, surely not for what waited; the node is told."""
    disk = sim.FakeDisk()
    log = await open_log(disk)
    await log.append(b"good")
    syncs: list[str] = []
    disk.on_call = lambda name, path: syncs.append(name) if "sync" in name else None
    disk.fail_sync(".log")
    follower = asyncio.ensure_future(take(log, 1, 1))
    with pytest.raises(LostReply):
        await log.append(b"unknown")
    error = await log.failed
    assert isinstance(error, LogFailed)
    for _ in range(3):
        with pytest.raises(LogFailed):
            await log.append(b"late")
    with pytest.raises(LogFailed):
        await log.tail()
    with pytest.raises(LogFailed):
        await follower
    await log.close()
    assert syncs == ["sync"]
    disk.on_call = None
    disk.crash()
    log = await open_log(disk)
    assert (await take(log, 0, 1))[0][1] == b"good"


@pytest.mark.parametrize("seed", range(8))
async def test_what_a_start_shows_after_a_failed_sync_survives_the_power_cut_behind_it(seed: int) -> None:
    """LG10, R-017: the kernel shows what the sync lost and takes it for written; so it is written once more."""
    disk = sim.FakeDisk(seed)
    log = await open_log(disk)
    await log.append(b"good")
    disk.fail_sync(".log")
    with pytest.raises(LostReply):
        await log.append(b"unknown")
    await log.close()
    disk.restart()
    log = await open_log(disk)
    tail = await log.tail()
    await log.append(b"after")
    shown = await take(log, 0, tail + 1)
    await log.close()
    disk.crash()
    assert await take(await open_log(disk), 0, tail + 1) == shown


def test_a_writer_whose_sync_failed_touches_the_disk_no_more() -> None:
    """LG9: whoever calls it."""
    disk = sim.FakeDisk()
    disk.make_dir(DIRECTORY)
    writer = SegmentWriter(
        disk, DIRECTORY, create_segment(disk, DIRECTORY, 1), size=24, durable=0, active=1, segment_bytes=700
    )
    disk.fail_sync(".log")
    with pytest.raises(LogFailed):
        writer.commit([b"unknown"])
    calls = disk.calls
    with pytest.raises(LogFailed, match="failed before"):
        writer.commit([b"late"])
    assert disk.calls == calls
    assert writer.durable == 0


async def test_what_waits_behind_a_failed_sync_is_refused_not_unknown() -> None:
    """LG4."""
    disk = sim.FakeDisk()
    log = await open_log(disk, max_entry_bytes=3 << 20, segment_bytes=64 << 20)
    disk.fail_sync(".log")
    appends = [asyncio.ensure_future(log.append(bytes([number]) * (3 << 20))) for number in range(3)]
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [LostReply, LogFailed, LogFailed]


@pytest.mark.parametrize("seed", range(60))
async def test_a_full_disk_refuses_and_the_log_goes_on_when_there_is_room(seed: int) -> None:
    """LG4: what was refused is surely not there, also after a crash at once."""
    print("seed", seed)
    disk = sim.FakeDisk(seed)
    log = await open_log(disk, segment_bytes=100_000)
    acked = [(await log.append(entry), entry) for entry in named("fits", 5, 300)]
    disk.capacity_bytes = 2_900
    outcomes = await asyncio.gather(*map(log.append, named("full", 4, 300)), return_exceptions=True)
    assert all(type(outcome) is NotAppended for outcome in outcomes), outcomes
    assert not log.failed.done()
    assert await log.tail() == acked[-1][0]
    disk.capacity_bytes = None
    if seed % 4 == 0:
        acked += [(await log.append(entry), entry) for entry in named("room", 2, 300)]
    disk.crash()
    log = await open_log(disk)
    assert await take_upto(log, 0, await log.tail()) == acked


async def test_a_full_disk_at_a_rotation_leaves_no_half_made_segment() -> None:
    """LG8."""
    disk = sim.FakeDisk(seed=6)
    log = await open_log(disk)
    acked = [(await log.append(entry), entry) for entry in named("fits", 2, 300)]
    disk.capacity_bytes = disk.size(DIRECTORY / segment_name(1)) + 10
    with pytest.raises(NotAppended):
        await log.append(b"x" * 300)
    assert disk.list(DIRECTORY) == [segment_name(1)]
    with pytest.raises(NotAppended):
        await log.append(b"x" * 20)  # fits into the segment, not on the disk
    disk.capacity_bytes = None
    acked += [(await log.append(entry), entry) for entry in named("room", 4, 300)]
    disk.crash()
    assert await take_upto(await open_log(disk), 0, acked[-1][0]) == acked


async def test_a_write_that_cannot_be_undone_ends_the_log() -> None:
    """LG9, LG4."""
    disk = sim.FakeDisk()
    log = await open_log(disk)
    await log.append(b"good")
    disk.capacity_bytes = 60

    def no_cut(name: str, path: Path) -> None:
        if name == "truncate":
            raise Unavailable("the disk call failed", path=path)

    disk.on_call = no_cut
    with pytest.raises(LostReply):
        await log.append(b"x" * 100)
    assert (await log.failed).message.startswith("the log is finished")


async def test_a_failed_sync_of_the_directory_at_trim_ends_the_log() -> None:
    """LG9, LG12."""
    disk = sim.FakeDisk()
    log = await open_log(disk)
    for entry in named("e", 20):
        await log.append(entry)
    disk.fail_sync(str(DIRECTORY))
    with pytest.raises(LogFailed):
        await log.trim(Position(15))
    assert log.failed.done()


async def test_a_read_only_disk_refuses_or_ends_but_never_acknowledges() -> None:
    disk = sim.FakeDisk()
    log = await open_log(disk)
    disk.read_only = True
    with pytest.raises((NotAppended, LostReply)):
        await log.append(b"entry")
    assert log.failed.done(), "the write could not be undone on this disk"
