"""A replica's first fold: the log behind the checkpoint, before anybody is served.

Nobody waits for an answer yet, so the loop gets its turn by time and not after
each entry; the fold is the same, with every check that it makes (Q6).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from dray.log.port import Log, Position, Trimmed
from dray.replica.replica import Replica

PIECE_NS: Final = 5_000_000
"""The longest that the loop is held, but for a single entry."""


async def catch_up(replica: Replica, log: Log, boot_ns: Callable[[], int]) -> int:
    """Fold up to the tail as it is now; how many entries that took. A trimmed log is left to the replica's follower."""
    tail = await log.tail()
    folded = 0
    if replica.position >= tail:
        return folded
    piece_ns = boot_ns() + PIECE_NS
    try:
        async for position, entry in log.follow(Position(replica.position)):
            replica.apply(position, entry)
            folded += 1
            if replica.position >= tail or replica.failed.done():
                break
            if boot_ns() >= piece_ns:
                await asyncio.sleep(0)
                piece_ns = boot_ns() + PIECE_NS
    except Trimmed:
        pass  # the follower loads a newer checkpoint (RP3)
    return folded
