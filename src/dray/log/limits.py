"""What every engine refuses alike, before it writes anything."""

from typing import Final

from dray.errors import Corrupt
from dray.log.port import NotAppended, Position, Trimmed

MAX_ENTRY_BYTES: Final = 1 << 20
"""Below what every engine takes (etcd: 1.5 MiB), so that a log can grow out of its engine."""


def check_entry(entry: bytes, max_entry_bytes: int) -> None:
    """`NotAppended` for an entry that no engine could store; nothing was written (LG4)."""
    if not entry:
        raise NotAppended("an entry has at least one byte")
    if len(entry) > max_entry_bytes:
        raise NotAppended("the entry is too large: split it by commands", size=len(entry), limit=max_entry_bytes)


def trimmed(after: Position, first: Position) -> Trimmed:
    """The error of a follower whose next entry is gone."""
    return Trimmed("the entries after this position are gone: load a newer checkpoint", after=after, first=first)


def gone_back(after: int, tail: int) -> Corrupt:
    """The error of a follower that has read more than there is (LG25)."""
    return Corrupt(
        "the log ends before what was read of it: it was wiped, or went back to an older state. Stop every broker, and "
        "restore it from a backup",
        read=after, tail=tail,
    )  # fmt: skip
