"""Heaps through a broker's service, every answer after an fdatasync of a local log: messages a second, and how late.

In one process, without a server: producers and consumers call the service. A
message is enqueued, popped and acked; 1 KiB bodies travel in the log, larger
ones through objects on the same disk.
"""

import asyncio
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

import uvloop

from bench.harness import Absolute, Report
from bench.replica import metadata
from dray.heaps.ids import format_id, format_token, parse_id, parse_token
from dray.heaps.service import HeapMessage, HeapService, Settlement
from dray.heaps.settling import SettleOne
from dray.machine.heaps.config import Mode
from dray.objects.files import FileObjects

PRODUCERS = 16
CREDITS = 64
SECONDS = 3.0


async def _measure(size: int, seconds: float, producers: int) -> dict[str, float]:
    root = Path(tempfile.mkdtemp(prefix="dray-bench-heaps-"))
    try:
        async with metadata(root) as (running, _, effects):
            store = root / "objects"
            store.mkdir()
            objects = FileObjects(store, effects.disk, effects.offload, effects.entropy)
            await objects.open()
            service = HeapService(
                domains=running.domains, objects=objects, clock=effects.clock, entropy=effects.entropy
            )
            async with service.running():
                return await _cycles(service, running.domains.catalog, size, seconds, producers)
    finally:
        shutil.rmtree(root)


async def _cycles(service: HeapService, replica, size: int, seconds: float, producers: int) -> dict[str, float]:
    heap = await service.admin.make("jobs", mode=Mode.MIN)
    await service.enqueue_batch(heap, [HeapMessage(payload=b"warm")] * 100)
    payload, enqueues, delays = bytes(size), list[float](), list[float]()
    sent: dict[str, float] = {}
    begun, before, acked = time.perf_counter(), replica.machine.position, 0
    cpu = time.process_time()
    stop = begun + seconds

    async def produce() -> None:
        while (at := time.perf_counter()) < stop:
            taken = await service.enqueue(heap, HeapMessage(payload=payload))
            enqueues.append(time.perf_counter() - at)
            assert parse_id(format_id(taken.id)) == taken.id
            sent[format_id(taken.id)] = at

    async def consume() -> None:
        nonlocal acked
        consumer = service.consumer(heap, holder="bench")
        consumer.add_credits(CREDITS)
        while True:
            found = await consumer.take(60)
            now = time.perf_counter()
            for delivery in found:
                if (at := sent.pop(format_id(delivery.id), None)) is not None:
                    delays.append(now - at)
            tokens = [parse_token(format_token(delivery.token)) for delivery in found]
            told = await service.settle_many(heap, [SettleOne(kind=Settlement.ACK, token=one) for one in tokens])
            assert all(one.done for one in told)
            acked += len(found)
            consumer.add_credits(len(found))

    consumers = [asyncio.create_task(consume()) for _ in range(2)]
    await asyncio.gather(*(produce() for _ in range(producers)))
    spent = time.perf_counter() - begun
    for task in consumers:
        task.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    enqueues.sort()
    return {
        "cycles/s": min(acked, len(enqueues)) / spent,
        "enqueue p50 ms": enqueues[len(enqueues) // 2] * 1e3,
        "enqueue p95 ms": enqueues[len(enqueues) * 95 // 100] * 1e3,
        "messages an entry": 3 * acked / max(1, replica.machine.position - before),
        "us CPU a message": (time.process_time() - cpu) / max(1, acked) * 1e6,
    }


@cache
def figures(size: int, producers: int = PRODUCERS) -> dict[str, float]:
    return uvloop.run(_measure(size, SECONDS, producers))


def cases() -> list[Absolute | Report]:
    return [
        Absolute("cycles of 1 KiB, 64 producers", lambda: figures(1_024, 64)["cycles/s"], 5_000, "cycles/s"),
        Absolute("enqueue of 1 KiB, p95", lambda: figures(1_024)["enqueue p95 ms"], 20, "ms", at_most=True),
        Absolute("messages, leases and acks an entry", lambda: figures(1_024)["messages an entry"], 10, "an entry"),
        Report("1 KiB in the log, 16 producers", lambda: figures(1_024)),
        Report("1 KiB in the log, 64 producers", lambda: figures(1_024, 64)),
        Report("32 KiB in objects, 16 producers", lambda: figures(32 << 10)),
    ]
