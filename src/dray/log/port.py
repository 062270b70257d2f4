"""The log, as a port: one ordered durable sequence of entries per domain.

An engine only orders bytes; what they mean is the machine's business. One
contract suite (`tests/log/contract.py`) holds for every engine.

Invariants
    LG1  All followers see the same entries in the same order, without a gap.
    LG2  An entry is durable when `append` returns and before `follow` shows it.
    LG3  `tail` is linearizable: whatever was acknowledged before the call is
         at or below its answer.
    LG4  `LostReply` is raised when an append may have happened, `Refused`
         only when it surely did not.
"""

from collections.abc import AsyncIterator
from typing import NewType, Protocol

from dray.errors import Conflict, Unavailable, Unknown

Position = NewType("Position", int)
"""u64, increasing, holes allowed."""

BEFORE_ALL = Position(0)


class LostReply(Unknown):
    """The append may have happened. Append the same entry again: the machine knows a repeat."""


class Refused(Unavailable):
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
