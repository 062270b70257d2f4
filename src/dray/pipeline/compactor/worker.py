"""What a task of Spark does for a compactor: batches of one range after another into files.

Only what it returns counts. An attempt writes under a name of its own, so one
that is repeated, or goes on although Spark has given it up, harms nobody: its
file is an orphan that the sweep of its session finds.

Invariants
    CP1  A file that is returned lies in the store, whole and synced, and holds
         exactly the records of its range.
    CP2  A range that cannot be read or written fails alone, with a reason.
"""

import asyncio
import mmap
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from dray.errors import Corrupt, DrayError
from dray.objects.paths import ObjectKind
from dray.objects.port import Objects
from dray.parquet.write import FileFacts, ParquetFile
from dray.pipeline.plan import Piece
from dray.pipeline.reading import group_bytes, read_records
from dray.pipeline.reading_files import read_rows
from dray.pipeline.stores import open_for_tasks

ATTEMPTS: Final = 4
"""As often Spark tries a task (`local[N,4]`); there is a name for each."""
SCHEMA: Final = pa.schema([pa.field("outcome", pa.binary())])
SPARK_SCHEMA: Final = "outcome binary"
STORED: Final = ("timestamp", "key", "value", "headers", "timestampType")
"""What rows of files are made of, as Spark's columns are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJob:
    """One file that is to be written."""

    number: int
    partition: int
    start: int
    end: int
    pieces: tuple[Piece, ...]
    paths: tuple[str, ...]
    """Its name, for each attempt."""

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job."""

    number: int
    attempt: int
    facts: FileFacts | None = None
    failure: str = ""


def perform(address: str, tasks: Sequence[bytes], numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task of Spark: the jobs of the tasks with these numbers."""
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for outcome in write_files(address, pickle.loads(tasks[number]), attempt):
                yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(outcome)], pa.binary())], schema=SCHEMA)


def write_files(address: str, jobs: Sequence[FileJob], attempt: int) -> Iterator[JobOutcome]:
    """Write the files of some jobs, one after another (CP2)."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        objects = runner.run(open_for_tasks(address))
        try:
            for job in jobs:
                try:
                    facts = _write(loop, objects, job, attempt, group_bytes(address))
                    yield JobOutcome(number=job.number, attempt=attempt, facts=facts)
                except (DrayError, OSError) as error:
                    yield JobOutcome(number=job.number, attempt=attempt, failure=str(error)[:1_000])  # CP2
        finally:
            runner.run(objects.close())


def _copy(loop: asyncio.AbstractEventLoop, objects: Objects, piece: Piece, limit: int, file: ParquetFile) -> None:
    """Put the records of a piece into a file, whether they lie in batches or in files."""
    if piece.kind is ObjectKind.PARQUET:
        for rows in read_rows(loop, objects, piece, STORED):
            file.copy(rows)
        return
    for found, append_time in read_records(loop, objects, piece, limit):
        file.write(found, append_time=append_time)


def _write(loop: asyncio.AbstractEventLoop, objects: Objects, job: FileJob, attempt: int, limit: int) -> FileFacts:
    """On a disk first: a file may be larger than a worker's memory."""
    with tempfile.TemporaryFile() as sink:
        with closing(ParquetFile(sink, job.partition)) as file:
            for piece in job.pieces:
                _copy(loop, objects, piece, limit, file)
            facts = file.finish()
        if (facts.start, facts.end) != (job.start, job.end):
            raise Corrupt(
                "the objects do not hold the range", start=job.start, end=job.end, found=f"{facts.start}-{facts.end}"
            )
        sink.flush()
        content = mmap.mmap(sink.fileno(), 0, access=mmap.ACCESS_READ)
        loop.run_until_complete(objects.put(job.paths[attempt % len(job.paths)], [memoryview(content)]))  # CP1
    return facts
