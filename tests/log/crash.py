"""An engine that keeps files, on a disk that loses power at every single call.

The whole truth about a run is the list of entries in the order in which they
were handed to the log: whatever a crash leaves must be a prefix of it, at
least as long as what was acknowledged or shown. Positions are dense, from 1.
Nothing here knows which files an engine has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from dray.log.port import BEFORE_ALL, Log, LostReply, NotAppended, Position, Trimmed
from tests.log.contract import named, take_upto

Open: TypeAlias = Callable[[object], Awaitable[Log]]
"""Open the engine under test on a disk, with files so small that there are several."""


class TurnOffload:
    """Inline, but others get their turns before and after, as they do while a thread works."""

    async def run(self, function: Callable, /, *args, **kwargs):
        for _ in range(3):
            await asyncio.sleep(0)
        result = function(*args, **kwargs)
        for _ in range(3):
            await asyncio.sleep(0)
        return result


@dataclass
class Run:
    """What one life of the log promised."""

    handed: list[bytes] = field(default_factory=list)
    acked: dict[bytes, Position] = field(default_factory=dict)
    shown: int = 0
    trimmed: int = 0


async def scenario(open_log: Open, disk, run: Run) -> None:
    """Appends one by one and in bursts (records beyond a sector too), rotations, trims, a clean restart, a follower."""
    log = await open_log(disk)
    watcher = asyncio.ensure_future(watch(log, run))
    try:
        await append_all(log, run, [named("one", 4)])
        await append_all(log, run, [named("burst", 7, 150), named("large", 3, 900), named("many", 30, 10)])
        run.trimmed = 9
        await log.trim(Position(9))
        await append_all(log, run, [named("after", 5)])
        await log.close()
        log = await open_log(disk)
        await append_all(log, run, [named("second", 6, 200)])
        run.trimmed = int(await log.tail()) - 2
        await log.trim(Position(run.trimmed))
        await append_all(log, run, [named("end", 2, 50)])
        await log.close()
    except (LostReply, NotAppended):
        assert disk.crashed
    watcher.cancel()
    outcome = (await asyncio.gather(watcher, return_exceptions=True))[0]
    assert outcome is None or disk.crashed or isinstance(outcome, (asyncio.CancelledError, Trimmed)), outcome


async def append_all(log: Log, run: Run, bursts: list[list[bytes]]) -> None:
    async def append(entry: bytes) -> None:
        run.acked[entry] = await log.append(entry)

    for burst in bursts:
        # The first goes alone; what comes while it is synced makes up the next batch.
        run.handed += burst
        results = await asyncio.gather(*map(append, burst), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


async def watch(log: Log, run: Run) -> None:
    async for position, _ in log.follow(BEFORE_ALL):
        run.shown = position


async def check(disk, run: Run, log: Log) -> list[bytes]:
    """LG2: all that was promised, nothing invented, in order."""
    tail = await log.tail()
    first = min(run.trimmed, tail)
    kept = await take_upto(log, first, tail)
    assert kept == list(enumerate(run.handed, 1))[first:tail], f"not a prefix: {disk!r}"
    assert all(position <= tail for position in run.acked.values()), f"an acknowledged entry is gone: {disk!r}"
    assert all(run.handed[position - 1] == entry for entry, position in run.acked.items())
    assert run.shown <= tail, f"a shown entry is gone: {disk!r}"
    return run.handed[:tail]


async def crash_everywhere(
    open_log: Open, disks: Iterable[object], *, keep_cache: bool = False, write_before_second_crash: bool = False
) -> int:
    """Run, crash, open, check, crash again, check again, go on."""
    points = 0
    for disk in disks:
        points += 1
        run = Run()
        with disk.until_crash(keep_cache=keep_cache):
            await scenario(open_log, disk, run)
        log = await open_log(disk)
        before = await check(disk, run, log)
        run.shown = await log.tail()
        run.handed = before
        if write_before_second_crash:
            await append_all(log, run, [named("between", 3)])
        with disk.until_crash():
            pass
        log = await open_log(disk)
        after = await check(disk, run, log)
        assert after[: len(before)] == before, f"shown at one open, gone at the next: {disk!r}"
        await append_all(log, run, [named("on", 3)])
        await check(disk, run, log)
        await log.close()
    return points
