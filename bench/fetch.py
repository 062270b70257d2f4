"""How fast fetches are answered: 1 MB answers, from memory and from files.

One core, CPU time of the whole process, threads of the disk included; best of
several passes. What is measured ends where a server begins: a list of parts.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.harness import Absolute, Case, Report
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.fetch.cache import ObjectCache
from dray.fetch.plan import PartitionRead
from dray.fetch.service import Fetched, FetchService
from dray.fetch.settings import FetchSettings
from dray.ids import SystemEntropy
from dray.log.memory import MemoryLog
from dray.machine.append import Append, Appended, pack_rows
from dray.machine.command import MAX_ROWS
from dray.machine.head import SUPPORTED, Genesis, founding
from dray.machine.machine import Machine
from dray.machine.names import StreamId, wal_id
from dray.machine.sessions import SessionKind
from dray.objects.files import FileObjects
from dray.objects.memory import MemoryObjects
from dray.objects.paths import WalName
from dray.objects.port import Objects
from dray.offload import InlineOffload, Offload, ThreadOffload
from dray.records import NewRecord, build_batch
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.session import Identity
from dray.topics.service import NewTopic, TopicService
from dray.wal import codec

PASSES = 5
ANSWER = 1_000_000
OBJECT_BYTES = 8_000_000
OBJECTS = 4
OLD_MS = 3_600_000


class Broker:
    """A broker with one stream of equal batches, and a consumer that reads it from its start to its end."""

    def __init__(self, replica: Replica, service: FetchService, cache: ObjectCache, stream: StreamId) -> None:
        self.replica = replica
        self.service = service
        self.cache = cache
        self.stream = stream

    async def fill(self, objects: Objects, batch: bytes, *, keep: bool) -> None:
        session = await self.replica.open_session()
        for _ in range(OBJECTS):
            name = wal_id(self.replica.machine.log_id, session.id, session.take_counter())
            created_ms = SystemClock().wall_ms() - OLD_MS
            # Each batch has memory of its own, as it has when producers send them.
            count = min(MAX_ROWS, max(1, OBJECT_BYTES // len(batch)))
            made = [codec.Batch(bytes(bytearray(batch)), 1, 1, 1) for _ in range(count)]
            encoded = codec.encode(name, 0, created_ms, [(self.stream, made)])
            path = WalName.of(zone="", domain=0, created_ms=created_ms, wal_id=name).path()
            await objects.put(path, encoded.parts)
            if keep:
                self.cache.add(path, encoded.parts, encoded.size)
            rows = [(self.stream, 1, 1, -1, -1, 1, len(batch), at, -1) for at in encoded.positions[0]]
            (verdict,) = await self.replica.propose(
                Append(wal_id=name, size=encoded.size, created_ms=created_ms, zone="", packed=pack_rows(rows))
            )
            assert isinstance(verdict, Appended), verdict

    async def consume(self, answer_bytes: int = ANSWER) -> int:
        """Everything, answer by answer; returns the bytes."""
        offset = total = 0
        while offset < self.replica.machine.streams.open[self.stream].end:
            asked = [PartitionRead(stream=self.stream, offset=offset, max_bytes=answer_bytes)]
            (answer,) = await self.service.fetch(asked, min_bytes=1, max_bytes=answer_bytes, max_wait_ms=500)
            assert isinstance(answer, Fetched), answer
            total += answer.size
            offset += len(answer.parts) // 2
        return total


async def with_broker(
    objects: Objects, settings: FetchSettings, run: Callable[[Broker], Awaitable[float]], offload: Offload | None = None
) -> float:
    log = MemoryLog()
    genesis = Genesis(cluster_id=b"c" * 16, log_id=b"l" * 8, domain=0, domains=1, version=SUPPORTED)
    await log.append(founding(genesis, 10**12))
    clock, entropy = SystemClock(), SystemEntropy()
    who = Identity(name="bench", instance=b"i" * 16, kind=SessionKind.BROKER, owner=False)
    replica = Replica(log=log, machine=Machine(), identity=who, clock=clock, entropy=entropy)
    async with replica.running():
        await replica.open_session()
        domains, cache = Domains({0: replica}), ObjectCache(settings.cache_bytes)
        topics = TopicService(domains=domains, entropy=entropy, clock=clock)
        topic = await topics.create(NewTopic(name="t", partitions=1, replication_factor=1, configs={}))
        service = FetchService(
            domains=domains, objects=objects, clock=clock, settings=settings, cache=cache,
            offload=offload or InlineOffload(),
        )  # fmt: skip
        try:
            return await run(Broker(replica, service, cache, topic.streams[0]))
        finally:
            await service.close()


async def best(broker: Broker, answer_bytes: int = ANSWER) -> float:
    """MB a CPU second, in the best pass."""
    rates = []
    for _ in range(PASSES):
        begun = time.process_time()
        total = await broker.consume(answer_bytes)
        rates.append(total / 1e6 / (time.process_time() - begun))
    return max(rates)


def batch_of(size: int) -> bytes:
    return build_batch([NewRecord(None, bytes(size - 80), 1)])


def from_cache(batch_bytes: int) -> float:
    """The producer's own bytes, still in memory."""

    async def run(broker: Broker) -> float:
        await broker.fill(objects, batch_of(batch_bytes), keep=True)
        return await best(broker)

    objects = MemoryObjects()
    return asyncio.run(with_broker(objects, FetchSettings(), run))


def from_files(batch_bytes: int, settings: FetchSettings) -> float:
    """Cold objects in a directory (in the page cache of the system), each batch checked."""

    async def run(broker: Broker) -> float:
        await objects.open()
        await broker.fill(objects, batch_of(batch_bytes), keep=False)
        return await best(broker)

    offload = ThreadOffload(2)
    with tempfile.TemporaryDirectory() as directory:
        objects = FileObjects(Path(directory), LocalDisk(), offload)
        try:
            return asyncio.run(with_broker(objects, settings, run))
        finally:
            offload.close()


def small_fetches() -> float:
    """Microseconds of CPU for an answer of one 4 KiB batch from memory."""

    async def run(broker: Broker) -> float:
        await broker.fill(objects, batch_of(4_096), keep=True)
        return 4_096 / await best(broker, answer_bytes=4_096)

    objects = MemoryObjects()
    return asyncio.run(with_broker(objects, FetchSettings(), run))


def report() -> dict[str, float]:
    """Figures without a mark."""
    cold = FetchSettings.model_validate({"cache_bytes": 0})
    found = {"cache, 1 KiB batches, MB/s": from_cache(1_024), "cache, one 4 KiB batch, us": small_fetches()}
    for name, size in (("16 KiB", 16_384), ("1 MB", 999_000)):
        found[f"files, no cache, {name} batches, MB/s"] = from_files(size, cold)
        found[f"files, cached after the first pass, {name} batches, MB/s"] = from_files(size, FetchSettings())
    return found


def cases() -> list[Case]:
    """What a consumer costs."""
    marks: list[Case] = [
        Absolute(
            name=f"fetch of 1 MB from memory, {name} batches",
            run=lambda size=size: from_cache(size),
            mark=1_000.0,
            unit="MB/s/core",
        )
        for name, size in (("16 KiB", 16_384), ("1 MB", 999_000))
    ]
    return [*marks, Report(name="fetch", run=report)]
