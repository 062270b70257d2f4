"""Compaction of a gigabyte: 64 streams of 8 topics, 1 KiB values of which half is noise, from objects to the index.

A whole cycle is measured: tasks, the job, the commits of eight tables, and the swaps. The peers are one process
without Spark that does the very same, and Spark's own `df.write`, which brings nothing into a table or an index.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from bench._brokers import BadRun, Samples, create_topic, produce_values
from bench._targets import Running, ready_address
from bench.harness import Case, Comparison, Report, sized
from bench.spark_read import Talker
from tools.peers.process import spawn, stop

TOPICS: Final = 8
PARTITIONS: Final = 8
RECORD_BYTES: Final = 1_024
RECORDS: Final = sized(1_024_000, 64_000)
BYTES: Final = RECORDS * RECORD_BYTES


@cache
def filled() -> tuple[Path, str]:
    """The directory of a broker that has ended, with the topics in it; and their names."""
    root = Path(tempfile.mkdtemp(prefix="dray-bench-compaction-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    command = [Path(sys.executable).with_name("drayd"), "dev", "--data", root / "data", "--kafka", "127.0.0.1:0"]
    with (root / "drayd.log").open("wb") as log:
        process = spawn(
            [*command, "--http", "127.0.0.1:0", "--grpc", "", "--set", "compaction.enabled=false"],
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        broker = Running(address=ready_address(process, root / "drayd.log"), pid=process.pid, ready_s=0)
        names = [create_topic(broker, PARTITIONS) for _ in range(TOPICS)]
        places = [(name, partition) for partition in range(PARTITIONS) for name in names]
        produce_values(broker.address, places, RECORDS, RECORD_BYTES, keyed=True)
    finally:
        stop(process)
    return root / "data", ",".join(names)


@cache
def compactor() -> Talker:
    directory, names = filled()
    os.environ["DRAY_BENCH_TOPICS"] = names
    return Talker("bench._compactload", str(directory))


def _run(side: str, samples: Samples) -> float:
    """MB of values a second; what was spent is noted."""
    answer = compactor().ask(side)
    if answer["records"] != RECORDS:
        raise BadRun(f"{RECORDS} records are there, and {side} saw {answer}")
    total = answer["jvm_s"] + answer["python_s"]
    samples.add(f"{side}: MB/s", BYTES / answer["seconds"] / 1e6)
    samples.add(f"{side}: CPU-s/GB", total / (BYTES / 1e9))
    if side != "pyarrow":
        samples.add(f"{side}: share of the JVM in it, %", 100 * answer["jvm_s"] / total)
    if side != "write":
        samples.add(f"{side}: files", answer["files"])
        samples.add(f"{side}: bytes of files, MB", answer["file_bytes"] / 1e6)
    return BYTES / answer["seconds"] / 1e6


def cases() -> list[Case]:
    samples = Samples()
    work = f"{BYTES / 1e9:.2g} GB in 64 streams of 8 topics, two cores"
    return [
        Comparison(
            "compaction, against one process without Spark", lambda: _run("dray", samples),
            lambda: _run("pyarrow", samples), mark=1.5, unit="MB/s", note=work,
        ),
        Comparison(
            "compaction, against df.write", lambda: _run("dray", samples), lambda: _run("write", samples), mark=3.0,
            unit="MB/s", note=work,
        ),
        Report("what the cycles spent", run=samples.medians),
    ]  # fmt: skip
