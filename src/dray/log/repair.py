"""Repair of a damaged local log: keep the longest valid prefix, and everything else aside.

The caller owns the directory (no log is open on it), and starts a new log id
afterwards: positions behind the prefix will be given a second time.

Invariants
    LG14  Before the first byte of a log is changed, all of its files are kept
          under another name; a repair that was cut short leaves a log that is
          still refused, and can be run again.
"""

from dataclasses import dataclass
from pathlib import Path

from dray.disk import Disk
from dray.log.reader import CHUNK_BYTES, scan, segment_firsts, survey
from dray.log.segment import HEADER, BadHeader, check_header, encode_header, segment_name
from dray.log.telemetry import REPAIRED
from dray.log.verified import Segment, remove_mark
from dray.telemetry import logger


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What `repair` kept and lost. An untouched log has no `aside`."""

    first: int
    last: int
    """Entries in [first, last] are kept; none if last is below first."""
    lost_bytes: int = 0
    lost_upto: int | None = None
    """The highest position that could still be read behind the damage, if any."""
    reason: str | None = None
    aside: Path | None = None
    """Where the damaged files are kept."""


def repair(directory: Path, disk: Disk) -> Repaired:
    """Replace a damaged log by its longest valid prefix; a log without damage is left as it is."""
    damage = survey(disk, directory).damage
    kept = survey(disk, directory, believe_names=True)
    first = kept.segments[0].first if kept.segments else 1
    last = kept.segments[-1].last if kept.segments else 0
    if damage is None:
        return Repaired(first=first, last=last)
    firsts = segment_firsts(disk, directory)
    total = sum(disk.size(directory / segment_name(segment)) or 0 for segment in firsts)
    behind = firsts[len(kept.segments) :]
    readable = [scan(disk, directory / segment_name(segment), segment).last for segment in behind]
    remove_mark(disk, directory)  # LG20: it speaks of what is cut now; and from here on every open sees the damage
    aside = _keep_aside(disk, directory, firsts)
    for segment in kept.segments:
        if segment is kept.segments[-1] or not _header_is_good(disk, directory, segment):
            _rewrite(disk, directory, segment)
    for segment_first in behind:
        disk.remove(directory / segment_name(segment_first))
        disk.sync_dir(directory)
    repaired = Repaired(
        first=first,
        last=last,
        lost_bytes=total - sum(segment.end for segment in kept.segments),
        lost_upto=max(readable, default=None),
        reason=damage.reason,
        aside=aside,
    )
    logger(directory=str(directory)).warning(
        REPAIRED, kept_first=first, kept_last=last, lost_bytes=repaired.lost_bytes, aside=str(aside)
    )
    return repaired


def _keep_aside(disk: Disk, directory: Path, firsts: list[int]) -> Path:
    """A second name for every file, in a new directory beside this one (LG14)."""
    taken = set(disk.list(directory.parent))
    number = 1
    while f"{directory.name}.damaged-{number}" in taken:
        number += 1
    aside = directory.parent / f"{directory.name}.damaged-{number}"
    disk.make_dir(aside)
    for first in firsts:
        disk.sync_file(directory / segment_name(first))
        disk.link(directory / segment_name(first), aside / segment_name(first))
    disk.sync_dir(aside)
    return aside


def _header_is_good(disk: Disk, directory: Path, segment: Segment) -> bool:
    try:
        check_header(disk.read(directory / segment_name(segment.first), 0, HEADER.size), segment.first)
    except BadHeader:
        return False
    return True


def _rewrite(disk: Disk, directory: Path, segment: Segment) -> None:
    """The valid part of a segment as a new file under the old name; the old file lives on aside."""
    path = directory / segment_name(segment.first)
    fresh = path.with_suffix(".repair")
    disk.remove(fresh)
    file = disk.create(fresh)
    try:
        file.write([encode_header(segment.first)])
        for start in range(HEADER.size, segment.end, CHUNK_BYTES):
            file.write([disk.read(path, start, min(segment.end, start + CHUNK_BYTES))])
        file.sync()
    finally:
        file.close()
    disk.rename(fresh, path)
    disk.sync_dir(directory)
