"""The delta log of a directory on a disk that loses power at every single call.

Two processes write and both are watched, so an entry is often shown by one
that did not write it: that is when its name may not be synced yet (LG42).
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dray.clock import ManualClock
from dray.errors import DrayError
from dray.ids import SeededEntropy
from dray.log.delta.engine import DeltaLog
from dray.log.port import BEFORE_ALL, Position, Trimmed
from dray.objects.files import FileObjects
from dray.sim import disk as sim
from tests.log.contract import named, take_upto
from tests.log.test_files_crash import TurnOffload

DIRECTORY = Path("/data/log")
SEEDS = (None,)


@dataclass
class Run:
    """What the processes promised."""

    handed: set[bytes] = field(default_factory=set)
    acked: dict[bytes, Position] = field(default_factory=dict)
    shown: dict[Position, bytes] = field(default_factory=dict)
    trimmed: int = 0


async def open_log(disk, seed: int = 1) -> DeltaLog:
    files = FileObjects(DIRECTORY, disk, TurnOffload(), SeededEntropy(seed))
    await files.open()
    log = DeltaLog(
        files, 1, clock=ManualClock(), entropy=SeededEntropy(seed), settle=files.settle, idle_s=(600, 600), grace_s=0
    )
    return await log.open()


async def scenario(disk, run: Run) -> None:
    logs, watchers = [], []
    try:
        logs = [await open_log(disk, seed) for seed in (1, 2)]
        watchers = [asyncio.ensure_future(watch(log, run)) for log in logs]
        await append_all(logs, run, named("one", 3))
        run.trimmed = 2
        await logs[0].trim(Position(2))
        await append_all(logs, run, named("after", 2, 700))
        await append_all(logs[:1], run, named("alone", 1))
    except DrayError:
        assert disk.crashed
    for log in logs:
        await log.close()
    for watcher in watchers:
        watcher.cancel()
    for outcome in await asyncio.gather(*watchers, return_exceptions=True):
        assert outcome is None or disk.crashed or isinstance(outcome, asyncio.CancelledError | Trimmed), outcome


async def append_all(logs: list[DeltaLog], run: Run, entries: list[bytes]) -> None:
    run.handed |= set(entries)

    async def append(log: DeltaLog, own: list[bytes]) -> None:
        for entry in own:
            run.acked[entry] = await log.append(entry)

    results = await asyncio.gather(
        *(append(log, entries[at :: len(logs)]) for at, log in enumerate(logs)), return_exceptions=True
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def watch(log: DeltaLog, run: Run) -> None:
    async for position, entry in log.follow(BEFORE_ALL):
        assert run.shown.setdefault(position, entry) == entry


async def check(disk, run: Run, log: DeltaLog) -> None:
    """LG2: all that was promised, nothing invented, at the same places."""
    tail = await log.tail()
    assert max([*run.acked.values(), *run.shown], default=0) <= tail, f"acknowledged or shown, and gone: {disk!r}"
    kept = dict(await take_upto(log, min(run.trimmed, tail), tail))
    assert set(kept.values()) <= run.handed
    promised = {position: entry for entry, position in run.acked.items()} | run.shown
    for position, entry in promised.items():
        if position > run.trimmed:
            assert kept.get(position) == entry, f"another entry is where this one was: {disk!r}"


async def crash_everywhere(disks: Iterable[object], *, keep_cache: bool = False) -> int:
    points = 0
    for disk in disks:
        points += 1
        run = Run()
        with disk.until_crash(keep_cache=keep_cache):
            await scenario(disk, run)
        log = await open_log(disk, 3)
        await check(disk, run, log)
        tail = await log.tail()
        run.shown |= dict(await take_upto(log, min(run.trimmed, tail), tail))
        with disk.until_crash():
            pass
        log = await open_log(disk, 4)
        await check(disk, run, log)
        await append_all([log], run, named("on", 2))
        await check(disk, run, log)
        await log.close()
    return points


@pytest.mark.slow
async def test_a_crash_at_any_call_loses_nothing_that_was_acknowledged_or_shown_by_anybody() -> None:
    """LG2, LG42, L-34, L-35."""
    points = await crash_everywhere(sim.every_crash(SEEDS))
    print(f"{points} crashes")
    assert points > len(SEEDS) * 60


@pytest.mark.slow
async def test_a_kill_at_any_call_and_a_power_loss_after_it_lose_nothing_that_was_shown() -> None:
    """LG42: what the next one finds is synced before it counts."""
    await crash_everywhere(sim.every_crash((None,)), keep_cache=True)


@pytest.mark.slow
async def test_the_crash_test_finds_a_reader_that_does_not_sync_what_others_named(monkeypatch) -> None:
    async def careless(self, path: str) -> None:
        pass

    monkeypatch.setattr(FileObjects, "settle", careless)
    with pytest.raises(AssertionError, match=r"gone|another entry"):
        await crash_everywhere(sim.every_crash((None,)), keep_cache=True)
