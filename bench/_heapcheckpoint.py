"""What a checkpoint of a broker's domain costs, part by part; a program that answers with one line of JSON.

    python -m bench._heapcheckpoint DATA

It does what the broker's child does, from the newest checkpoint and the log
behind it, and leaves the result in a directory of its own. All times are CPU
time of this process. While it loads and reads back, a loop beside it counts:
`held` is the most CPU that the process spent between two turns of that loop,
so what the loop would have waited on a machine with nothing else to do.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import uvloop

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.log.opening import LogEffects, open_log
from dray.log.port import Log, Position
from dray.log.urls import parse_log_url
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.offload import ThreadOffload
from dray.replica.checkpoints import FileCheckpoints, newest_machine
from dray.replica.leaving import leave

T = TypeVar("T")
_TURN_S = 0.001


class Turns:
    """The turns of a loop, and the longest time between two of them."""

    def __init__(self) -> None:
        self.held_s = 0.0

    async def count(self) -> None:
        while True:
            before_s = time.process_time()
            await asyncio.sleep(_TURN_S)
            self.held_s = max(self.held_s, time.process_time() - before_s)


async def fold(machine: Machine, log: Log) -> int:
    """Fold to the tail; how many rows that was."""
    tail, rows = await log.tail(), 0
    if machine.position >= tail:
        return rows
    async for position, entry in log.follow(Position(machine.position)):
        rows += machine.apply(position, entry).rows
        if position >= tail:
            break
    return rows


async def measure(data: Path) -> dict[str, float]:
    figures = {"start s": time.process_time()}
    disk, offload, turns = LocalDisk(), ThreadOffload(2), Turns()
    counting = asyncio.create_task(turns.count())
    store = FileCheckpoints(data / "meta" / "domain-00000" / "checkpoints", disk, offload)

    async def timed(part: str, work: Callable[[], Awaitable[T]], *, held: bool = False) -> T:
        await asyncio.sleep(2 * _TURN_S)  # what was done on the loop before is not this part's
        turns.held_s, began_s = 0.0, time.process_time()
        result = await work()
        figures[f"{part} s"] = time.process_time() - began_s
        if held:
            figures[f"{part} held ms"] = turns.held_s * 1e3
        return result

    machine = await timed("load", lambda: newest_machine(store, set_aside=False), held=True)
    effects = LogEffects(clock=SystemClock(), disk=disk, offload=offload)
    log = await open_log(parse_log_url(f"unix:{data / 'meta.sock'}"), 0, effects)
    figures["rows"] = float(await timed("fold", lambda: fold(machine, log)))
    await log.close()
    dumped = await timed("dump", lambda: offload.run(checkpoint.dump_runs, machine))
    with tempfile.TemporaryDirectory(dir=data) as other:
        made = FileCheckpoints(Path(other), disk, offload)
        await timed("write", lambda: made.write(machine.position, *dumped), held=True)
        await timed("read back", lambda: made.examine(machine.position), held=True)
    figures["bytes"] = float(sum(map(len, dumped)))
    await timed("leave", lambda: leave(machine), held=True)
    counting.cancel()
    return figures


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(Path(sys.argv[1])))))
