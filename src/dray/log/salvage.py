"""What a damaged local log still tells: its longest valid prefix.

The caller begins a new log with it and keeps the old one aside, whole: a log
that was cut and kept its id would give positions a second time.

Invariants
    LG14  A damaged log is read and never changed: until a new log stands in
          its place it is refused, whenever a recovery is cut short.
"""

from dataclasses import dataclass
from pathlib import Path

from dray.disk import Disk
from dray.log.closed import ClosedLog
from dray.log.reader import segment_firsts
from dray.log.segment import segment_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """What can be read of a log, and what cannot."""

    log: ClosedLog
    """The valid prefix."""
    lost_bytes: int = 0
    reason: str | None = None
    """What is wrong; None if the log is whole."""


def salvage(directory: Path, disk: Disk) -> Salvage:
    """Read a log that nobody serves, as far as it is valid (LG14)."""
    log = ClosedLog(directory, disk, believe_names=True)
    damage = ClosedLog(directory, disk).survey.damage
    if damage is None:
        return Salvage(log=log)
    firsts = segment_firsts(disk, directory)
    kept = log.survey.segments
    total = sum(disk.size(directory / segment_name(first)) or 0 for first in firsts)
    return Salvage(
        log=log,
        lost_bytes=total - sum(segment.end for segment in kept),
        reason=damage.reason,
    )
