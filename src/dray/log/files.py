"""The `local` engine: a log in segment files of one directory.

One process owns the directory (its lock is the owner's business) and serves
the log to others through `dray.log.server`. Appends that arrive while a sync
runs go into the next one, so the cost of a sync is shared.

    open = survey what no mark covers (LG20), refuse damage, cut the torn tail,
    sync what is kept and its directory, then serve

A sync at open is not a formality: an entry that was written but not synced
when the process died would be shown now and be gone after the next crash. And
where the sync failed before the process ended, the kernel shows bytes that it
takes for written and that are not on the disk: so what no mark covers is
written once more before it is synced (ADR-0038).

Invariants
    LG10  Nothing is shown or acknowledged that is not at or below the durable
          position, at open and later (LG2); at open every byte behind the mark
          is written and synced anew, whatever became of earlier syncs.
    LG11  Damage that the survey at open sees is refused before anything is
          changed; what a mark covers is checked by whoever reads it (LG20).
    LG12  Segments go oldest first, each made durable before the next, so that
          a crash during a trim leaves no gap.
    LG13  Memory is bounded: recent entries by bytes, waiting appends by bytes,
          history by the chunk.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dray.clock import Clock
from dray.disk import Disk, SyncFailed
from dray.errors import DrayError, Invalid, NotFound
from dray.log.bell import Bell
from dray.log.limits import MAX_ENTRY_BYTES, check_entry, gone_back, trimmed
from dray.log.port import LostReply, NotAppended, Position
from dray.log.reader import LogDamaged, believed, damaged, read_on, survey
from dray.log.segment import HEADER, MAX_LENGTH, RECORD, segment_name
from dray.log.telemetry import (
    APPEND_SECONDS,
    ENTRIES,
    FAILED,
    OPENED,
    SEGMENT_DROPPED,
    SYNC_SECONDS,
    TORN_TAIL_CUT,
    TRIMMED,
)
from dray.log.verified import MARK_BYTES, Cursor, Places, Segment, encode, read_mark, write_mark
from dray.log.writer import LogFailed, SegmentWriter, create_segment
from dray.offload import Offload
from dray.telemetry import logger

SEGMENT_BYTES: Final = 16 << 20
RECENT_BYTES: Final = 8 << 20
WAITING_BYTES: Final = 64 << 20
BATCH_BYTES: Final = 4 << 20


@dataclass(slots=True, eq=False)
class _Waiting:
    entry: bytes
    answer: asyncio.Future[Position]


class FileLog:
    """One log in one directory. Make it with `open`."""

    def __init__(
        self,
        writer: SegmentWriter,
        segments: list[int],
        places: Places,
        directory: Path,
        *,
        disk: Disk,
        offload: Offload,
        clock: Clock,
        max_entry_bytes: int,
        recent_bytes: int,
        reads: Offload | None = None,
    ) -> None:
        self._writer = writer
        self._segments = segments
        self._places = places
        self._directory = directory
        self._disk = disk
        self._offload = offload
        self._reads = reads or offload
        self._clock = clock
        self._max_entry_bytes = max_entry_bytes
        self._first = segments[0]
        self._durable = writer.durable
        self._recent = _Recent(recent_bytes, next_position=writer.durable + 1)
        self._bell = Bell()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._in_flight: list[_Waiting] = []
        # Both tasks end by themselves and are awaited by close; a caller that is
        # cancelled must not stop a write or a deletion half-way.
        self._draining: asyncio.Task[None] | None = None
        self._trimming: asyncio.Task[None] | None = None
        self._trim_upto = 0
        self._closed = False
        self._failure: LogFailed | None = None
        self.failed: asyncio.Future[DrayError] = asyncio.get_running_loop().create_future()
        """Done when the disk failed under the log: the node must end its process. Cancelled by `close`."""

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        disk: Disk,
        offload: Offload,
        clock: Clock,
        segment_bytes: int = SEGMENT_BYTES,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        recent_bytes: int = RECENT_BYTES,
        reads: Offload | None = None,
    ) -> "FileLog":
        """Recover what a crash left and serve it; `LogDamaged` or `NewerFormat` where a person must decide.

        Where `reads` is given, history is read there and appends never wait for it.
        """
        if not 0 < max_entry_bytes <= MAX_LENGTH:
            raise Invalid("max_entry_bytes is out of range", value=max_entry_bytes, limit=MAX_LENGTH)
        writer, segments, places = await offload.run(_recover, disk, directory, segment_bytes)
        return cls(
            writer, segments, places, directory, disk=disk, offload=offload, clock=clock,
            max_entry_bytes=max_entry_bytes, recent_bytes=recent_bytes, reads=reads,
        )  # fmt: skip

    async def append(self, entry: bytes) -> Position:
        check_entry(entry, self._max_entry_bytes)
        self._check_usable()
        if self._waiting_bytes + len(entry) > WAITING_BYTES:
            raise NotAppended("the disk is behind with what was appended: try again later", waiting=self._waiting_bytes)
        started = self._clock.boot_ns()
        answer: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(entry, answer))
        self._waiting_bytes += len(entry)
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        position = await answer
        APPEND_SECONDS.observe((self._clock.boot_ns() - started) / 1e9)
        return position

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        cursor: Cursor | None = None
        while not self._closed:
            if self._failure is not None:
                raise _again(self._failure)
            if after + 1 < self._first:
                raise trimmed(after, Position(self._first))
            if after > self._durable:
                raise gone_back(after, self._durable)  # LG25
            if after == self._durable:  # LG10
                await self._bell.wait()
                continue
            entry = self._recent.get(after + 1)
            if entry is not None:
                after = Position(after + 1)
                yield after, entry
                continue
            entries, cursor = await self._read(cursor, after)
            for entry in entries:
                after = Position(after + 1)
                yield after, entry

    async def tail(self) -> Position:
        self._check_usable()
        return Position(self._durable)

    async def trim(self, upto: Position) -> None:
        self._check_usable()
        if upto > self._durable:
            raise Invalid("cannot trim above the tail", upto=upto, tail=self._durable)
        self._trim_upto = max(self._trim_upto, upto)
        while self._oldest_may_go():
            if self._trimming is None:
                self._trimming = asyncio.get_running_loop().create_task(self._drop_segments())
            await asyncio.shield(self._trimming)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for task in (self._draining, self._trimming):
            if task is not None:
                await asyncio.gather(task, return_exceptions=True)
        self._bell.ring()
        self.failed.cancel()
        if self._places.unmarked_bytes and self._failure is None:
            await self._mark()
        await self._offload.run(self._writer.close)

    def bytes_behind(self, position: int) -> int:
        """Bytes of the files that hold entries behind a position."""
        return self._places.bytes_behind(position)

    async def _mark(self) -> None:
        """Remember how far the log is synced (LG20)."""
        self._places.unmarked_bytes = 0
        await self._offload.run(write_mark, self._disk, self._directory, encode(self._places))

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise _again(self._failure)
        if self._closed:
            raise NotAppended("the log is closed")

    # The writer: one batch at a time, everything that came meanwhile is the next one.

    async def _drain(self) -> None:
        try:
            while self._take_batch():
                await self._commit_batch()
                if self._places.unmarked_bytes >= MARK_BYTES and self._failure is None:
                    await self._mark()
        except BaseException as error:
            # Cancelled at the end of the loop, or a bug: nobody knows what was written.
            self._fail(LogFailed("the writer of the log stopped", reason=repr(error)))
            raise
        finally:
            self._draining = None

    def _take_batch(self) -> bool:
        size = 0
        while self._waiting and (not self._in_flight or size + len(self._waiting[0].entry) <= BATCH_BYTES):
            waiting = self._waiting.popleft()
            self._waiting_bytes -= len(waiting.entry)
            if not waiting.answer.done():  # a caller that is gone appends nothing
                self._in_flight.append(waiting)
                size += len(waiting.entry)
        return bool(self._in_flight)

    async def _commit_batch(self) -> None:
        entries = [waiting.entry for waiting in self._in_flight]
        started = self._clock.boot_ns()
        try:
            first = await self._offload.run(self._writer.commit, entries)
        except LogFailed as error:
            self._fail(error)
            return
        except NotAppended as error:
            self._answer_all(partial(_again, error))
            return
        SYNC_SECONDS.observe((self._clock.boot_ns() - started) / 1e9)
        ENTRIES.inc(len(entries))
        if self._writer.active != self._segments[-1]:
            self._segments.append(self._writer.active)
        self._note(first, entries)
        # Durable first, memory second (LG10): both change in this one turn of the loop.
        self._recent.extend(entries)
        self._durable = first + len(entries) - 1
        self._bell.ring()
        batch, self._in_flight = self._in_flight, []
        for position, waiting in enumerate(batch, first):
            if not waiting.answer.done():
                waiting.answer.set_result(Position(position))

    def _note(self, first: int, entries: list[bytes]) -> None:
        """Where a batch lies that was just made durable (LG20)."""
        segment, end = self._segments[-1], self._writer.size
        size = sum(map(len, entries)) + RECORD.size * len(entries)
        tail = end - RECORD.size - len(entries[-1])
        self._places.passed(Cursor(segment=segment, offset=end - size, position=first))
        self._places.grew(Segment(first=segment, last=first + len(entries) - 1, end=end, tail=tail), size)

    def _fail(self, error: LogFailed) -> None:
        """The end of this log (LG9): what was being written is unknown, what waited was surely not written (LG4)."""
        self._failure = error
        logger(directory=str(self._directory)).critical(FAILED, reason=str(error))
        self._answer_all(partial(LostReply, "the log failed while the entry was being written", reason=error))
        self._in_flight = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._answer_all(partial(_again, error))
        if not self.failed.done():
            self.failed.set_result(error)
        self._bell.ring()

    def _answer_all(self, error: Callable[[], DrayError]) -> None:
        batch, self._in_flight = self._in_flight, []
        for waiting in batch:
            if not waiting.answer.done():
                waiting.answer.set_exception(error())

    # History and its end.

    async def _read(self, cursor: Cursor | None, after: Position) -> tuple[list[bytes], Cursor]:
        """A chunk of history from the files."""
        wanted = after + 1
        index = bisect_right(self._segments, wanted) - 1
        segment = self._segments[index]
        if cursor is None or cursor.segment != segment or cursor.position > wanted:
            cursor = self._places.near(segment, wanted)
        ends = self._segments[index + 1] - 1 if index + 1 < len(self._segments) else self._durable
        beginning = Cursor(segment=segment, offset=HEADER.size, position=segment)
        try:
            try:
                return await self._reads.run(read_on, self._disk, self._directory, cursor, after, ends)
            except LogDamaged:
                if cursor == beginning:
                    raise
                # Before a log is called damaged, nothing is taken on trust.
                return await self._reads.run(read_on, self._disk, self._directory, beginning, after, ends)
        except NotFound:
            if wanted < self._first:
                raise trimmed(after, Position(self._first)) from None
            raise

    def _oldest_may_go(self) -> bool:
        return len(self._segments) > 1 and self._segments[1] <= self._trim_upto + 1

    async def _drop_segments(self) -> None:
        try:
            while self._oldest_may_go():
                self._first = self._segments[1]  # followers are told before the file is gone
                await self._reads.run(_remove, self._disk, self._directory, self._segments[0])
                self._places.drop(self._segments[0])
                del self._segments[0]
            logger(directory=str(self._directory)).info(TRIMMED, first=self._first)
        except SyncFailed as error:
            self._fail(LogFailed("the log is finished until the process starts again", reason=error))  # LG9
            self._check_usable()
        finally:
            self._trimming = None


class _Recent:
    """The newest entries, by position, within a number of bytes."""

    def __init__(self, limit_bytes: int, next_position: int) -> None:
        self._limit = limit_bytes
        self._by_position: dict[int, bytes] = {}
        self._bytes = 0
        self._first = next_position

    def get(self, position: int) -> bytes | None:
        return self._by_position.get(position)

    def extend(self, entries: list[bytes]) -> None:
        following = self._first + len(self._by_position)
        for position, entry in enumerate(entries, following):
            self._by_position[position] = entry
            self._bytes += len(entry)
        while self._bytes > self._limit:
            self._bytes -= len(self._by_position.pop(self._first))
            self._first += 1


def _again(error: NotAppended) -> NotAppended:
    """The same refusal for another caller: an exception object belongs to one."""
    copy = type(error)(error.message, **error.facts)
    copy.__cause__ = error.__cause__
    return copy


def _remove(disk: Disk, directory: Path, first: int) -> None:
    disk.remove(directory / segment_name(first))
    disk.sync_dir(directory)  # LG12


def _synced_upto(disk: Disk, directory: Path, segment: Segment, marked: Places) -> int:
    """Where the bytes of a segment begin of whose sync nothing is known."""
    known = believed(disk, directory / segment_name(segment.first), segment.first, marked)
    return 0 if known is None else known.end


def _recover(disk: Disk, directory: Path, segment_bytes: int) -> tuple[SegmentWriter, list[int], Places]:
    """Everything that open does before the log is served."""
    disk.make_dir(directory)
    marked = read_mark(disk, directory)
    found = survey(disk, directory, marked=marked)
    if found.damage is not None:
        raise damaged(directory, found.damage)  # LG11
    log = logger(directory=str(directory))
    segments = list(found.segments)
    if found.torn is not None and found.torn.keep == 0:
        disk.remove(directory / found.torn.name)
        log.warning(SEGMENT_DROPPED, file=found.torn.name, bytes=found.torn.cut)
    for segment in segments[:-1]:
        if marked.segments.get(segment.first) != segment:  # LG20: it was synced as it is
            disk.sync_file(directory / segment_name(segment.first))
    if segments:
        file = disk.open(directory / segment_name(segments[-1].first))
        if found.torn is not None and found.torn.keep:
            file.truncate(found.torn.keep)
            log.warning(TORN_TAIL_CUT, file=found.torn.name, bytes=found.torn.cut, kept_upto=segments[-1].last)
        file.sync()
        disk.write_again(
            directory / segment_name(segments[-1].first), _synced_upto(disk, directory, segments[-1], marked)
        )
        disk.sync_dir(directory)  # LG10
        firsts, size, durable = [segment.first for segment in segments], segments[-1].end, segments[-1].last
    else:
        disk.sync_dir(directory)
        file = create_segment(disk, directory, 1)
        firsts, size, durable = [1], HEADER.size, 0
    scanned = found.places.unmarked_bytes
    log.info(OPENED, first=firsts[0], last=durable, segments=len(firsts), scanned_bytes=scanned)
    if scanned >= MARK_BYTES:
        write_mark(disk, directory, encode(found.places))
        found.places.unmarked_bytes = 0
    writer = SegmentWriter(
        disk, directory, file, size=size, durable=durable, active=firsts[-1], segment_bytes=segment_bytes
    )
    return writer, firsts, found.places
