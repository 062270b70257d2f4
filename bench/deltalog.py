"""The delta log: on a directory, and on a store whose requests take 30 ms; and what it asks of a store that bills them.

one writer            2 kB entries one after the other: commits/s, p50, p99
three writers         all the time, from one process, each its own handle; the share of the slowest
requests              of an idle log in a minute, and for each commit that two others follow
"""

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from bench.harness import Case, Report
from dray.buffers import Buffer
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.log.delta.engine import DeltaLog
from dray.log.delta.opening import DIRECTORY_IDLE_S
from dray.log.port import Position
from dray.objects.files import FileObjects
from dray.objects.memory import MemoryObjects
from dray.objects.port import ObjectInfo
from dray.offload import ThreadOffload
from dray.telemetry import configure_logging

ENTRY: Final = os.urandom(2147)
REQUEST_S: Final = 0.03
SECONDS: Final = 6.0
WRITERS: Final = 3
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
        Report("delta log, directory, 1 writer", lambda: asyncio.run(_load("directory", 1)), "2 kB, one at a time"),
        Report("delta log, directory, 3 writers", lambda: asyncio.run(_load("directory", WRITERS)), "slowest share"),
        Report("delta log, 30 ms, 1 writer", lambda: asyncio.run(_load("far", 1)), "2 kB, one at a time"),
        Report("delta log, 30 ms, 3 writers", lambda: asyncio.run(_load("far", WRITERS)), "slowest share"),
        Report("delta log, idle", lambda: asyncio.run(_idle()), "3 followers of one log, nobody writes"),
        Report("delta log, one commit", lambda: asyncio.run(_commit()), "one writes 10/s, 2 others follow"),
    ]


@asynccontextmanager
async def _handles(kind: str, count: int) -> AsyncIterator[tuple[list[DeltaLog], Billed]]:
    billed, clock, entropy = Billed(), SystemClock(), SystemEntropy()
    async with AsyncExitStack() as stack:
        offload = ThreadOffload(8)
        stack.callback(offload.close)
        root = Path(tempfile.mkdtemp(prefix="dray-bench-"))
        stack.callback(shutil.rmtree, root)
        handles = []
        for _ in range(count):
            if kind == "directory":
                files = FileObjects(root, LocalDisk(), offload)
                await files.open()
                log = DeltaLog(files, 0, clock=clock, entropy=entropy, settle=files.settle, idle_s=DIRECTORY_IDLE_S)
            else:
                log = DeltaLog(billed, 0, clock=clock, entropy=entropy)
            handles.append(await log.open())
            stack.push_async_callback(log.close)
        yield handles, billed


async def _load(kind: str, writers: int) -> dict[str, float]:
    async with _handles(kind, writers) as (handles, _):
        times: dict[int, list[float]] = {number: [] for number in range(writers)}
        ends = time.perf_counter() + SECONDS

        async def write(number: int) -> None:
            while (began := time.perf_counter()) < ends:
                await handles[number].append(ENTRY)
                times[number].append(time.perf_counter() - began)

        await asyncio.gather(*map(write, range(writers)))
        took = sorted(one for own in times.values() for one in own)
        p99 = took[int(len(took) * 0.99)] * 1e3
        share = min(len(own) for own in times.values()) * writers / len(took)
        return {
            "commits/s": len(took) / SECONDS,
            "p50 ms": statistics.median(took) * 1e3,
            "p99 ms": p99,
            "share of the slowest": share,
            "races a commit": sum(log.conflicts for log in handles) / len(took),
        }


async def _follow(log: DeltaLog) -> None:
    async for _ in log.follow(Position(0)):
        pass


async def _idle() -> dict[str, float]:
    async with _handles("far", WRITERS) as (handles, billed):
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
    async with _handles("far", WRITERS) as (handles, billed):
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
