"""A process that appends until it is killed, and says what was acknowledged: `python -m tests.log.appender DIR SEED`.

Each entry says its own number; the acknowledgement goes to standard output as `number position`.
"""

import asyncio
import random
import sys
from pathlib import Path

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.log.files import FileLog
from dray.offload import ThreadOffload
from dray.telemetry import configure_logging

IN_FLIGHT = 16


async def main(directory: Path, seed: int) -> None:
    configure_logging("error")
    log = await FileLog.open(
        directory, disk=LocalDisk(), offload=ThreadOffload(2), clock=SystemClock(), segment_bytes=200_000
    )
    dice = random.Random(seed)
    number = 0

    async def append() -> None:
        nonlocal number
        while True:
            number += 1
            own = number
            entry = f"{seed} {own} ".encode().ljust(dice.randint(20, 3000), b"x")
            position = await log.append(entry)
            sys.stdout.write(f"{own} {position}\n")
            sys.stdout.flush()

    print("ready", flush=True)
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(append())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
