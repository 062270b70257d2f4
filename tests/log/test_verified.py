"""The mark of how far a log was synced and checked: it spares reading, and nothing is believed that is not so."""

import random
from pathlib import Path

import pytest

from dray.clock import ManualClock
from dray.log import files, verified
from dray.log.files import FileLog
from dray.log.port import BEFORE_ALL, Position
from dray.log.reader import LogDamaged, survey
from dray.log.salvage import salvage
from dray.log.segment import HEADER, RECORD, segment_name
from dray.log.verified import Cursor, Places, decode, encode, read_mark
from dray.log.writer import SegmentWriter
from dray.offload import InlineOffload
from dray.sim import disk as sim
from tests.log.contract import named, take, take_upto
from tests.log.crash import crash_everywhere
from tests.log.test_files_crash import open_log as open_small

DIRECTORY = Path("/data/meta/log")
LARGE = 64 << 20


class CountingDisk(sim.FakeDisk):
    """Counts the bytes that are read of segments."""

    def __init__(self) -> None:
        super().__init__()
        self.segment_bytes_read = 0

    def read(self, path: Path, start: int = 0, end: int | None = None) -> bytes:
        found = super().read(path, start, end)
        if path.suffix == ".log":
            self.segment_bytes_read += len(found)
        return found


async def open_log(disk, segment_bytes: int = LARGE) -> FileLog:
    return await FileLog.open(
        DIRECTORY, disk=disk, offload=InlineOffload(), clock=ManualClock(), segment_bytes=segment_bytes, recent_bytes=1
    )


async def write(log: FileLog, entries: list[bytes]) -> None:
    for entry in entries:
        await log.append(entry)


