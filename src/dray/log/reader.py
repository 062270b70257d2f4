"""Reading segment files: the survey at open, and history for followers.

Nothing here changes a file. Segments are read in chunks, so memory is bounded
by the chunk and the largest entry, whatever the size of the log. What a mark
covers (LG20) is not read by a survey that is given one.
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
from dray.log.verified import Cursor, Places, Segment

CHUNK_BYTES: Final = 256 << 10


class LogDamaged(Corrupt):
    """The log holds bytes that were not written so: an operator must look. Nothing was changed."""


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
    places: Places
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


def survey(disk: Disk, directory: Path, *, marked: Places | None = None, believe_names: bool = False) -> Survey:
    """Read everything once, but for what `marked` covers, and judge it.

    `believe_names` reads on behind a damaged header, for salvage.
    """
    places = Places()
    segments: list[Segment] = []
    firsts = segment_firsts(disk, directory)
    for first in firsts:
        name, is_last = segment_name(first), first == firsts[-1]
        if segments and first != segments[-1].last + 1:
            lost = segments[-1].last + 1
            reason = "entries between two segments are missing" if first > lost else "two segments overlap"
            damage = Damage(name=name, position=lost, offset=0, reason=reason)
            return Survey(segments=tuple(segments), places=places, damage=damage)
        size = disk.size(directory / name) or 0
        try:
            check_header(disk.read(directory / name, 0, HEADER.size), first)
        except NewerFormat as error:
            raise NewerFormat(error.message, file=directory / name, **error.facts) from error
        except BadHeader as error:
            if is_last and size <= HEADER.size and (segments or first == 1):
                # Its creation was never finished, so nothing was ever written behind the header.
                return Survey(segments=tuple(segments), places=places, torn=Torn(name=name, keep=0, cut=size))
            if not believe_names:
                damage = Damage(name=name, position=first, offset=0, reason=error.message)
                return Survey(segments=tuple(segments), places=places, damage=damage)
        segment = scan(disk, directory / name, first, places, marked)
        segments.append(segment)
        if segment.end < size:
            torn, damage_found = _judge_the_rest(disk, directory, segment, size, is_last)
            return Survey(segments=tuple(segments), places=places, torn=torn, damage=damage_found)
    return Survey(segments=tuple(segments), places=places)


def scan(
    disk: Disk, path: Path, first: int, places: Places | None = None, marked: Places | None = None
) -> Segment:  # fmt: skip
    """The longest run of valid records, from the start of the file or from where its mark ends."""
    places = Places() if places is None else places
    known = None if marked is None else believed(disk, path, first, marked)
    if known is None:
        known = Segment(first=first, last=first - 1, end=HEADER.size, tail=HEADER.size)
    elif marked is not None:
        for place in marked.of(first).waypoints:
            places.passed(place)
    at, tail, position = known.end, known.tail, known.last + 1
    wanted = CHUNK_BYTES
    while True:
        places.passed(Cursor(segment=first, offset=at, position=position))
        buffer = disk.read(path, at, at + wanted)
        parsed = 0
        while (end := record_end(buffer, parsed, position)) > 0:
            tail, parsed, position = at + parsed, end, position + 1
        at += parsed
        if end == BAD or len(buffer) < wanted:
            segment = Segment(first=first, last=position - 1, end=at, tail=tail)
            places.grew(segment, at - known.end)
            return segment
        wanted = CHUNK_BYTES if parsed else max(CHUNK_BYTES, record_bytes(buffer))


def believed(disk: Disk, path: Path, first: int, marked: Places) -> Segment | None:
    """What the mark says of a segment, if that is what lies there (LG20)."""
    known = marked.segments.get(first)
    if known is None or known.last < first or not HEADER.size <= known.tail < known.end:
        return None
    last = disk.read(path, known.tail, known.end)
    return known if record_end(last, 0, known.last) == known.end - known.tail else None


def _judge_the_rest(
    disk: Disk, directory: Path, segment: Segment, size: int, is_last: bool
) -> tuple[Torn | None, Damage | None]:
    """Bytes behind the valid prefix of a file: a torn tail, or damage (LG6)."""
    name, expected = segment_name(segment.first), segment.last + 1
    rest = disk.read(directory / name, segment.end)
    later = proof_of_damage(rest, expected)
    if is_last and later is None:
        return Torn(name=name, keep=segment.end, cut=size - segment.end), None
    reason = "a record is damaged" if later is None else f"a record is damaged, position {later} behind it is not"
    return None, Damage(name=name, position=expected, offset=segment.end, reason=reason)


def damaged(directory: Path, damage: Damage) -> LogDamaged:
    """The error an operator reads."""
    return LogDamaged(
        f"the log is damaged: {damage.reason}; nothing was changed. Restore the directory from a backup, or keep the"
        f" entries before the damage with: drayd admin meta recover {directory}",
        file=directory / damage.name,
        position=damage.position,
        offset=damage.offset,
    )


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
