"""The log, as a port: one ordered durable sequence of entries per domain.

An engine only orders bytes; what they mean is the machine's business. One
contract suite (`tests/log/contract.py`) holds for every engine.

Invariants
    LG1  All followers see the same entries in the same order, without a gap.
    LG2  An entry is durable when `append` returns and before `follow` shows it.
    LG3  `tail` is linearizable: whatever was acknowledged before the call is
         at or below its answer.
    LG4  `LostReply` is raised when an append may have happened, `NotAppended`
         only when it surely did not.
    LG25  Who follows from behind the tail is told so (`Corrupt`), not made to
          wait for a log that went back to grow over what it has read.
"""

from collections.abc import AsyncIterator
from typing import NewType, Protocol, runtime_checkable

from dray.errors import Conflict, Unavailable, Unknown

Position = NewType("Position", int)
"""u64, increasing, holes allowed."""

BEFORE_ALL = Position(0)


class LostReply(Unknown):
    """The append may have happened. Append the same entry again: the machine knows a repeat."""


class NotAppended(Unavailable):
    """The append surely did not happen (too large, full, not allowed)."""


class Trimmed(Conflict):
    """The entries after this position are gone: load a newer checkpoint and follow from there."""


class Log(Protocol):
    """All that an engine implements."""

    async def append(self, entry: bytes) -> Position:
        """Order one entry and make it durable (LG2, LG4)."""
        ...

    def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        """Every durable entry behind `after`, in order, for ever; `Trimmed` where history is gone."""
        ...

    async def tail(self) -> Position:
        """The position of the last entry (LG3)."""
        ...

    async def trim(self, upto: Position) -> None:
        """Let go of entries at or below `upto`; only after a confirmed checkpoint."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Bounded(Protocol):
    """A log in an engine that has an end, which others may share."""

    @property
    def most_kept_bytes(self) -> int:
        """What to keep of it, however much the settings allow."""
        ...

    @property
    def is_crowded(self) -> bool:
        """Whether nothing should be kept that can go."""
        ...

    def bytes_behind(self, position: int) -> int:
        """What lies behind a position, as far as this process has read it."""
        ...


@runtime_checkable
class Polls(Protocol):
    """A log whose followers must ask for what is new: seldom, unless somebody waits for it."""

    def hurry(self) -> None:
        """Somebody does: ask now."""
        ...


@runtime_checkable
class BeginsBehind(Protocol):
    """A log that can go on where another one ended, while it is empty."""

    async def begin_behind(self, position: Position) -> None:
        """Let the next entry have the position after this one; `Conflict` if the log is not empty."""
        ...
