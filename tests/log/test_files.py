"""The local engine on a real disk."""

import asyncio
import random
import shutil
import struct
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import structlog
from crc32c import crc32c

from dray.clock import SystemClock
from dray.disk import DiskFull, File, LocalDisk
from dray.errors import Corrupt, Invalid
from dray.log import telemetry
from dray.log.files import FileLog
from dray.log.port import BEFORE_ALL, Log, LostReply, Position, Trimmed
from dray.log.reader import LogDamaged, survey
from dray.log.salvage import salvage
from dray.log.segment import HEADER, RECORD, NewerFormat, encode_header, encode_record, first_of, segment_name
from dray.offload import ThreadOffload
from tests.log.contract import FullLogContract, LogContract, deaf, fill, take, take_upto

SEGMENT_BYTES = 2_000


class LimitedDisk(LocalDisk):
    """A real one that can be told to be full."""

    full = False

    def create(self, path: Path) -> File:
        return LimitedFile(self, super().create(path))

    def open(self, path: Path) -> File:
        return LimitedFile(self, super().open(path))


class LimitedFile:
    def __init__(self, disk: LimitedDisk, file: File) -> None:
        self.disk = disk
        self.file = file

    def __getattr__(self, name: str):
        return getattr(self.file, name)

    def write(self, buffers: Sequence[bytes]) -> None:
        if self.disk.full:
            self.file.write([b"".join(buffers)[:7]])  # what still fitted
            raise DiskFull("the disk is full")
        self.file.write(buffers)


class FileFactory:
    """One engine object per process life: the handles of a process are that object."""

    max_entry_bytes = 4096

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.offload = ThreadOffload(2)
        self.disk = LimitedDisk()
        self.log: FileLog | None = None
        self.other: FileLog | None = None

    async def open(self) -> Log:
        if self.log is None:
            self.log = await FileLog.open(
                self.directory,
                disk=self.disk,
                offload=self.offload,
                clock=SystemClock(),
                segment_bytes=SEGMENT_BYTES,
                max_entry_bytes=self.max_entry_bytes,
                recent_bytes=1_000,  # history comes from the files, too
            )
        return self.log

    async def restart(self) -> None:
        if self.log is not None:
            await self.log.close()
            self.log = None

    async def disconnect(self) -> None:
        pass

    async def append_with_lost_reply(self, log: Log, entry: bytes) -> None:
        await log.append(entry)
        raise LostReply("dropped by the test")

    async def append_unheard(self, log: Log, entry: bytes) -> Position:
        assert isinstance(log, FileLog)
        with deaf(log._bell):
            return await log.append(entry)

    async def open_other(self) -> Log:
        self.other = await FileLog.open(
            self.directory.parent / "other", disk=self.disk, offload=self.offload, clock=SystemClock()
        )
        return self.other

    async def fill_up(self) -> None:
        self.disk.full = True

    async def make_room(self) -> None:
        self.disk.full = False

    async def close(self) -> None:
        await self.restart()
        if self.other is not None:
            await self.other.close()
        self.offload.close()


@pytest.fixture
async def log_factory(tmp_path: Path) -> AsyncIterator[FileFactory]:
    factory = FileFactory(tmp_path / "meta" / "log")
    yield factory
    await factory.close()


class TestFileLog(LogContract, FullLogContract):
    pass


async def test_who_has_read_more_than_there_is_is_told(log_factory: FileFactory) -> None:
    """LG25."""
    log = await log_factory.open()
    entries = await fill(log, 5)
    with pytest.raises(Corrupt, match="backup"):
        await anext(log.follow(Position(entries[-1][0] + 1)))


def write_log(directory: Path, batches: list[list[bytes]], segments: tuple[int, ...] = (1,)) -> None:
    """A log as its writer would have left it; a segment begins at each of the given positions."""
    directory.mkdir(parents=True, exist_ok=True)
    position, path = 1, directory
    for batch in batches:
        if position in segments:
            path = directory / segment_name(position)
            path.write_bytes(encode_header(position))
        with path.open("ab") as file:
            for place, entry in enumerate(batch):
                file.write(b"".join(encode_record(position + place, place, entry)))
        position += len(batch)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def reopened(directory: Path) -> list[bytes]:
    """Every entry of the log, after a recovery."""
    factory = FileFactory(directory)
    try:
        log = await factory.open()
        tail = await log.tail()
        return [entry for _, entry in await take_upto(log, BEFORE_ALL, tail)]
    finally:
        await factory.close()


