"""Mistakes about checkpoints, and about what a jump to one makes unknown."""

from dray.machine.checkpoint import Summary
from dray.machine.confirmations import CheckpointMark
from dray.replica.checkpointer import Checkpointer
from dray.replica.writer import Writer


def trusts_dead_after_a_jump(self: Writer) -> None:
    """What was in flight is taken for sent after the jump."""


async def refold_by_reading(self: Checkpointer, mark: CheckpointMark) -> Summary | None:
    """Another's checkpoint is confirmed because it can be read."""
    return await self._store.examine(mark.position)