def damage(disk, at: int, first: int = 1) -> None:
    """Flip a bit that is on the disk."""
    inode = disk._inode(DIRECTORY / segment_name(first))
    inode.cached[at] ^= 1
    inode.stored[at] ^= 1


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark after every batch and a waypoint every few records, so that small logs have many."""
    monkeypatch.setattr(files, "MARK_BYTES", 1)
    monkeypatch.setattr(verified, "WAYPOINT_BYTES", 200)


async def test_a_log_that_was_closed_is_opened_without_being_read() -> None:
    disk = CountingDisk()
    log = await open_log(disk)
    await write(log, named("e", 40, 100_000))
    await log.close()
    disk.segment_bytes_read = 0
    log = await open_log(disk)
    assert await log.tail() == 40
    assert disk.segment_bytes_read < 2 * 100_100  # the last record, and the header
    assert (await take(log, 39, 1))[0][0] == 40
    assert disk.segment_bytes_read < 3 * verified.WAYPOINT_BYTES  # from the waypoint before it
    assert len(await take_upto(log, BEFORE_ALL, 40)) == 40


async def test_a_killed_log_is_read_from_its_last_mark_on() -> None:
    """At most what makes a mark due is read, and one batch; the log is twice as long and could be any longer."""
    disk = CountingDisk()
    log = await open_log(disk)
    await write(log, named("e", 100, 100_000))
    disk.restart()
    disk.segment_bytes_read = 0
    log = await open_log(disk)
    assert await log.tail() == 100
    assert disk.segment_bytes_read < verified.MARK_BYTES + 5 * 100_100
    assert len(await take_upto(log, BEFORE_ALL, 100)) == 100


async def test_what_was_read_once_after_a_crash_is_not_read_at_the_next_start(monkeypatch) -> None:
    disk = CountingDisk()
    monkeypatch.setattr(files, "MARK_BYTES", 1 << 30)
    log = await open_log(disk)
    await write(log, named("e", 100, 100_000))
    disk.restart()
    monkeypatch.setattr(files, "MARK_BYTES", verified.MARK_BYTES)
    await open_log(disk)
    disk.restart()
    disk.segment_bytes_read = 0
    assert await (await open_log(disk)).tail() == 100
    assert disk.segment_bytes_read < 2 * 100_100


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("keep_cache", [False, True])
async def test_a_crash_at_any_call_loses_nothing_with_a_mark_after_every_batch(keep_cache: bool) -> None:
    """LG20, LG2, LG10: a power loss, or a kill and a power loss after it."""
    points = await crash_everywhere(open_small, sim.every_crash((0,)), keep_cache=keep_cache)
    print(f"{points} crashes")
    assert points > 100


async def lose_power_in_a_sync(seed: int) -> None:
    """A batch of many sectors is written and marked as `SegmentWriter` does it; the power goes before its sync."""
    disk = sim.FakeDisk(seed)
    log = await open_log(disk)
    await write(log, named("before", 3))
    entries = named("batch", 40, 100)

    def cut(name: str, path: Path) -> None:
        if name == "sync" and path.suffix == ".log":
            disk.power_off()
            raise sim.PowerLoss(str(path))

    with disk.until_crash():
        disk.on_call = cut
        log._writer.commit(entries)
    disk.on_call = None
    log = await open_log(disk)
    await take_upto(log, BEFORE_ALL, await log.tail())


async def lose_power_often() -> None:
    for seed in range(100):
        await lose_power_in_a_sync(seed)


async def test_a_mark_that_ran_ahead_of_its_sync_would_be_believed_where_sectors_are_missing(monkeypatch) -> None:
    """LG20: why the order matters: planted, the mark covers what is not synced; as it is, no seed gives damage."""

    def careless(self: SegmentWriter, buffers: list[bytes]) -> None:
        self._file.write(buffers)
        end = self.size + sum(map(len, buffers))
        tail = end - len(buffers[-1]) - RECORD.size
        covered = verified.Segment(first=self.active, last=self.durable + len(buffers) // 2, end=end, tail=tail)
        verified.write_mark(self._disk, self._directory, encode(Places([covered])))
        self._disk.sync_dir(self._directory)
        self._file.sync()

    await lose_power_often()
    monkeypatch.setattr(SegmentWriter, "_write", careless)
    with pytest.raises(LogDamaged):
        await lose_power_often()


@pytest.mark.usefixtures("eager")
async def test_damage_below_the_mark_is_found_when_it_is_read_and_by_every_whole_survey() -> None:
    """LG20, R-064: never delivered; what lies before it is, and `recover` keeps that."""
    disk = sim.FakeDisk()
    log = await open_log(disk, segment_bytes=1_000)
    entries = named("e", 30, 100)
    await write(log, entries)
    await log.close()
    damage(disk, HEADER.size + 3 * 120 + 50)
    log = await open_log(disk, segment_bytes=1_000)
    assert await log.tail() == 30
    assert [entry for _, entry in await take(log, 0, 3)] == entries[:3]
    with pytest.raises(LogDamaged) as found:
        await take(log, 0, 4)
    assert found.value.facts["position"] == 4
    with pytest.raises(LogDamaged):
        await take(log, 3, 1)
    assert (await take(log, 20, 10))[-1][1] == entries[29]
    await log.close()
    assert survey(disk, DIRECTORY).damage is not None
    kept = salvage(DIRECTORY, disk)
    assert (kept.log.last, kept.reason is None) == (3, False)
    assert [entry async for _, entry in kept.log.follow(Position(0))] == entries[:3]


@pytest.mark.usefixtures("eager")
async def test_a_mark_that_is_not_what_was_written_is_not_believed() -> None:
    """LG20: flipped, cut, empty, of another log or of a longer file: the segments are read, and tell the same."""
    disk = sim.FakeDisk()
    log = await open_log(disk, segment_bytes=1_000)
    entries = named("e", 20, 60)
    await write(log, entries)
    await log.close()
    good = disk.read(DIRECTORY / verified.NAME)
    dice = random.Random(1)
    marks = [good[:size] for size in (0, 3, 15, len(good) // 2, len(good) - 1)] + [b"", good + b"x"]
    for bit in range(0, len(good) * 8, 13):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        marks.append(bytes(flipped))
    told = read_mark(disk, DIRECTORY)
    for _ in range(40):  # whole, and lying
        segments = [
            verified.Segment(
                first=one.first,
                last=one.last + dice.randint(-1, 1),
                end=one.end + dice.randint(-70, 70),
                tail=one.tail + dice.randint(-70, 70),
            )
            for one in told.segments.values()
        ]
        marks.append(encode(Places(segments, told.waypoints)))
    for _ in range(40):
        lost = [
            Cursor(
                segment=one.segment,
                position=one.position + dice.randint(0, 1),
                offset=one.offset + dice.choice([0, 80]),
            )
            for one in told.waypoints
        ]
        marks.append(encode(Places(told.segments.values(), lost)))
    for mark in marks:
        disk.remove(DIRECTORY / verified.NAME)
        disk.create(DIRECTORY / verified.NAME).write([mark])
        log = await open_log(disk, segment_bytes=1_000)
        assert [entry for _, entry in await take_upto(log, BEFORE_ALL, 20)] == entries
        assert (await take(log, 12, 1))[0][1] == entries[12]
        disk.restart()


async def test_a_log_that_was_cut_behind_its_mark_is_what_its_segments_say() -> None:
    """A copy that was taken while the log was written may have a mark that is newer than its files."""
    disk = sim.FakeDisk()
    log = await open_log(disk)
    await write(log, named("e", 5, 100))
    await log.close()
    file = disk.open(DIRECTORY / segment_name(1))
    file.truncate(HEADER.size + 3 * 120)
    file.sync()
    log = await open_log(disk)
    assert await log.tail() == 3
    await write(log, [b"on"])
    await log.close()
    assert await (await open_log(disk)).tail() == 4


async def test_a_disk_that_takes_no_mark_costs_the_log_nothing(eager: None) -> None:
    disk = sim.FakeDisk()
    log = await open_log(disk)
    disk.fail_sync(verified.NAME, times=100)
    await write(log, named("e", 5))
    await log.close()
    assert not log.failed.done() or log.failed.cancelled()
    disk.crash()
    assert await (await open_log(disk)).tail() == 5


def test_a_mark_says_what_it_was_told() -> None:
    places = Places()
    places.passed(Cursor(segment=7, offset=24, position=7))
    places.passed(Cursor(segment=7, offset=500, position=9))  # too near to be worth remembering
    places.grew(verified.Segment(first=7, last=12, end=900, tail=800), 876)
    found = decode(encode(places))
    assert found is not None
    assert found.segments == places.segments
    assert found.waypoints == (Cursor(segment=7, offset=24, position=7),)
    assert found.near(7, 11) == Cursor(segment=7, offset=24, position=7)
    assert found.bytes_behind(12) == 0
    assert found.bytes_behind(11) == 900
