"""What a delta log asks of a store that bills requests: while nobody writes, and for a commit that two others follow.

How fast it is stands in `engines`, what several writers get in `engines_writers`.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from bench.harness import Case, Report
from dray.buffers import Buffer
from dray.clock import SystemClock
from dray.ids import SystemEntropy
from dray.log.delta.engine import DeltaLog
from dray.log.port import Position
from dray.objects.memory import MemoryObjects
from dray.objects.port import ObjectInfo
from dray.telemetry import configure_logging

ENTRY: Final = os.urandom(2147)
REQUEST_S: Final = 0.03
BROKERS: Final = 3
IDLE_SECONDS: Final = 30.0
DOLLARS: Final = {"put": 5e-6, "list": 5e-6, "get": 0.4e-6, "head": 0.4e-6}
"""S3 Standard, us-east-1; a deletion costs nothing."""
MONTH_S: Final = 730 * 3600


class Billed(MemoryObjects):
    """A store far away that counts what it would be paid for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    async def _take(self, call: str) -> None:
        self.asked[call] += 1
        await asyncio.sleep(REQUEST_S)

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._take("put")
        await super().put(path, parts)

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        await self._take("get")
        return await super().get(path, start, end)

    async def head(self, path: str) -> ObjectInfo:
        await self._take("head")
        return await super().head(path)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        await self._take("list")
        async for info in super().list(prefix):
            yield info

    def dollars(self) -> float:
        return sum(count * DOLLARS[call] for call, count in self.asked.items())


def cases() -> list[Case]:
    configure_logging("error")
    return [
        Report("delta log, idle", lambda: asyncio.run(_idle()), "3 followers of one log, nobody writes"),
        Report("delta log, one commit", lambda: asyncio.run(_commit()), "one writes 10/s, 2 others follow"),
    ]


@asynccontextmanager
async def _handles(count: int) -> AsyncIterator[tuple[list[DeltaLog], Billed]]:
    billed, clock, entropy = Billed(), SystemClock(), SystemEntropy()
    async with AsyncExitStack() as stack:
        handles = []
        for _ in range(count):
            handles.append(await DeltaLog(billed, 0, clock=clock, entropy=entropy).open())
            stack.push_async_callback(handles[-1].close)
        yield handles, billed


async def _follow(log: DeltaLog) -> None:
    async for _ in log.follow(Position(0)):
        pass


async def _idle() -> dict[str, float]:
    async with _handles(BROKERS) as (handles, billed):
        await handles[0].append(ENTRY)
        tasks = [asyncio.create_task(_follow(log)) for log in handles]
        await asyncio.sleep(5)  # pauses have grown by then
        billed.asked.clear()
        await asyncio.sleep(IDLE_SECONDS)
        month = billed.dollars() / IDLE_SECONDS * MONTH_S
        asked = dict(billed.asked)
        for task in tasks:
            task.cancel()
        return {**{f"{call}/s": count / IDLE_SECONDS for call, count in asked.items()}, "$ a month": month}


async def _commit() -> dict[str, float]:
    async with _handles(BROKERS) as (handles, billed):
        tasks = [asyncio.create_task(_follow(log)) for log in handles]
        await asyncio.sleep(2)
        billed.asked.clear()
        commits = 100
        for _ in range(commits):
            await handles[0].append(ENTRY)
            await asyncio.sleep(0.1)
        asked = {call: count / commits for call, count in billed.asked.items()}
        for task in tasks:
            task.cancel()
        return {**asked, "$ a million commits": billed.dollars() / commits * 1e6}
