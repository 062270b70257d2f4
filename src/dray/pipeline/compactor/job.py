"""One job of Spark over all files of a cycle.

A job costs some milliseconds and so does each of its tasks: files are packed
by bytes into a few tasks for each core, the largest first.
"""

import heapq
import pickle
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from dray.pipeline.compactor.worker import SPARK_SCHEMA, FileJob, JobOutcome, perform

TASKS_PER_CORE: Final = 3
LEAST_TASK_BYTES: Final = 4 << 20
"""A task of less is not worth its start."""


def pack(jobs: Sequence[FileJob], cores: int) -> list[list[FileJob]]:
    """Tasks of about the same number of bytes; within one, in the order of the jobs."""
    total = sum(job.bytes for job in jobs)
    count = max(1, min(len(jobs), TASKS_PER_CORE * cores, -(-total // LEAST_TASK_BYTES)))
    tasks: list[list[FileJob]] = [[] for _ in range(count)]
    filled = [(0, number) for number in range(count)]
    for job in sorted(jobs, key=lambda one: (-one.bytes, one.number)):
        size, number = heapq.heappop(filled)
        tasks[number].append(job)
        heapq.heappush(filled, (size + job.bytes, number))
    return [sorted(task, key=lambda job: job.number) for task in tasks]


def run_job(spark: SparkSession, address: str, tasks: Iterable[Sequence[FileJob]]) -> list[JobOutcome]:
    """Run the tasks; blocks until all of them have ended."""
    packed = [pickle.dumps(list(task)) for task in tasks]
    numbers = spark.range(0, len(packed), 1, len(packed))
    rows = numbers.mapInArrow(partial(perform, address, packed), SPARK_SCHEMA).collect()
    return [msgspec.json.decode(row.outcome, type=JobOutcome) for row in rows]
