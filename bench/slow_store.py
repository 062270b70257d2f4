"""Acknowledgements over a store that takes its time: puts around 30 ms with a long tail, five requests in flight.

Appends go in the order of flushes, so a slow put holds up those behind it;
hedging and parallel puts keep that within twice of what the store itself takes.
"""

import asyncio
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.harness import Absolute, Case, Report
from bench.produce import batches_of, run_in_new_directory, service_on
from dray.buffers import Buffer
from dray.disk import LocalDisk
from dray.objects.files import FileObjects
from dray.offload import ThreadOffload
from dray.produce.settings import WalSettings

SEED: Final = 7
MEDIAN_MS: Final = 30.0
SIGMA: Final = 0.8
"""Of the logarithm: p99 is then 6.4 times the median."""
LINGER_MS: Final = 5
IN_FLIGHT: Final = 5
REQUESTS: Final = 1_500
BATCH_BYTES: Final = 16 << 10


class SlowObjects(FileObjects):
    """Local files whose puts take as long as those of a remote store."""

    def __init__(self, directory: Path, offload: ThreadOffload) -> None:
        super().__init__(directory, LocalDisk(), offload)
        self.put_ms: list[float] = []
        self._dice = random.Random(SEED)

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        begun = time.perf_counter()
        await asyncio.sleep(self._dice.lognormvariate(math.log(MEDIAN_MS), SIGMA) / 1000)
        await super().put(path, parts)
        self.put_ms.append((time.perf_counter() - begun) * 1000)


def cases() -> list[Case]:
    seen: list[dict[str, float]] = []
    return [
        Absolute(
            "ack p99 over (p99 of PUT + linger)",
            run=lambda: _share(seen),
            mark=2.0,
            unit="x",
            at_most=True,
            note=f"puts around {MEDIAN_MS:.0f} ms with a long tail, linger {LINGER_MS} ms, {IN_FLIGHT} in flight",
        ),
        Report("the last of these runs", run=lambda: seen[-1]),
    ]


def _share(seen: list[dict[str, float]]) -> float:
    figures = run_in_new_directory(_acknowledged)
    seen.append(figures)
    return figures["ack p99 ms"] / (figures["put p99 ms"] + LINGER_MS)


async def _acknowledged(directory: Path) -> dict[str, float]:
    policy = WalSettings(linger=f"{LINGER_MS}ms").policy(local=False)  # type: ignore[arg-type]  # parsed by pydantic
    offload = ThreadOffload(policy.flushes + 2)
    objects = SlowObjects(directory / "objects", offload)
    await objects.open()
    taken: list[float] = []
    async with service_on(directory, policy, objects, offload) as (service, streams):
        requests = iter(range(REQUESTS))
        batches = batches_of(streams, BATCH_BYTES)

        async def producer() -> None:
            for number in requests:
                begun = time.perf_counter()
                await service.submit(batches[number % len(batches)])
                taken.append((time.perf_counter() - begun) * 1000)

        await asyncio.gather(*(producer() for _ in range(IN_FLIGHT)))
    offload.close()
    return {
        "ack p50 ms": _percentile(taken, 0.5),
        "ack p99 ms": _percentile(taken, 0.99),
        "put p50 ms": _percentile(objects.put_ms, 0.5),
        "put p99 ms": _percentile(objects.put_ms, 0.99),
    }


def _percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]
