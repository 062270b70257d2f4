"""A compactor that does one whole cycle when it is told to: `python -m bench._compactload DIRECTORY`.

    stdin       dray | pyarrow | write, a line each
    stdout      a line of JSON each

Each cycle has a copy of the directory, whose objects are links; no broker runs on it. `dray` lets Spark write the
files, `pyarrow` lets this process alone do it, and both bring them into tables and the index; `write` is what Spark's
own users write: `spark.read.format("dray") ... write.parquet`, with no table and no index after it. One warm Spark
serves all runs.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from bench._sparkload import spent, used
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.node.reaching import reach
from dray.objects.files import FileObjects
from dray.offload import InlineOffload, ThreadOffload
from dray.pipeline.compactor.cycle import Compactor, RunJobs
from dray.pipeline.compactor.saga import Saga
from dray.pipeline.compactor.spark import SparkJobs
from dray.pipeline.compactor.worker import FileJob, JobOutcome, write_files
from dray.pipeline.opening import effects, read_directory
from dray.tables.catalog import open_catalog
from dray.tables.due import DueRules
from dray.tables.io import bound_store
from dray.tables.table import TopicTables

ALL = DueRules(age_ms=0, size=0, file_size=128 << 20)
MASTER = "local[2,4]"


@contextmanager
def copied(directory: Path) -> Iterator[Path]:
    """The directory once more: what is written once is linked, what changes is copied."""
    with tempfile.TemporaryDirectory(prefix="dray-bench-cycle-", dir=directory.parent) as made:
        copy = Path(made) / "data"

        def link(source: str, target: str) -> str:
            if "/objects/" in source:
                os.link(source, target)
                return target
            return shutil.copy2(source, target)

        skipped = shutil.ignore_patterns("*.sock", "*.lock")
        shutil.copytree(directory, copy, copy_function=link, ignore=skipped)
        yield copy


async def cycle(directory: Path, spark: SparkJobs | None) -> dict[str, float]:
    """One cycle of a compactor: how long it took, and what it did."""
    found, identity = read_directory(str(directory))
    address = f"file://{found.objects}"

    async def objects() -> FileObjects:
        return FileObjects(found.objects, LocalDisk(), InlineOffload())

    def alone(jobs: Sequence[FileJob]) -> list[JobOutcome]:
        return list(write_files(address, jobs, 0))

    run: RunJobs = alone
    if spark is not None:
        spark.address, run = address, spark
    async with AsyncExitStack() as stack:
        reached = await stack.enter_async_context(reach(found, effects()))
        replicas = {}
        for domain in found.domains(LocalDisk()):
            replicas[domain] = await stack.enter_async_context(reached.following(domain, "compactor", effects()))
        store = stack.enter_context(bound_store(address, objects))
        tables = TopicTables(open_catalog("sqlite", found.root, store), store, SystemEntropy())
        offload = ThreadOffload(4)
        stack.callback(offload.close)
        made = Compactor(
            replicas, Saga(replicas, await objects(), tables=True), tables, run, ALL, SystemClock(), offload,
            1 << 40, identity.cluster_id,
        )  # fmt: skip
        began = time.perf_counter()
        tallies = (await made.run()).values()
        took = time.perf_counter() - began
    failures = [failure for tally in tallies for failure in tally.failures]
    if failures:
        raise RuntimeError(f"a cycle failed: {failures[:3]}")
    return {
        "seconds": took, "records": sum(tally.records for tally in tallies), "bytes": sum(t.bytes for t in tallies),
        "files": sum(tally.files for tally in tallies), "file_bytes": sum(tally.file_bytes for tally in tallies),
    }  # fmt: skip


def write(spark: SparkSession, directory: Path) -> dict[str, float]:
    """What one would write without a compactor; a file for each partition, compressed alike."""
    topics = os.environ["DRAY_BENCH_TOPICS"]
    frame = spark.read.format("dray").option("subscribe", topics).option("includeHeaders", "true").load(str(directory))
    target = directory.parent / "written"
    began = time.perf_counter()
    frame.write.partitionBy("topic", "partition").option("compression", "zstd").parquet(str(target))
    took = time.perf_counter() - began
    rows = spark.read.parquet(str(target)).count()
    return {"seconds": took, "records": rows}


def main(directory: Path) -> None:
    jobs = SparkJobs("", MASTER, SystemClock())
    jobs.use(lambda session: session.range(1).count())
    for line in sys.stdin:
        side = line.strip()
        with copied(directory) as copy:
            before = spent()
            if side == "write":
                answer = jobs.use(lambda session: write(session, copy))
            else:
                answer = asyncio.run(cycle(copy, jobs if side == "dray" else None))
            after = spent()
        print(json.dumps(answer | used(before, after)), flush=True)
    jobs.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
