"""Long-lived work outlives its bugs, and nobody overlooks them (WT1, WT2, WT3)."""

import asyncio
import json
import threading
import urllib.error
import urllib.request

import pytest
from confluent_kafka import Producer

from dray.clock import ManualClock
from dray.errors import Unavailable
from dray.machine.sessions import KeepAlive
from dray.node.roles import broker as node_broker
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import MemoryCheckpoints
from dray.replica.fold import InlineFolder
from dray.replica.writer import Timing
from dray.tasks import telemetry
from dray.tasks.watch import LONGEST_PAUSE_S, Troubled, Watch
from dray.telemetry import configure_logging
from dray.testing import broker
from tests.replica.domain import new_log, replica_on

configure_logging()  # as a broker does; structlog's own way to show an exception takes half a second


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def pass_time(clock: ManualClock, seconds: float, step_ms: int = 250) -> None:
    for _ in range(int(seconds * 1000 / step_ms)):
        clock.advance(step_ms)
        await turns(5)


class Failing:
    """Work that fails until it is mended."""

    def __init__(self, clock: ManualClock, error: BaseException, after_s: float = 0.0) -> None:
        self._clock = clock
        self._error = error
        self._after_s = after_s
        self.mended = False
        self.began: list[float] = []

    async def run(self) -> None:
        self.began.append(self._clock.boot_ns() / 1e9)
        if self._after_s:
            await self._clock.sleep(self._after_s)
        if not self.mended:
            raise self._error
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError(11, "no process can be forked"), TimeoutError()])
async def test_what_fails_is_begun_again_later_each_time_and_counted(error):
    """WT1, WT2."""
    clock = ManualClock()
    watch, work = Watch(clock), Failing(clock, error)
    before = telemetry.DEATHS.labels("sweeper")._value.get()
    task = watch.start("sweeper", work.run)
    await turns()
    watch.check()  # once may happen
    await pass_time(clock, 200)
    pauses = [later - earlier for earlier, later in zip(work.began, work.began[1:], strict=False)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(pauses) == LONGEST_PAUSE_S
    assert telemetry.DEATHS.labels("sweeper")._value.get() - before == len(work.began)
    with pytest.raises(Troubled, match="sweeper"):
        watch.check()
    await watch.stop(task)
    assert task.cancelled()


async def test_the_third_failure_in_a_row_shows_and_a_good_while_heals():
    """WT2."""
    clock = ManualClock()
    watch, work = Watch(clock), Failing(clock, ZeroDivisionError())
    task = watch.start("sweeper", work.run)
    await turns()
    await pass_time(clock, 0.5)
    watch.check()
    await pass_time(clock, 1)
    with pytest.raises(Unavailable):
        watch.check()
    work.mended = True
    await pass_time(clock, 70)
    watch.check()
    await watch.stop(task)


async def test_a_pass_that_fails_every_hour_is_found_out_too():
    """WT2: an hour without a failure is no sign of health where each pass takes an hour."""
    clock = ManualClock()
    watch, work = Watch(clock), Failing(clock, ZeroDivisionError(), after_s=3_600)
    task = watch.start("sweeper", work.run)
    for _ in range(3):
        watch.check()
        await pass_time(clock, 3_605, step_ms=5_000)
    with pytest.raises(Troubled):
        watch.check()
    work.mended = True
    await pass_time(clock, 3 * 3_600, step_ms=10_000)
    watch.check()
    await watch.stop(task)


async def test_work_that_ends_or_whose_wait_is_cancelled_is_begun_again_but_a_stop_is_a_stop():
    """WT1."""
    clock = ManualClock()
    watch = Watch(clock)
    began = []

    async def ends() -> None:
        began.append("ends")

    async def waits() -> None:
        began.append("waits")
        never = asyncio.get_running_loop().create_future()
        never.cancel()
        await never

    tasks = [watch.start("ends", ends), watch.start("waits", waits)]
    await pass_time(clock, 4)
    assert began.count("ends") >= 3
    assert began.count("waits") >= 3
    for task in tasks:
        await watch.stop(task)
    count = len(began)
    await pass_time(clock, 100)
    assert len(began) == count


async def test_a_failure_stops_no_other_work():
    """WT3."""
    clock = ManualClock()
    watch, bad = Watch(clock), Failing(clock, ZeroDivisionError())
    beats = []

    async def beat() -> None:
        while True:
            beats.append(clock.boot_ns())
            await clock.sleep(1)

    tasks = [watch.start("bad", bad.run), watch.start("good", beat)]
    await pass_time(clock, 30)
    assert len(beats) >= 30
    with pytest.raises(Troubled) as caught:
        watch.check()
    assert "good" not in str(caught.value)
    for task in tasks:
        await watch.stop(task)


@pytest.mark.parametrize("error", [OSError(11, "no process can be forked"), TimeoutError()])
async def test_a_checkpointer_that_could_not_fork_makes_its_checkpoint_later(error):
    """WT1: before, one such failure ended it for ever, and the log grew without bound."""
    clock = ManualClock()
    log, store = await new_log(), MemoryCheckpoints()
    replica = replica_on(log, clock=clock, timing=Timing(ttl_ms=3_600_000, keepalive_ms=1_200_000))

    class Folder:
        failures = 2
        inner = InlineFolder(log, store)

        async def fold(self, upto: int) -> None:
            if self.failures:
                self.failures -= 1
                raise error
            await self.inner.fold(upto)

    watch = Watch(clock)
    async with replica.running():
        checkpointer = Checkpointer(replica, store, Folder(), clock, due_bytes=1)
        task = watch.start("checkpointer", checkpointer.run)
        for _ in range(300):
            await replica.propose(KeepAlive())
            await pass_time(clock, 1)
            if await store.confirmed():
                break
        else:
            raise AssertionError("no checkpoint, however long one waits")
        await watch.stop(task)


def ready(http: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


@pytest.mark.slow
def test_a_broker_with_a_bug_in_one_task_serves_on_and_says_that_it_is_not_ready(monkeypatch):
    """WT2, WT3: every other task, and every client, goes on."""

    async def buggy() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(node_broker, "_measure_lag", buggy)
    with broker() as dray:
        while True:  # until its third failure
            status, body = ready(dray.http)
            if status == 503:
                break
            threading.Event().wait(0.05)
        assert body["ready"] is False
        assert "loop-lag" in str(body["tasks"])
        assert body["metadata"] == body["store"] == "ok"
        producer = Producer({"bootstrap.servers": dray.bootstrap})
        producer.produce("t", b"still here")
        assert producer.flush(60) == 0
        with urllib.request.urlopen(f"http://{dray.http}/metrics", timeout=30) as answer:
            assert 'dray_task_deaths_total{task="loop-lag"}' in answer.read().decode()
