"""What it costs to lay out a WAL object, next to the CRC of its bytes."""

import time
import tracemalloc

from crc32c import crc32c

from bench.harness import Absolute, Comparison
from dray.wal import codec
from dray.wal.codec import Batch
from dray.wal.ids import WalId

OBJECT_BYTES = 4 << 20
BATCH_BYTES = 64 << 10
STREAMS = 16
WAL = WalId(bytes(16))


def _chunks(slab: bytearray) -> list[tuple[int, list[Batch]]]:
    views = [memoryview(slab)[at : at + BATCH_BYTES] for at in range(0, OBJECT_BYTES, BATCH_BYTES)]
    return [(stream, [Batch(view, 64, 0, 0) for view in views[stream::STREAMS]]) for stream in range(STREAMS)]


def _rate(work, repeats: int = 40) -> float:
    """Bytes a CPU second in GB/s, the best of five bursts."""
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        for _ in range(repeats):
            work()
        best = min(best, (time.thread_time() - start) / repeats)
    return OBJECT_BYTES / best / 1e9


def cases() -> list[Comparison | Absolute]:
    slab = bytearray(OBJECT_BYTES)
    chunks = _chunks(slab)

    def copied_bytes() -> float:
        tracemalloc.start()
        codec.encode(WAL, 0, 0, chunks)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return float(peak)

    return [
        Comparison(
            "WAL object of 4 MiB from 64 KiB batches against the CRC of its bytes",
            subject=lambda: _rate(lambda: codec.encode(WAL, 0, 0, chunks)),
            peer=lambda: _rate(lambda: crc32c(slab)),
            mark=1 / 1.5,
            unit="GB/s",
            note="the mark says: at most 1.5x the time of the CRC alone",
        ),
        Absolute(
            "memory that encoding 4 MiB of batches takes (a copy would take 4,194,304)",
            run=copied_bytes,
            mark=64 << 10,
            unit="bytes",
            at_most=True,
        ),
    ]
