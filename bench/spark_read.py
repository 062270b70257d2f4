"""The Spark source: a gigabyte to a noop sink, and planning over a million index rows.

The topic lies in a running Dray: 1 KiB records over 16 partitions, batched by
librdkafka; no two values are alike, and half of each is noise: of equal ones
Parquet would keep one. Spark's own Kafka source reads it through that broker,
ours reads the objects, and one process without Spark decodes the same objects.
"""

import asyncio
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Final

from bench._brokers import ROOT, BadRun, Samples, cpu_seconds, create_topic, produce_values
from bench._spark_rows import fill
from bench._targets import DRAY, Running, Target, running
from bench.harness import Absolute, Case, Comparison, Report, sized
from dray.pipeline.options import parse_options
from dray.pipeline.planning import plan_read
from tools.peers.process import run, spawn, stop
from tools.peers.spark_kafka import jars

OWN: Final = Target(name="dray for spark", start=DRAY.start)
"""A broker with this one topic: bare decoding reads all of its objects."""
PARTITIONS: Final = 16
RECORD_BYTES: Final = 1024
RECORDS: Final = sized(976_563, 100_000)
BYTES: Final = RECORDS * RECORD_BYTES
ROWS: Final = sized(1_000_000, 20_000)
DRIVER_MB: Final = 200.0
PLANNER_MB: Final = 400.0


