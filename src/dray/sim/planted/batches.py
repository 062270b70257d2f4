"""Mistakes about batches over several heaps: who decides, and what is left of one that was given up."""

from dray.heaps.batches import BatchCoordinator, _Batch
from dray.machine.heaps.dedup import Dedup


async def decides_nothing(self: BatchCoordinator, batch: _Batch) -> None:
    """The parts are told of a commit that stands in no log."""
    batch.asked = True


def remembers_aborted(self: Dedup, key: bytes, seq: int) -> None:
    """A repeat of what was given up is a duplicate of nothing."""
