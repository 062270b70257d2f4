"""How fast records are checked, read into columns and written back.

One core, thread CPU time, best of several passes in a run. The marks are
those of docs/adr: the kernel must earn its place against its twin.
"""

import time
from collections.abc import Callable

from bench.harness import Absolute, Comparison
from dray.records import NewRecord, build_batch, kernel, one_batch, pure
from dray.records.arrow import to_arrow, unwrap
from dray.records.writer import BatchWriter

PASSES = 7
CHUNK_BYTES = 15 * 2**20


def best_rate(amount: float, run: Callable[[], object], passes: int = PASSES) -> float:
    """`amount` a CPU second, in the best pass."""
    least = float("inf")
    for _ in range(passes):
        begun = time.thread_time()
        run()
        least = min(least, time.thread_time() - begun)
    return amount / least


def batch_with(value_bytes: int, count: int) -> bytes:
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    return build_batch([NewRecord(b"key-%d" % at, value[:value_bytes], 1_700_000_000_000 + at) for at in range(count)])


def scan_rate(scan: Callable[[memoryview, int, int], object], value_bytes: int, count: int, turns: int) -> float:
    records = one_batch(batch_with(value_bytes, count)).records

    def run() -> None:
        for _ in range(turns):
            scan(records, count, 0)

    return best_rate(count * turns, run)


def to_arrow_rate(value_bytes: int) -> float:
    """GB of batches a CPU second, many batches a call."""
    count = 2**20 // (value_bytes + 20)
    packed = batch_with(value_bytes, count)
    batches = [(one_batch(packed), at * count) for at in range(CHUNK_BYTES // len(packed))]
    return best_rate(len(batches) * len(packed) / 1e9, lambda: to_arrow(batches))


def from_arrow_rate(value_bytes: int) -> float:
    """GB of batches a CPU second, into a buffer that is used again; CRC and the unwrapping included."""
    count = 1_000
    packed = batch_with(value_bytes, count)
    batches = [(one_batch(packed), at * count) for at in range(10)]
    table = to_arrow(batches)
    writer = BatchWriter(2 * len(packed))

    def run() -> None:
        columns, at = unwrap(table), 0
        while at < columns.rows:
            at += writer.write(columns, at, columns.rows, max_bytes=2 * len(packed))[1]

    return best_rate(len(batches) * len(packed) / 1e9, run)


def cases() -> list[Comparison | Absolute]:
    """Everything that has a mark."""
    found: list[Comparison | Absolute] = [
        Comparison(
            name=f"records scan {value_bytes} B x {count}: C kernel vs pure twin",
            subject=lambda v=value_bytes, c=count, t=turns: scan_rate(kernel.scan, v, c, t),
            peer=lambda v=value_bytes, c=count: scan_rate(pure.scan, v, c, 1),
            mark=10.0,
            unit="records/s",
        )
        for value_bytes, count, turns in ((1_024, 15, 2_000), (100, 8_000, 20))
    ]
    found.append(Absolute(name="batch -> Arrow, 1 KiB values", run=lambda: to_arrow_rate(1_024), mark=2.0, unit="GB/s"))
    found.append(
        Absolute(name="Arrow -> batch, 1 KiB values", run=lambda: from_arrow_rate(1_024), mark=0.3, unit="GB/s")
    )
    found.append(Absolute(name="Arrow -> batch, 100 B values", run=lambda: from_arrow_rate(100), mark=1.0, unit="GB/s"))
    return found