class Talker:
    """A process that answers each line with a line of JSON."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        atexit.register(self.close)

    def ask(self, line: str) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        if not said:
            raise BadRun(f"{self._process.args} ended with {self._process.wait()}")
        answer: dict[str, float] = json.loads(said)
        return answer

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


@cache
def filled() -> tuple[Running, str]:
    """A broker with the topic in it."""
    broker = running(OWN)
    topic = create_topic(broker, PARTITIONS)
    produce_values(broker.address, [(topic, partition) for partition in range(PARTITIONS)], RECORDS, RECORD_BYTES)
    return broker, topic


@cache
def spark() -> Talker:
    broker, topic = filled()
    os.environ["DRAY_BENCH_RECORDS"] = str(RECORDS)
    found = Talker(
        "bench._sparkload", str(broker.directory), broker.address, topic, ",".join(str(jar) for jar in jars())
    )
    for source in ("dray", "kafka"):
        _check(found.ask(f"check {source}"))
    return found


@cache
def decoder() -> Talker:
    broker, _ = filled()
    return Talker("bench._decodeload", str(broker.directory / "objects" if broker.directory else ""))


def _check(answer: dict[str, float]) -> None:
    if (answer["records"], answer["bytes"]) != (RECORDS, BYTES):
        raise BadRun(f"{RECORDS} records of {RECORD_BYTES} bytes are there, and this was read: {answer}")


def _read(source: str, samples: Samples) -> dict[str, float]:
    """One run of Spark; what was spent is noted per GB."""
    broker, _ = filled()
    before = cpu_seconds(broker.pid)
    answer = spark().ask(source)
    answer["broker_s"] = cpu_seconds(broker.pid) - before
    samples.add(f"{source}: MB/s", BYTES / answer["seconds"] / 1e6)
    for part in ("jvm_s", "python_s", "broker_s"):
        samples.add(f"{source}: {part.removesuffix('_s')} CPU-s/GB", answer[part] / (BYTES / 1e9))
    samples.add(f"{source}: Spark CPU-s/GB", (answer["jvm_s"] + answer["python_s"]) / (BYTES / 1e9))
    return answer


def _per_cpu(source: str, samples: Samples) -> float:
    """MB for each CPU second, that of the broker included."""
    answer = _read(source, samples)
    return BYTES / 1e6 / (answer["jvm_s"] + answer["python_s"] + answer["broker_s"])


def _own_part(samples: Samples) -> float:
    """MB for each CPU second that a read costs beyond what Spark spends on rows that are there already."""
    whole, floor = _read("dray", samples), _read("ready", samples)
    own_s = sum(whole[part] - floor[part] for part in ("jvm_s", "python_s"))
    return BYTES / 1e6 / max(own_s, 0.01 * (whole["jvm_s"] + whole["python_s"]))  # noise may take all of it


def _decode(samples: Samples) -> float:
    answer = decoder().ask("go")
    _check(answer)
    samples.add("decode: MB/s", BYTES / answer["seconds"] / 1e6)
    samples.add("decode: CPU-s/GB", answer["python_s"] / (BYTES / 1e9))
    return BYTES / 1e6 / answer["python_s"]


def _driver_mb() -> float:
    return spark().ask("dray")["driver_mb"]


def _planner_mb() -> float:
    """The most that a process had which made one plan and did nothing else."""
    owner()
    return float(run([sys.executable, "-m", "bench._spark_rows", str(million_rows())], directory=ROOT))


@cache
def million_rows() -> Path:
    root = Path(tempfile.mkdtemp(prefix="dray-bench-rows-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    asyncio.run(fill(root, ROWS))
    return root


class Owner:
    """A broker on the directory of a million rows, so that pins are taken as beside any broker."""

    def __init__(self) -> None:
        program = Path(sys.executable).with_name("drayd")
        command = [
            program,
            "dev",
            "--data",
            million_rows(),
            "--kafka",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "",
        ]
        self._process = spawn(
            [*command, "--set", "logging.level=error", "--set", "compaction.enabled=false"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith(b"ready "):
            raise BadRun(f"the broker ended with {self._process.wait()}")
        atexit.register(stop, self._process)


@cache
def owner() -> Owner:
    return Owner()


def planning() -> float:
    """Seconds from the options to the tasks: pin, fold from the checkpoint, plan.

    Spark plans in a process that has the code loaded, and so does this; the
    process that holds the pins is started by the first plan of a driver.
    """
    owner()
    options = parse_options({"path": str(million_rows()), "subscribe": "t"})
    began = time.perf_counter()
    plan = asyncio.run(plan_read(options))
    took = time.perf_counter() - began
    planned = sum(len(piece.bases) for pieces in plan.tasks for piece in pieces)
    if planned < ROWS:
        raise BadRun(f"{planned} rows are in the plan")
    return took


def cases() -> list[Case]:
    samples = Samples()
    return [
        Absolute("pin, fold and plan over 1,000,000 rows", planning, mark=3.0, unit="s", at_most=True),
        Comparison(
            "1 GB to noop, against Spark's Kafka source",
            subject=lambda: BYTES / 1e6 / _read("dray", samples)["seconds"],
            peer=lambda: BYTES / 1e6 / _read("kafka", samples)["seconds"],
            mark=2.0,
            unit="MB/s",
            note="1 KiB records, 16 partitions, local[2]",
        ),
        Comparison(
            "our part of a read, against bare decoding",
            subject=lambda: _own_part(samples),
            peer=lambda: _decode(samples),
            mark=1.0,
            unit="MB per CPU-second",
            note="the CPU of a read less that of ready batches; JVM, Python workers and planners are counted",
        ),
        Comparison(
            "a read, against Spark's Kafka source",
            subject=lambda: _per_cpu("dray", samples),
            peer=lambda: _per_cpu("kafka", samples),
            mark=2.0,
            unit="MB per CPU-second",
            note="the broker's included",
        ),
        Comparison(
            "partition and offset alone, against all columns",
            subject=lambda: _per_cpu("narrow", samples),
            peer=lambda: _per_cpu("dray", samples),
            mark=1 / 0.6,
            unit="MB per CPU-second",
            note="at most 0.6 of the CPU",
        ),
        Comparison(
            "a read, against Spark's own of the same rows in Parquet",
            subject=lambda: _per_cpu("dray", samples),
            peer=lambda: _per_cpu("parquet", samples),
            mark=0.5,
            unit="MB per CPU-second",
        ),
        Report("what the runs spent", run=samples.medians),
        Absolute("memory of planning 1,000,000 rows", _planner_mb, mark=PLANNER_MB, unit="MB", at_most=True),
        Absolute("memory of the driver's Python", _driver_mb, mark=DRIVER_MB, unit="MB", at_most=True),
    ]
