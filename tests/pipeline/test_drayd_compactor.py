"""`drayd compactor`, and the compactor of `drayd dev`, as processes with Spark."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.pipeline.compacting import compactor
from tests.pipeline.parts import Broker, broker_process, consumed, create, numbered, produce, wait_until

pytestmark = pytest.mark.slow  # each starts a Spark of its own

MASTER = "compaction.master=local[2,4]"
DRAYD = str(Path(sys.executable).parent / "drayd")
DRAY = str(Path(sys.executable).parent / "dray")


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


def drayd(*arguments: str, code: int = 0, program: str = DRAYD) -> dict[str, object]:
    """What a command answers as JSON."""
    command = [program, *arguments, "--set", MASTER, "--format", "json"]
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
        assert drayd("table", "wait", "orders", "--data", str(directory), "--offset", "199", program=DRAY)["reached"]
        refused = drayd("table", "compact", "nope", "--data", str(directory), code=1, program=DRAY)
        assert "no such topic" in json.dumps(refused)


def test_the_compactor_of_drayd_dev_comes_when_something_is_due_leaves_when_idle_and_dies_with_it(tmp_path):
    """R-143: also when `drayd dev` is killed."""
    directory = tmp_path / "data"
    settings = (MASTER, "compaction.enabled=true", "compaction.max_age=1s", "compaction.look=1s", "compaction.idle=1s")
    with broker_process(directory, *settings) as broker:
        create(broker.bootstrap, "orders")
        assert not compactors(broker), "nothing is due"
        produce(broker.bootstrap, "orders", numbered(0, 100))
        wait_until(lambda: len(table_of(directory, "orders")) == 100, limit_s=400)
        assert table_of(directory, "orders") == consumed(broker.bootstrap, "orders", 1)
        wait_until(lambda: not compactors(broker), limit_s=120)
        produce(broker.bootstrap, "orders", numbered(100, 100))
        wait_until(lambda: any("java" in _command(process) for process in compactors(broker)), limit_s=120)
        mine = compactors(broker)
        broker.kill()
        wait_until(lambda: not any(process.is_running() for process in mine), limit_s=120)


BARE = """
import sys
from dray.cli import compacting, main
compacting.NEEDED = ("pyspark", "no_such_package")
sys.exit(main.main())
"""


def test_where_the_extra_is_missing_one_line_says_so_and_everything_else_goes_on(tmp_path):
    quick = ("compaction.enabled=true", "compaction.max_age=0s", "compaction.look=1s")
    places = ("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "")
    command = [sys.executable, "-c", BARE, "dev", "--data", str(tmp_path / "data"), *places]
    log = tmp_path / "log"

    def warnings() -> list[str]:
        return [line for line in log.read_text().splitlines() if "no_such_package" in line]

    with log.open("wb") as stderr:
        command += [word for setting in quick for word in ("--set", setting)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        bootstrap = process.stdout.readline().split()[1].removeprefix("kafka=")
        produce(bootstrap, "orders", numbered(0, 10))
        wait_until(warnings)
        produce(bootstrap, "orders", numbered(10, 10))
        assert len(consumed(bootstrap, "orders", 1)) == 20
        (warning,) = warnings()
        assert "dray[spark]" in warning
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert len(warnings()) == 1


def test_what_is_missing_or_wrong_is_told(tmp_path):
    """No directory; a catalog that is none."""
    for extra, code, told in (
        (["--data", str(tmp_path)], 1, "not a data directory"),
        (["--data", str(tmp_path), "--set", "table.catalog=nope"], 2, "expected sqlite"),
        (["--topic", "orders"], 2, "--once"),
    ):
        ran = subprocess.run([DRAYD, "compactor", *extra], capture_output=True, text=True, timeout=200, check=False)
        assert (ran.returncode, told in ran.stderr) == (code, True), ran.stderr
