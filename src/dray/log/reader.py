"""Reading segment files: the survey at open, and history for followers.

Nothing here changes a file. Segments are read in chunks, so memory is bounded
by the chunk and the largest entry, whatever the size of the log.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dray.disk import Disk
from dray.errors import Corrupt, Invalid
from dray.log.segment import (
    BAD,
    HEADER,
    RECORD,
    BadHeader,
    NewerFormat,
    check_header,
    first_of,
    proof_of_damage,
    record_bytes,
    record_end,
    segment_name,
)

CHUNK_BYTES: Final = 256 << 10


class LogDamaged(Corrupt):
    """The log holds bytes that were not written so: an operator must look. Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The valid part of one file; `last` is `first - 1` where it holds no record."""

    first: int
    last: int
    end: int
    """Valid bytes, header included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Torn:
    """What a crash left at the end of the last file. `keep` is 0 where the file itself was not finished."""

    name: str
    keep: int
    cut: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The first place that no crash explains."""

    name: str
    position: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is in a log directory: the valid prefix, and what ends it."""

    segments: tuple[Segment, ...]
    torn: Torn | None = None
    damage: Damage | None = None


def segment_firsts(disk: Disk, directory: Path) -> list[int]:
    """The first positions of the segments, ascending; a stray `.log` file is refused."""
    firsts = []
    for name in disk.list(directory):
        first = first_of(name)
        if first is not None:
            firsts.append(first)
        elif name.endswith(".log"):
            raise Invalid("a file in the log directory is no segment: move it away", file=directory / name)
    return sorted(firsts)


def survey(disk: Disk, directory: Path, *, believe_names: bool = False) -> Survey:
    """Read everything once and judge it; `believe_names` reads on behind a damaged header, for repair."""
    segments: list[Segment] = []
    firsts = segment_firsts(disk, directory)
    for first in firsts:
        name, is_last = segment_name(first), first == firsts[-1]
        if segments and first != segments[-1].last + 1:
            lost = segments[-1].last + 1
            reason = "entries between two segments are missing" if first > lost else "two segments overlap"
            damage = Damage(name=name, position=lost, offset=0, reason=reason)
            return Survey(segments=tuple(segments), damage=damage)
        size = disk.size(directory / name) or 0
        try:
            check_header(disk.read(directory / name, 0, HEADER.size), first)
        except NewerFormat as error:
            raise NewerFormat(error.message, file=directory / name, **error.facts) from error
        except BadHeader as error:
            if is_last and size <= HEADER.size and (segments or first == 1):
                # Its creation was never finished, so nothing was ever written behind the header.
                return Survey(segments=tuple(segments), torn=Torn(name=name, keep=0, cut=size))
            if not believe_names:
                damage = Damage(name=name, position=first, offset=0, reason=error.message)
                return Survey(segments=tuple(segments), damage=damage)
        segment = scan(disk, directory / name, first)
        segments.append(segment)
        if segment.end < size:
            return _judge_the_rest(disk, directory, tuple(segments), size, is_last)
    return Survey(segments=tuple(segments))


def scan(disk: Disk, path: Path, first: int) -> Segment:
    """The longest run of valid records from the start of the file."""
    at, position = HEADER.size, first
    wanted = CHUNK_BYTES
    while True:
        buffer = disk.read(path, at, at + wanted)
        parsed = 0
        while (end := record_end(buffer, parsed, position)) > 0:
            parsed, position = end, position + 1
        at += parsed
        if end == BAD or len(buffer) < wanted:
            return Segment(first=first, last=position - 1, end=at)
        wanted = CHUNK_BYTES if parsed else max(CHUNK_BYTES, record_bytes(buffer))


def _judge_the_rest(disk: Disk, directory: Path, segments: tuple[Segment, ...], size: int, is_last: bool) -> Survey:
    """Bytes behind the valid prefix of a file: a torn tail, or damage (LG6)."""
    segment = segments[-1]
    name, expected = segment_name(segment.first), segment.last + 1
    rest = disk.read(directory / name, segment.end)
    later = proof_of_damage(rest, expected)
    if is_last and later is None:
        return Survey(segments=segments, torn=Torn(name=name, keep=segment.end, cut=size - segment.end))
    reason = "a record is damaged" if later is None else f"a record is damaged, position {later} behind it is not"
    damage = Damage(name=name, position=expected, offset=segment.end, reason=reason)
    return Survey(segments=segments, damage=damage)


def damaged(directory: Path, damage: Damage) -> LogDamaged:
    """The error an operator reads."""
    return LogDamaged(
        f"the log is damaged: {damage.reason}; nothing was changed. Restore the directory from a backup, or keep the"
        f" entries before the damage with: drayd admin meta recover {directory}",
        file=directory / damage.name,
        position=damage.position,
        offset=damage.offset,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place in a segment: the record of `position` begins at `offset`."""

    segment: int
    offset: int
    position: int


def read_on(disk: Disk, directory: Path, cursor: Cursor, after: int, upto: int) -> tuple[list[bytes], Cursor]:
    """About a chunk of entries in (after, upto], which must lie in the cursor's segment from there on.

    Entries are checked again on the way out, so that decay since the open is
    reported and never delivered.
    """
    path = directory / segment_name(cursor.segment)
    entries: list[bytes] = []
    offset, position = cursor.offset, cursor.position
    wanted = CHUNK_BYTES
    while not entries and position <= upto:
        buffer = disk.read(path, offset, offset + wanted)
        at = 0
        while position <= upto and (end := record_end(buffer, at, position)) > 0:
            if position > after:
                entries.append(buffer[at + RECORD.size : end])
            at, position = end, position + 1
        offset += at
        if at == 0:
            if end == BAD or len(buffer) < wanted:
                reason = "a record changed after it was written"
                damage = Damage(name=path.name, position=position, offset=offset, reason=reason)
                raise damaged(directory, damage)
            wanted = record_bytes(buffer)
        else:
            wanted = CHUNK_BYTES
    return entries, Cursor(segment=cursor.segment, offset=offset, position=position)