BATCHES = [[b"one"], [b"two", b"three", b"four"], [b"five"], [b"six", b"seven"], [b"eight" * 4], [b"nine", b"ten"]]
ENTRIES = [entry for batch in BATCHES for entry in batch]
SEGMENTS = (1, 5, 8)
LAST_BATCH = len(ENTRIES) - len(BATCHES[-1])


class Held:
    """The part of a disk that a survey needs, in memory: ten thousand surveys would wear out a real one."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def list(self, path: Path) -> list[str]:
        return sorted(self.files)

    def size(self, path: Path) -> int:
        return len(self.files[path.name])

    def read(self, path: Path, start: int = 0, end: int | None = None) -> bytes:
        return self.files[path.name][start:end]


def test_every_flipped_bit_is_refused_or_costs_at_most_the_last_batch(tmp_path: Path) -> None:
    """R-064, LG6, LG11: no flip anywhere gives another log, an empty log, or loses what a later batch proves."""
    directory = tmp_path / "log"
    write_log(directory, BATCHES, SEGMENTS)
    files = contents(directory)
    whole = survey(Held(files), directory)
    assert whole.damage is None
    assert whole.torn is None
    refused = cut = 0
    for name, good in files.items():
        for bit in range(len(good) * 8):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            found = survey(Held({**files, name: bytes(bad)}), directory)
            if found.damage is not None:
                refused += 1
                continue
            cut += 1
            assert found.torn is not None
            assert name == segment_name(SEGMENTS[-1])
            assert found.segments[-1].last >= LAST_BATCH
    print(f"{refused} flips refused, {cut} in the cut tail")
    assert refused > 2 * cut


@pytest.mark.parametrize("seed", range(40))
async def test_torn_and_garbled_tails_are_cut_to_a_prefix(tmp_path: Path, seed: int) -> None:
    """D-152, W-33, LG6: cut short, zeroed, overwritten or followed by noise; those before the last are all there."""
    print("seed", seed)
    dice = random.Random(seed)
    directory = tmp_path / "log"
    write_log(directory, BATCHES, SEGMENTS)
    path = directory / segment_name(SEGMENTS[-1])
    good = path.read_bytes()
    safe = len(good) - sum(RECORD.size + len(entry) for entry in BATCHES[-1])
    start = dice.randint(safe, len(good))
    end = dice.randint(start, len(good))
    match seed % 4:
        case 0:
            bad = good[:start]
        case 1:
            bad = good[:start] + bytes(end - start) + good[end:]
        case 2:
            bad = good[:start] + dice.randbytes(end - start) + good[end:]
        case _:
            bad = good[:start] + dice.randbytes(dice.randrange(2000))
    path.write_bytes(bad)
    kept = await reopened(directory)
    assert kept == ENTRIES[: len(kept)]
    assert len(kept) >= LAST_BATCH
    assert await reopened(directory) == kept


async def test_the_cut_is_reported_and_counted_in_bytes(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    write_log(directory, BATCHES, SEGMENTS)
    with (directory / segment_name(8)).open("ab") as file:
        file.write(b"torn!")
    with structlog.testing.capture_logs() as lines:
        assert await reopened(directory) == ENTRIES
    (cut,) = [line for line in lines if line["event"] == telemetry.TORN_TAIL_CUT]
    assert cut["bytes"] == 5


def break_middle(directory: Path) -> None:
    path = directory / segment_name(5)
    raw = bytearray(path.read_bytes())
    raw[HEADER.size + RECORD.size] ^= 1
    path.write_bytes(raw)


def break_end_of_older(directory: Path) -> None:
    path = directory / segment_name(5)
    path.write_bytes(path.read_bytes()[:-1])


def drop_whole_record_of_older(directory: Path) -> None:
    path = directory / segment_name(5)
    path.write_bytes(path.read_bytes()[: -RECORD.size - len(b"seven")])


def lose_segment(directory: Path) -> None:
    (directory / segment_name(5)).unlink()


def empty_older(directory: Path) -> None:
    (directory / segment_name(5)).write_bytes(b"")


def swap_names(directory: Path) -> None:
    (directory / segment_name(5)).rename(directory / "x")
    (directory / segment_name(8)).rename(directory / segment_name(5))
    (directory / "x").rename(directory / segment_name(8))


def lose_header_of_last(directory: Path) -> None:
    path = directory / segment_name(8)
    path.write_bytes(bytes(HEADER.size) + path.read_bytes()[HEADER.size :])


DAMAGES = {
    break_middle: 4,
    break_end_of_older: 6,
    drop_whole_record_of_older: 6,
    lose_segment: 4,
    empty_older: 4,
    swap_names: 4,
    lose_header_of_last: 10,
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_damage_is_refused_untouched_and_what_lies_before_it_can_be_read(tmp_path: Path, damage) -> None:
    """LG11, LG14: the error names file, position and the way out; salvage tells the prefix and changes nothing."""
    directory = tmp_path / "log"
    write_log(directory, BATCHES, SEGMENTS)
    damage(directory)
    before = contents(directory)
    with pytest.raises(LogDamaged, match=rf"drayd admin meta recover {directory} file=\S+\.log position=\d+"):
        await reopened(directory)
    found = salvage(directory, LocalDisk())
    assert found.reason is not None
    assert (found.log.first, found.log.last) == (1, DAMAGES[damage])
    assert [entry async for _, entry in found.log.follow(Position(0))] == ENTRIES[: found.log.last]
    assert found.lost_bytes > 0 or damage in (
        lose_segment,
        lose_header_of_last,
        drop_whole_record_of_older,
        empty_older,
    )
    assert contents(directory) == before


async def test_salvage_finds_nothing_wrong_with_a_log_that_is_whole(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    write_log(directory, BATCHES, SEGMENTS)
    found = salvage(directory, LocalDisk())
    assert (found.reason, found.lost_bytes, found.log.last) == (None, 0, len(ENTRIES))


async def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    write_log(directory, BATCHES, SEGMENTS)
    path = directory / segment_name(8)
    head = struct.pack("<8sHHQ", b"DRAYLOG\n", 2, 0, 8)
    path.write_bytes(head + struct.pack("<I", crc32c(head)) + path.read_bytes()[HEADER.size :])
    before = contents(directory)
    with pytest.raises(NewerFormat, match="found=2 supported=1"):
        await reopened(directory)
    assert contents(directory) == before


async def test_a_stray_log_file_is_refused_and_other_files_are_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    write_log(directory, BATCHES, SEGMENTS)
    (directory / "LOCK").write_text("1")
    assert await reopened(directory) == ENTRIES
    (directory / "old.log").write_text("mine")
    with pytest.raises(Invalid, match="move it away"):
        await reopened(directory)


async def test_a_segment_whose_creation_was_cut_short_is_dropped(tmp_path: Path) -> None:
    """LG8."""
    for size in (0, 7, HEADER.size):
        directory = tmp_path / f"log{size}"
        write_log(directory, BATCHES, SEGMENTS)
        (directory / segment_name(11)).write_bytes(bytes(size))
        assert await reopened(directory) == ENTRIES
        assert not (directory / segment_name(11)).exists()
        fresh = tmp_path / f"fresh{size}"
        fresh.mkdir()
        (fresh / segment_name(1)).write_bytes(bytes(size))
        assert await reopened(fresh) == []


async def test_a_trim_deletes_whole_segments_and_only_those(log_factory: FileFactory) -> None:
    """LG12."""
    log = await log_factory.open()
    await fill(log, 60)
    firsts = sorted(first for path in log_factory.directory.iterdir() if (first := first_of(path.name)))
    assert len(firsts) >= 4
    await log.trim(Position(firsts[2] - 2))
    assert (log_factory.directory / segment_name(firsts[1])).exists(), "it still holds an entry that was not given up"
    await log.trim(Position(firsts[2] - 1))
    assert not (log_factory.directory / segment_name(firsts[1])).exists()
    with pytest.raises(Invalid, match="above the tail"):
        await log.trim(Position(61))


async def test_a_follower_in_the_middle_of_old_history_is_told_of_a_trim(log_factory: FileFactory) -> None:
    """R-048: it may finish what it holds in its hands, but never skips."""
    log = await log_factory.open()
    entries = await fill(log, 60)
    stream = log.follow(BEFORE_ALL)
    seen = [await anext(stream)]
    await log.trim(entries[-1][0])

    async def read_on() -> None:
        async for entry in stream:
            seen.append(entry)  # noqa: PERF401  what was seen before the error counts

    with pytest.raises(Trimmed):
        await read_on()
    assert seen == entries[: len(seen)]


async def test_decay_of_history_is_reported_while_following_and_never_delivered(log_factory: FileFactory) -> None:
    """R-064."""
    log = await log_factory.open()
    entries = await fill(log, 60)
    first = sorted(path for path in log_factory.directory.iterdir() if first_of(path.name))[0]
    raw = bytearray(first.read_bytes())
    raw[HEADER.size + 3 * (RECORD.size + 100) + 50] ^= 4
    first.write_bytes(raw)
    assert await take(log, BEFORE_ALL, 3) == entries[:3]
    with pytest.raises(LogDamaged, match="position=4"):
        await take(log, BEFORE_ALL, 4)


async def test_following_a_large_log_from_its_start_takes_little_memory(tmp_path: Path) -> None:
    """LG13: 24 MB of history through a few chunks."""
    offload = ThreadOffload(2)
    log = await FileLog.open(
        tmp_path, disk=LocalDisk(), offload=offload, clock=SystemClock(), segment_bytes=4 << 20, recent_bytes=1 << 20
    )
    entry = random.Random(1).randbytes(48 << 10)
    await asyncio.gather(*[log.append(entry) for _ in range(500)])
    tracemalloc.start()
    count = 0
    async for position, _ in log.follow(BEFORE_ALL):
        count += 1
        if position == 500:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    await log.close()
    offload.close()
    assert count == 500
    assert peak < 4 << 20, peak


async def test_an_entry_larger_than_the_read_chunk_comes_back(tmp_path: Path) -> None:
    """R-053."""
    offload = ThreadOffload(2)
    options = {"disk": LocalDisk(), "offload": offload, "clock": SystemClock(), "recent_bytes": 10}
    log = await FileLog.open(tmp_path, max_entry_bytes=16 << 20, **options)
    large = random.Random(2).randbytes(16 << 20)
    entries = [(await log.append(entry), entry) for entry in (b"a", large, b"b")]
    assert await take(log, BEFORE_ALL, 3) == entries
    await log.close()
    log = await FileLog.open(tmp_path, max_entry_bytes=16 << 20, **options)
    assert await take(log, BEFORE_ALL, 3) == entries
    await log.close()
    offload.close()


async def test_a_caller_that_gives_up_while_waiting_appends_nothing_and_hinders_nobody(tmp_path: Path) -> None:
    offload = ThreadOffload(1)
    log = await FileLog.open(tmp_path, disk=LocalDisk(), offload=offload, clock=SystemClock())
    first = asyncio.ensure_future(log.append(b"first"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the writer has taken the first one
    gone, last = asyncio.ensure_future(log.append(b"gone")), asyncio.ensure_future(log.append(b"last"))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await first, await last) == (1, 2)
    assert await take(log, BEFORE_ALL, 2) == [(1, b"first"), (2, b"last")]
    await log.close()
    offload.close()


async def test_a_copied_directory_opens_elsewhere(tmp_path: Path) -> None:
    write_log(tmp_path / "log", BATCHES, SEGMENTS)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    assert await reopened(tmp_path / "copy") == ENTRIES
