"""How far a local log was synced and checked: the mark that spares an open the reading of everything.

    magic 8 | segments u32 | waypoints u32 | segments | waypoints | CRC32C of all before
    segment  = first u64 | last u64 | end u64 | tail u64
    waypoint = segment u64 | position u64 | offset u64

Little-endian. The mark is a file of its own beside the segments, replaced
whole. It tells nothing that the segments do not tell: without it, or where it
does not fit what lies beside it, they are read from their beginning.

What it covers was checked when it was written and is checked again when it is
read; only the open does not read it. So decay is found by whoever needs the
entry, and never delivered.

Invariants
    LG20  A mark covers only what a sync had returned for before the mark was
          written; it is believed for a segment only if that is at least as
          long as the mark says and its last record is where the mark says.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from dray.disk import Disk
from dray.errors import DrayError, NotFound
from dray.log.segment import HEADER

NAME: Final = "verified"
MAGIC: Final = b"DRAYVER\x01"
WAYPOINT_BYTES: Final = 1 << 20
MARK_BYTES: Final = 4 << 20
"""A mark is written when so much was synced since the last one."""

_HEAD: Final = struct.Struct("<8sII")
_SEGMENT: Final = struct.Struct("<QQQQ")
_WAYPOINT: Final = struct.Struct("<QQQ")
_SUM_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The valid part of one file; `last` is `first - 1` where it holds no record."""

    first: int
    last: int
    end: int
    """Valid bytes, header included."""
    tail: int
    """Where the last record begins; the end of the header where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place in a segment: the record of `position` begins at `offset`."""

    segment: int
    offset: int
    position: int


class Places:
    """Where things lie in a log: its segments, and a waypoint now and then, so that a read begins near."""

    def __init__(self, segments: Iterable[Segment] = (), waypoints: Iterable[Cursor] = ()) -> None:
        self.segments = {segment.first: segment for segment in segments}
        self._waypoints = list(waypoints)
        self.unmarked_bytes = 0
        """Synced or scanned since the last mark."""

    def passed(self, place: Cursor) -> None:
        """A record begins here: remembered if the last remembered place is far."""
        last = self._waypoints[-1] if self._waypoints else None
        if last is None or last.segment != place.segment or place.offset - last.offset >= WAYPOINT_BYTES:
            self._waypoints.append(place)

    def grew(self, segment: Segment, by: int) -> None:
        """A segment is valid and durable so far."""
        self.segments[segment.first] = segment
        self.unmarked_bytes += by

    def near(self, segment: int, position: int) -> Cursor:
        """The nearest known place at or before a position of a segment."""
        at = bisect_right(self._waypoints, position, key=lambda place: place.position) - 1
        if at >= 0 and self._waypoints[at].segment == segment:
            return self._waypoints[at]
        return Cursor(segment=segment, offset=HEADER.size, position=segment)

    def drop(self, first: int) -> None:
        """The oldest segment is gone."""
        self.segments.pop(first, None)
        self._waypoints = [place for place in self._waypoints if place.segment != first]

    def bytes_behind(self, position: int) -> int:
        """Bytes of the segments that hold entries behind a position."""
        return sum(segment.end for segment in self.segments.values() if segment.last > position)

    def of(self, first: int) -> "Places":
        """What is known of one segment."""
        return Places(
            [segment for segment in self.segments.values() if segment.first == first],
            [place for place in self._waypoints if place.segment == first],
        )

    @property
    def waypoints(self) -> tuple[Cursor, ...]:
        return tuple(self._waypoints)


def encode(places: Places) -> bytes:
    """The mark of these places."""
    segments, waypoints = sorted(places.segments.items()), places.waypoints
    parts = [_HEAD.pack(MAGIC, len(segments), len(waypoints))]
    parts += [_SEGMENT.pack(one.first, one.last, one.end, one.tail) for _, one in segments]
    parts += [_WAYPOINT.pack(place.segment, place.position, place.offset) for place in waypoints]
    body = b"".join(parts)
    return body + crc32c(body).to_bytes(_SUM_BYTES, "little")


def decode(mark: bytes) -> Places | None:
    """What a mark says; None if it is none, or not whole."""
    if len(mark) < _HEAD.size + _SUM_BYTES:
        return None
    magic, segments, waypoints = _HEAD.unpack_from(mark)
    ends = _HEAD.size + segments * _SEGMENT.size
    if magic != MAGIC or len(mark) != ends + waypoints * _WAYPOINT.size + _SUM_BYTES:
        return None
    if crc32c(mark[:-_SUM_BYTES]).to_bytes(_SUM_BYTES, "little") != mark[-_SUM_BYTES:]:
        return None
    return Places(
        (
            Segment(first=first, last=last, end=end, tail=tail)
            for first, last, end, tail in _SEGMENT.iter_unpack(mark[_HEAD.size : ends])
        ),
        (
            Cursor(segment=segment, position=position, offset=offset)
            for segment, position, offset in _WAYPOINT.iter_unpack(mark[ends:-_SUM_BYTES])
        ),
    )


def read_mark(disk: Disk, directory: Path) -> Places:
    """What the mark of a log says; nothing where there is none."""
    try:
        return decode(disk.read(directory / NAME)) or Places()
    except NotFound:
        return Places()


def write_mark(disk: Disk, directory: Path, mark: bytes) -> None:
    """Replace the mark. It is a help and no more: a disk that does not take it costs the log nothing.

    The name is not synced: after a crash the old mark is as true as the new one.
    """
    temporary = directory / f"{NAME}.part"
    with suppress(DrayError):
        disk.remove(temporary)
        file = disk.create(temporary)
        try:
            file.write([mark])
            file.sync()
        finally:
            file.close()
        disk.rename(temporary, directory / NAME)
