"""Writing our Parquet files against pyarrow's plain writer on rows that are decoded already."""

import io
import os
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Absolute, Comparison
from dray.parquet.schema import SCHEMA
from dray.parquet.write import GROUP_BYTES, ZSTD_LEVEL, ParquetFile
from dray.records import BatchView, NewRecord, build_batch, one_batch
from dray.records.arrow import to_arrow

RECORDS = 64_000
VALUE_BYTES = 1_024
BATCH = 64
TOGETHER = 4_096
MB = 1e6


def cases() -> list[Comparison | Absolute]:
    batches = [(one_batch(memoryview(_batch(at))), at) for at in range(0, RECORDS, BATCH)]
    rows = pq.read_table(io.BytesIO(_ours(batches)), schema=SCHEMA)
    return [
        Comparison(
            name="parquet.write",
            subject=lambda: _rate(lambda: _ours(batches)),
            peer=lambda: _rate(lambda: _plain(rows)),
            mark=0.6,
            unit="MB/CPU-s",
            note="1 KiB values from batches of 64, against pyarrow and its defaults on the same rows in Arrow",
        )
    ]


def _batch(first: int) -> bytes:
    """Values as records have them: half of each is noise."""
    return build_batch(
        [
            NewRecord(b"k%d" % at, os.urandom(VALUE_BYTES // 2) + b"x" * (VALUE_BYTES // 2), 1_700_000_000_000 + at)
            for at in range(first, first + BATCH)
        ]
    )


def _ours(batches: list[tuple[BatchView, int]]) -> bytes:
    sink = io.BytesIO()
    file = ParquetFile(sink, 0)
    for at in range(0, len(batches), TOGETHER // BATCH):
        file.write(to_arrow(batches[at : at + TOGETHER // BATCH]), append_time=False)
    file.finish()
    return sink.getvalue()


def _plain(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    group = max(1, rows.num_rows * GROUP_BYTES // rows.nbytes)
    pq.write_table(rows, sink, compression="zstd", compression_level=ZSTD_LEVEL, row_group_size=group)
    return sink.getvalue()


def _rate(run: Callable[[], bytes]) -> float:
    begun = time.process_time()
    run()
    return RECORDS * VALUE_BYTES / MB / (time.process_time() - begun)
