"""A state that nobody asks any more is freed in pieces.

To free a list of two million entries at once takes longer than anybody who
asks something else should wait (Q8). A state that was there when the process
began to serve would not be freed at all: the collector does not look at it
again (`dray.memory`), and its parts know each other.
"""

import asyncio
from typing import Final

from dray.machine.heaps.kernel import forget
from dray.machine.machine import Machine

PIECE: Final = 50_000
"""Entries: 2 ms."""
PIECE_BYTES: Final = 8 << 20


async def leave(machine: Machine) -> None:
    """Free what is large in it. It is of no use to anybody from now on."""
    for shard in machine.heaps:
        for order in (shard.messages.ready, shard.messages.delays):
            while len(order):
                order.cut(PIECE)
                await asyncio.sleep(0)
        rows = shard.messages.rows.data
        for start in range(0, len(rows), PIECE_BYTES):
            forget(rows, start, min(start + PIECE_BYTES, len(rows)))
            await asyncio.sleep(0)
        while rows:  # memory goes back each time that less than half of it is used
            del rows[max(0, len(rows) // 2 - 1) :]
            await asyncio.sleep(0)
