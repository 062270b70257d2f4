"""A machine whose clock is wrong at a start, on the embedded default: nothing of the present is deleted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dray.cli.settings import SECTIONS
from dray.clock import SystemClock, WallMs
from dray.config import load, parse_set
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.machine.sessions import KeepAlive
from dray.node import effects as node_effects
from dray.node import store as node_store
from dray.node.directory import DataDirectory
from dray.node.recovery import recover
from dray.node.roles.broker import RunningBroker, run_broker
from dray.retention.telemetry import LOG_AHEAD
from tests.golden.asking import Asker, batch

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
STEP_MS = 50 * MINUTE_MS
"""Less than an hour: more would be a jump of its own."""


class Kernel:
    """The clock of one machine: broker, file system and clients all read it."""

    def __init__(self) -> None:
        self.wrong_by_ms = 0
        self.lived_ms = 0

    def wall_ms(self) -> WallMs:
        return WallMs(SystemClock().wall_ms() + self.lived_ms + self.wrong_by_ms)

    def boot_ns(self) -> int:
        return SystemClock().boot_ns() + self.lived_ms * 1_000_000

    async def sleep(self, seconds: float) -> None:
        await SystemClock().sleep(min(seconds, 0.2))

    async def file_date(self, *_: object) -> int:
        return self.wall_ms()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(node_effects, "SystemClock", lambda: kernel)
    monkeypatch.setattr(node_store, "store_date", kernel.file_date)
    return kernel


class Life:
    """One start of the broker."""

    def __init__(self, running: RunningBroker, ask: Asker, kernel: Kernel) -> None:
        self.machine = running.plane.domains.catalog.machine
        self._catalog = running.plane.domains.catalog
        self.ask = ask
        self._kernel = kernel

    async def produce(self, topic: str) -> int:
        """One record, stamped by this machine's clock."""
        answer = await self.ask.produce(topic, batch(b"v", at=self._kernel.wall_ms()))
        assert answer.error_code == 0
        return int(answer.base_offset)

    async def live(self, ms: int) -> None:
        """Let time pass while the broker runs, until retention has looked at every topic."""
        await self.pass_by(ms)
        await self._look()

    async def pass_by(self, ms: int) -> None:
        while ms > 0:
            step = min(ms, STEP_MS)
            self._kernel.lived_ms += step
            await self._catalog.propose(KeepAlive())
            ms -= step

    def warned(self) -> bool:
        """Was it told that the log is ahead of the clock?"""
        return bool(LOG_AHEAD.labels("0")._value.get() > DAY_MS / 1000)

    async def _look(self) -> None:
        """A record that may go at once is gone, so what else was due then has gone too: streams go in order."""
        if self._catalog.machine.topics.named("canary") is None:
            await self.ask.create("canary", retention_ms="1")
        for _ in range(2):
            offset = await self.produce("canary")
            self._kernel.lived_ms += 1_000
            async with asyncio.timeout(60):
                while await self.start("canary") <= offset:
                    await self._catalog.propose(KeepAlive())
                    await asyncio.sleep(0.05)

    async def start(self, topic: str) -> int:
        return int((await self.ask.offset_at(topic, -2)).offset)


@asynccontextmanager
async def life(path: Path, kernel: Kernel, **settings: str) -> AsyncIterator[Life]:
    given = {
        "broker.data": str(path), "kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0",
        "grpc.listen": "",
        "retention.interval": "1s", **{key.replace("__", "."): value for key, value in settings.items()},
    }  # fmt: skip
    config = load(SECTIONS, environ={}, overrides=[parse_set(f"{key}={value}") for key, value in given.items()])
    async with run_broker(config) as running, Asker(str(running.kafka)) as ask:
        yield Life(running, ask, kernel)


@pytest.mark.parametrize("wrong_by_ms", [10 * YEAR_MS, 8 * DAY_MS])
async def test_one_start_with_a_clock_that_is_ahead_deletes_nothing(tmp_path, kernel, wrong_by_ms):
    """RT20: nor does it later, when the clock is right again."""
    async with life(tmp_path, kernel) as first:
        await first.ask.create("orders")
        assert await first.produce("orders") == 0
    kernel.wrong_by_ms = wrong_by_ms
    async with life(tmp_path, kernel) as wrong:
        assert await wrong.produce("orders") == 1
        await wrong.live(3 * STEP_MS)
        assert await wrong.start("orders") == 0
    kernel.wrong_by_ms = 0
    async with life(tmp_path, kernel) as right:
        assert await right.produce("orders") == 2
        await right.live(3 * STEP_MS)
        assert await right.start("orders") == 0


async def test_a_log_that_ran_ahead_keeps_the_present_and_recover_brings_its_time_back(tmp_path, kernel):
    """RT20, RN1: an operator vouched for a clock that was ten years ahead."""
    async with life(tmp_path, kernel) as first:
        await first.ask.create("orders", retention_ms=str(4 * STEP_MS))
        assert await first.produce("orders") == 0
    kernel.wrong_by_ms = 10 * YEAR_MS
    async with life(tmp_path, kernel, broker__accept_clock="true") as wrong:
        assert await wrong.produce("orders") == 1
        assert wrong.machine.time_ms > kernel.wall_ms() - DAY_MS
    kernel.wrong_by_ms = 0
    async with life(tmp_path, kernel) as right:
        assert await right.produce("orders") == 2
        await right.pass_by(6 * STEP_MS)
        assert await right.produce("orders") == 3
        async with asyncio.timeout(60):
            while not right.warned():
                await asyncio.sleep(0.05)
        assert await right.start("orders") == 0
    recovered = await asyncio.to_thread(recover, DataDirectory(tmp_path), 0, LocalDisk(), SystemEntropy(), kernel)
    assert recovered.set_back_ms > 9 * YEAR_MS
    async with life(tmp_path, kernel) as back:
        assert abs(back.machine.time_ms - kernel.wall_ms()) < DAY_MS
        assert await back.produce("orders") == 4
        await back.live(2 * STEP_MS)
        assert await back.start("orders") == 1  # what has a time of the future waits for the one behind it
        await back.live(3 * STEP_MS)
        assert await back.start("orders") == 5
        assert await back.produce("orders") == 5
