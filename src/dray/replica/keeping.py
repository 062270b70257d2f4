"""How far back checkpoints and the log are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NEWEST: Final = 2
"""Kept whatever their age and size (CK2): should the newest not be readable, there is the one before it."""
MOST: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A checkpoint that may be loaded."""

    position: int
    age_ms: int
    """By machine time (CK5)."""
    log_bytes: int
    """Of the log that lies behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLimits:
    """How far back is far enough."""

    kept_ms: int
    kept_bytes: int


def needed_from(kept: Sequence[Kept], limits: KeepLimits, *, log_bytes: int) -> int | None:
    """The oldest position that is still needed; None while nothing may go. `kept` has the oldest first.

    Replicas that were away go on from the log if it reaches back as long as
    they were away: so `kept_ms` of it are kept, in at most `kept_bytes` and
    `MOST` checkpoints, and never less than what lies between the two newest.
    """
    older = kept[: 1 - NEWEST]
    if not older:
        return None
    floors = [one.position for one in older if one.age_ms >= limits.kept_ms]
    if len(kept) > MOST:
        floors.append(kept[-MOST].position)
    if log_bytes > limits.kept_bytes:
        within = [one.position for one in older if one.log_bytes <= limits.kept_bytes]
        floors.append(within[0] if within else older[-1].position)
    return max(floors, default=None)
