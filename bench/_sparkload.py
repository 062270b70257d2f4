"""A Spark driver that reads a topic to the noop sink when it is told to: `python -m bench._sparkload`.

    arguments   DIRECTORY BOOTSTRAP TOPIC [JARS]
    stdin       dray | narrow | kafka | parquet | ready | check dray | check kafka, a line each
    stdout      a line of JSON each

It lives through all runs, so that they take turns on one warm JVM. What it
spent is the CPU of its whole tree: the JVM, Python's workers and planners, and
the process that holds the pins, which is nobody's child.

`narrow` asks for two columns; `parquet` reads the same rows from files that Spark itself wrote of them.
`ready` is a source that has nothing to do: it hands over the same Arrow batch
again and again, as many records as there are. What that costs is Spark's own.
"""

import contextlib
import json
import os
import sys
import time
from array import array
from pathlib import Path
from typing import NamedTuple

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dray.pipeline.reading import PLAIN_SCHEMA
from dray.pipeline.session import build_session
from dray.pipeline.source import COLUMNS

TASKS = 8
BATCH_ROWS = 4_096


class Ready(DataSource):
    """Batches that need neither reading nor decoding."""

    @classmethod
    def name(cls):
        return "ready"

    def schema(self):
        return StructType([*COLUMNS])

    def reader(self, schema):
        return ReadyReader(int(self.options["records"]))


class ReadyReader(DataSourceReader):
    def __init__(self, records):
        self._batches = round(records / BATCH_ROWS / TASKS)

    def partitions(self):
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition):
        batch = ready_batch(BATCH_ROWS)
        for _ in range(self._batches):
            yield batch


def ready_batch(rows):
    """Records of 1 KiB, of plain buffers: of values of Python pyarrow would make them with pandas, half a second."""
    import pyarrow as pa

    def numbers(code, kind, values):
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(array(code, values))])

    def same(kind, content):
        ends = array("i", range(0, (rows + 1) * len(content), len(content)))
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(content * rows)])

    times = numbers("q", pa.int64(), [1] * rows).view(pa.timestamp("us", tz="UTC"))
    columns = {
        "key": pa.nulls(rows, pa.binary()),
        "value": same(pa.binary(), bytes(1024)),
        "topic": same(pa.string(), b"bench-0"),
        "partition": numbers("i", pa.int32(), [1] * rows),
        "offset": numbers("q", pa.int64(), range(rows)),
        "timestamp": times,
        "timestampType": numbers("i", pa.int32(), [0] * rows),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in PLAIN_SCHEMA.names], schema=PLAIN_SCHEMA)


def read(spark: SparkSession, source: str, directory: str, bootstrap: str, topic: str) -> DataFrame:
    ours = spark.read.format("dray").option("subscribe", topic)
    if source == "dray":
        return ours.load(directory)
    if source == "narrow":
        return ours.schema("partition int, offset long").load(directory)
    if source == "ready":
        return spark.read.format("ready").option("records", os.environ["DRAY_BENCH_RECORDS"]).load()
    if source == "parquet":
        written = f"{directory}.parquet"
        if not Path(written).exists():
            ours.load(directory).write.parquet(written)
        return spark.read.parquet(written)
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()


def tree() -> list[psutil.Process]:
    """This process and all below it."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


class Clocked(NamedTuple):
    """CPU seconds of one process of the tree."""

    kind: str
    own: float
    children: float
    """Of those below it that have ended, and that it has waited for."""
    parent: int


def spent() -> dict[int, Clocked]:
    """CPU seconds so far of every process."""
    found = {}
    for process in tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            times, kind = process.cpu_times(), "jvm_s" if "java" in process.name() else "python_s"
            ended = times.children_user + times.children_system
            found[process.pid] = Clocked(kind, times.user + times.system, ended, process.ppid())
    return found


def used(before: dict[int, Clocked], after: dict[int, Clocked]) -> dict[str, float]:
    """CPU seconds between two looks, of the JVM and of Python.

    Who ended in between is in no sum any more, unless its parent has waited for it: Spark's daemon does not wait for
    workers that it ends after an idle minute. What they had spent before must not be taken from what was spent since.
    """
    seconds = {"jvm_s": 0.0, "python_s": 0.0}
    for found in after.values():
        seconds[found.kind] += found.own
        seconds["python_s"] += found.children
    for pid, found in before.items():
        if pid in after or _was_waited_for(found, before, after):
            seconds[found.kind] -= found.own
            seconds["python_s"] -= found.children
    return seconds


def _was_waited_for(ended: Clocked, before: dict[int, Clocked], after: dict[int, Clocked]) -> bool:
    parents = before.get(ended.parent), after.get(ended.parent)
    return None not in parents and parents[1].children - parents[0].children >= ended.own


def resident(directory: str) -> dict[str, float]:
    """Megabytes of the driver: its JVM runs the tasks as well; its Python is this process."""
    sizes = {"jvm_mb": 0.0, "driver_mb": psutil.Process().memory_info().rss / 1e6, "others_mb": 0.0}
    for process in tree()[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            kind = "jvm_mb" if "java" in process.name() else "others_mb"
            sizes[kind] = max(sizes[kind], process.memory_info().rss / 1e6)
    return sizes


def run(frame: DataFrame, directory: str) -> dict[str, float]:
    before, began = spent(), time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    took, after = time.perf_counter() - began, spent()
    return {"seconds": took, **used(before, after), **resident(directory)}


def check(frame: DataFrame) -> dict[str, float]:
    """What there is to be read."""
    (row,) = frame.selectExpr("count(*) AS n", "sum(length(value)) AS size").collect()
    return {"records": row.n, "bytes": row.size or 0}


def main(directory: str, bootstrap: str, topic: str, jars: str = "") -> None:
    config = {"spark.jars": jars} if jars else {}
    spark = build_session("bench", master="local[2,4]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Ready)
    for line in sys.stdin:
        *checked, source = line.split()
        frame = read(spark, source, directory, bootstrap, topic)
        print(json.dumps(check(frame) if checked else run(frame, directory)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()), *sys.argv[2:])
