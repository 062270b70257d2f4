"""The produce service alone: what a batch costs between a request and its offsets, on local files.

MB per CPU-second   process time of loop and disk threads, four flushes in flight, objects and log on disk
cost of a submit    the synchronous part, for which a connection's reading waits
"""

import asyncio
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop

from bench.harness import Report
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.log.files import FileLog
from dray.machine.head import Genesis, founding
from dray.machine.machine import Machine
from dray.machine.names import StreamId
from dray.machine.sessions import SessionKind
from dray.objects.files import FileObjects
from dray.objects.port import Objects
from dray.offload import ThreadOffload
from dray.produce.batches import NewBatch
from dray.produce.service import ProduceService
from dray.produce.settings import FlushPolicy
from dray.records import NewRecord, build_batch
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.session import Identity
from dray.telemetry import configure_logging
from dray.topics.service import NewTopic, TopicService

MB = 1_000_000
PARTITIONS = 6
TOTAL_BYTES = 512 << 20
UNACKED_BYTES = 16 << 20


def cases() -> list[Report]:
    configure_logging("error")
    return [
        Report("128 KiB batches to local files", lambda: _throughput(128 << 10), "16 MiB unanswered, 6 partitions"),
        Report("16 KiB batches to local files", lambda: _throughput(16 << 10), "16 MiB unanswered, 6 partitions"),
        Report("1 KiB batches to local files", lambda: _throughput(1 << 10, 32 << 20), "16 MiB unanswered"),
        Report("submit", _submit, "16 KiB batches, flush excluded"),
        Report("lone batch to local files", _latency, "one at a time, until its answer"),
    ]


@asynccontextmanager
async def _service(directory: Path, policy: FlushPolicy):
    offload = ThreadOffload(policy.flushes + 2)
    objects = FileObjects(directory / "objects", LocalDisk(), offload)
    await objects.open()
    async with service_on(directory, policy, objects, offload) as parts:
        yield parts
    offload.close()


@asynccontextmanager
async def service_on(directory: Path, policy: FlushPolicy, objects: Objects, offload: ThreadOffload):
    """A produce service with a log in the directory, and the streams of one topic."""
    clock = SystemClock()
    log = await FileLog.open(directory / "log", disk=LocalDisk(), offload=offload, clock=clock)
    genesis = Genesis(cluster_id=bytes(16), log_id=bytes(range(8)), domain=0, domains=1)
    await log.append(founding(genesis, clock.wall_ms()))
    identity = Identity(name="bench", instance=os.urandom(16), kind=SessionKind.BROKER, owner=True)
    replica = Replica(log=log, machine=Machine(), identity=identity, clock=clock, entropy=SystemEntropy())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(replica.running())
        domains = Domains({0: replica})
        service = ProduceService(domains=domains, objects=objects, clock=clock, policy=policy)
        await stack.enter_async_context(service.running())
        topics = TopicService(domains=domains, entropy=SystemEntropy(), clock=clock)
        wanted = NewTopic(name="t", partitions=PARTITIONS, replication_factor=1, configs={})
        yield service, list((await topics.create(wanted)).streams)
    await log.close()


def batches_of(streams: list[StreamId], size: int) -> list[NewBatch]:
    """One batch of 1 KiB records for each stream, as a slice of a received buffer."""
    value = os.urandom(min(size, 1 << 10) - 80)
    rows = [NewRecord(value=value, timestamp=1_700_000_000_000) for _ in range(max(1, size >> 10))]
    data = memoryview(bytearray(build_batch(rows)))
    return [NewBatch(stream, data, len(rows), 1_700_000_000_000, 1_700_000_000_000) for stream in streams]


def run_in_new_directory(work: Callable[[Path], Coroutine[None, None, dict[str, float]]]) -> dict[str, float]:
    # Beside the repository, not in /tmp, which may be memory.
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=out))
    try:
        return uvloop.run(work(directory))
    finally:
        shutil.rmtree(directory)


def _throughput(size: int, total_bytes: int = TOTAL_BYTES) -> dict[str, float]:
    async def work(directory: Path) -> dict[str, float]:
        async with _service(directory, FlushPolicy()) as (service, streams):
            batches = batches_of(streams, size)
            count = total_bytes // size
            room = asyncio.Semaphore(UNACKED_BYTES // size)

            def answered(_: object) -> None:
                room.release()

            begun, cpu = time.perf_counter(), time.process_time()
            last = None
            for number in range(count):
                await room.acquire()
                last = service.submit(batches[number % len(batches)])
                last.add_done_callback(answered)
            assert last is not None
            await service.drain()
            await last
            cpu, wall = time.process_time() - cpu, time.perf_counter() - begun
            done = count * len(batches[0].data)
            return {
                "MB per CPU-second": done / MB / cpu,
                "MB per second": done / MB / wall,
                "us CPU per batch": cpu / count * 1e6,
            }

    return run_in_new_directory(work)


def _submit() -> dict[str, float]:
    async def work(directory: Path) -> dict[str, float]:
        async with _service(directory, FlushPolicy(max_buffer_bytes=1 << 40)) as (service, streams):
            batches = batches_of(streams, 16 << 10) * 500
            best = float("inf")
            for _ in range(10):
                gc.collect()
                begun = time.perf_counter()
                answers = [service.submit(batch) for batch in batches]
                best = min(best, time.perf_counter() - begun)
                await asyncio.gather(*answers)
            return {"us per submit": best / len(batches) * 1e6}

    return run_in_new_directory(work)


def _latency() -> dict[str, float]:
    async def work(directory: Path) -> dict[str, float]:
        async with _service(directory, FlushPolicy(appends_per_second=100_000)) as (service, streams):
            batch = batches_of(streams, 1 << 10)[0]
            taken = []
            for _ in range(300):
                begun = time.perf_counter()
                await service.submit(batch)
                taken.append((time.perf_counter() - begun) * 1e3)
            taken.sort()
            return {"ms p50": taken[150], "ms p99": taken[297]}

    return run_in_new_directory(work)
