"""1,000 partitions that trickle: 10,000 batches of one record a second. Does memory grow, and what does it cost?

`DRAY_BENCH_TRICKLE_SECONDS=300` for the long run; 60 otherwise.
"""

import os
import statistics
import threading
from typing import Final

from bench._brokers import BadRun, RawFigures, raw_load, resident_bytes, topic_on
from bench._targets import Running, Target, peer, running, subject
from bench.harness import Case, Report

PARTITIONS: Final = 1000
PARTITIONS_PER_REQUEST: Final = 100
REQUESTS_PER_S: Final = 100.0
CONNECTIONS: Final = 10
_SAMPLE_SECONDS: Final = 1.0
_LEAST_RATE: Final = 0.9


def cases() -> list[Case]:
    seconds = float(os.environ.get("DRAY_BENCH_TRICKLE_SECONDS", "60"))
    note = f"{PARTITIONS} partitions, 10 MB/s in 1 KiB batches, {seconds:.0f} s"
    return [
        Report("trickle into dray", run=lambda: _trickle(subject(), seconds), note=note),
        Report("trickle into kafka", run=lambda: _trickle(peer(), seconds), note=note),
    ]


def _trickle(target: Target, seconds: float) -> dict[str, float]:
    broker = running(target)
    with topic_on(broker, PARTITIONS) as topic:
        sampler = Sampler(broker)
        sampler.start()
        try:
            figures = raw_load(
                broker, "produce", topic, partitions=PARTITIONS, partitions_per_request=PARTITIONS_PER_REQUEST,
                connections=CONNECTIONS, rate=REQUESTS_PER_S, batch_records=1, seconds=seconds,
            )  # fmt: skip
        finally:
            sampler.stop()
    return _report(figures, sampler.resident)


def _report(figures: RawFigures, resident: list[int]) -> dict[str, float]:
    if figures.requests_per_s < _LEAST_RATE * REQUESTS_PER_S:
        raise BadRun(f"{figures.requests_per_s:.0f} of {REQUESTS_PER_S:.0f} requests a second: this is no trickle")
    settled = resident[len(resident) // 2 :]
    slope = statistics.linear_regression([n * _SAMPLE_SECONDS for n in range(len(settled))], settled).slope
    batches = figures.requests * PARTITIONS_PER_REQUEST
    return {
        "MB/s": figures.mb_per_s,
        "batches/s": figures.requests_per_s * PARTITIONS_PER_REQUEST,
        "RSS at the end, MB": resident[-1] / 1e6,
        "RSS slope of the second half, KB/s": slope / 1e3,
        "RSS slope, bytes per batch": slope / (figures.requests_per_s * PARTITIONS_PER_REQUEST),
        "broker CPU us/batch": figures.spent.broker_s / batches * 1e6,
        "ack p50 ms": figures.p50_ms,
        "ack p99 ms": figures.p99_ms,
        "requests the sender was late with, %": 100 * figures.late / figures.requests,
    }


class Sampler(threading.Thread):
    """Looks at the resident memory of a broker once a second."""

    def __init__(self, broker: Running) -> None:
        super().__init__(daemon=True)
        self.resident: list[int] = []
        self._pid = broker.pid
        self._ended = threading.Event()

    def run(self) -> None:
        while True:
            self.resident.append(resident_bytes(self._pid))
            if self._ended.wait(_SAMPLE_SECONDS):
                return

    def stop(self) -> None:
        self._ended.set()
        self.join()
