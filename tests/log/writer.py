"""A process that appends to a log: `python -m tests.log.writer URL DOMAIN NAME COUNT`; it prints the positions."""

import asyncio
import sys

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.log.opening import LogEffects, open_log
from dray.log.urls import parse_log_url
from dray.offload import InlineOffload
from tests.log.contract import fill


async def main(url: str, domain: int, name: str, count: int) -> None:
    effects = LogEffects(clock=SystemClock(), disk=LocalDisk(), offload=InlineOffload())
    log = await open_log(parse_log_url(url), domain, effects)
    for position, _ in await fill(log, count, name=name):
        print(position)
    await log.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
