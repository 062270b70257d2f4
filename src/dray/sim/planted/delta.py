"""Mistakes of the delta log."""

from typing import Final

from dray.log.delta.boundaries import Boundaries
from dray.log.delta.commits import Operations
from dray.log.delta.engine import DeltaLog
from dray.log.delta.turns import FairTurns


async def foretells_too_early(self: DeltaLog, version: int, entry: bytes) -> Operations | None:
    """The replica is asked wherever it is, though it has not applied the version before."""
    return () if self._foretells is None else self._foretells.operations(entry)


async def cuts_at_once(self: Boundaries, upto: int) -> None:
    """What is trimmed is deleted in the same moment."""
    self._grace_ns = 0
    await _RAISE_TO(self, upto)


_RAISE_TO: Final = Boundaries.raise_to


def never_gives_way(self: FairTurns) -> float:
    """Whoever won puts again at once."""
    return 0.0


async def believes_every_put(self: DeltaLog, version: int) -> bool:
    """Whoever won a name has won the version, whatever was trimmed meanwhile."""
    return False
