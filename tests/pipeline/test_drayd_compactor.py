"""`drayd compactor`, and the compactor of `drayd dev`, as processes with Spark."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dray.machine.machine import Machine
from dray.machine.tasks import TaskState
from tests.pipeline.compacting import Running, compactor
from tests.pipeline.parts import Broker, broker_process, consumed, create, numbered, produce, wait_until

pytestmark = pytest.mark.slow  # each starts a Spark of its own

MASTER = "compaction.master=local[2,4]"
DRAYD = str(Path(sys.executable).parent / "drayd")


def table_of(directory, topic):
    async def look():
        async with compactor(directory) as running:
            return running.rows(topic)

    return asyncio.run(look())


def compactors(broker: Broker) -> set[psutil.Process]:
    """Every process of the compactor that a broker has started, with its JVM and workers."""
    started = psutil.Process(broker.pid).children()
    found = {one for one in started if "dray.pipeline.compactor" in _command(one)}
    return found | {child for one in found for child in one.children(recursive=True)}


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def drayd(*arguments: str, code: int = 0) -> dict[str, object]:
    """What a command answers as JSON."""
    command = [DRAYD, *arguments, "--set", MASTER, "--format", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def test_one_cycle_compacts_what_is_due_and_says_what_it_did(tmp_path):
    """R-143, R-164"""
    directory = tmp_path / "data"
    with broker_process(directory) as broker:
        create(broker.bootstrap, "orders", partitions=2)
        produce(broker.bootstrap, "orders", numbered(0, 400, 2))
        told = drayd("compactor", "--data", str(directory), "--once", "--set", "compaction.max_age=0s")
        (orders,) = told["topics"]
        assert (orders["topic"], orders["partitions"], orders["records"], orders["files"]) == ("orders", 2, 400, 2)
        assert (orders["state"], told["failed"]) == ("done", 0)
        assert table_of(directory, "orders") == consumed(broker.bootstrap, "orders", 2)
        produce(broker.bootstrap, "orders", numbered(400, 20, 2))
        status = drayd("admin", "table", "status", "orders", "--data", str(directory))
        assert (status["rows"], status["files"], status["foreign"], status["problem"]) == (400, 2, [], "")
        assert [(one["log_end"], one["table_end"], one["lag_records"]) for one in status["partitions"]] == [
            (210, 200, 10)
        ] * 2
        refused = drayd("admin", "table", "compact", "nope", "--data", str(directory), code=1)
        assert "no such topic" in json.dumps(refused)


def test_the_compactor_of_drayd_dev_comes_when_something_is_due_and_dies_with_it(tmp_path):
    """R-143: also when `drayd dev` is killed."""
    directory = tmp_path / "data"
    settings = (MASTER, "compaction.enabled=true", "compaction.max_age=1s", "compaction.look=1s")
    with broker_process(directory, *settings) as broker:
        create(broker.bootstrap, "orders")
        assert not compactors(broker), "nothing is due"
        produce(broker.bootstrap, "orders", numbered(0, 100))
        wait_until(lambda: len(table_of(directory, "orders")) == 100, limit_s=400)
        assert table_of(directory, "orders") == consumed(broker.bootstrap, "orders", 1)
        mine = compactors(broker)
        assert mine
        broker.kill()
        wait_until(lambda: not any(process.is_running() for process in mine), limit_s=120)


async def come_to(machine: Machine, state: TaskState) -> None:
    """Until a task has that state; or has ended, because its last states were too short to be seen."""
    while not machine.tasks.by_stream:
        await asyncio.sleep(0.002)
    while machine.tasks.by_stream and not any(task.state >= state for task in machine.tasks.by_stream.values()):
        await asyncio.sleep(0.002)


async def hurt(running: Running, broker: Broker, state: TaskState, number: signal.Signals) -> None:
    """Kill the compactor of `drayd dev`, or put it to sleep until another one has done its work."""
    machine = running.replicas[0].machine
    await come_to(machine, state)
    victims = [one for one in psutil.Process(broker.pid).children() if "compactor" in _command(one)]
    for one in victims:
        one.send_signal(number)
    while any(task.session in machine.sessions.live for task in machine.tasks.by_stream.values()):
        await asyncio.sleep(0.05)
    await running.cycle("orders")
    for one in victims if number == signal.SIGSTOP else ():
        one.send_signal(signal.SIGCONT)


@pytest.mark.long
def test_compactors_that_are_killed_and_put_to_sleep_double_nothing(tmp_path):
    """R-152, R-146, T13: with Spark, when their tasks have come to each state; one that sleeps is overtaken."""
    directory = tmp_path / "data"
    settings = (MASTER, "compaction.enabled=true", "compaction.max_age=1s", "compaction.look=1s")
    moments = [(state, number) for state in TaskState for number in (signal.SIGKILL, signal.SIGSTOP)]

    async def story(broker: Broker):
        async with compactor(directory) as running:
            for at, (state, number) in enumerate(moments):
                await asyncio.to_thread(produce, broker.bootstrap, "orders", numbered(400 * at, 400, 4))
                await hurt(running, broker, state, number)
            while running.compactor.due() or running.replicas[0].machine.tasks.by_stream:
                await running.cycle("orders")
                await asyncio.sleep(0.5)
            return running.rows("orders")

    with broker_process(directory, *settings, "session.ttl=6s", "session.keepalive=2s") as broker:
        create(broker.bootstrap, "orders", partitions=4)
        rows = asyncio.run(story(broker))
        assert len(rows) == 400 * len(moments)
        assert rows == consumed(broker.bootstrap, "orders", 4)


def test_what_is_missing_or_wrong_is_told(tmp_path):
    """No directory; a catalog that is none."""
    for extra, code, told in (
        (["--data", str(tmp_path)], 1, "not a data directory"),
        (["--data", str(tmp_path), "--set", "table.catalog=nope"], 2, "expected sqlite"),
        (["--topic", "orders"], 2, "--once"),
    ):
        ran = subprocess.run([DRAYD, "compactor", *extra], capture_output=True, text=True, timeout=200, check=False)
        assert (ran.returncode, told in ran.stderr) == (code, True), ran.stderr
