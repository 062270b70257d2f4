"""A broker to fetch from: real replicas, a counted store, and a writer of real objects."""

import asyncio
import random
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from dray.clock import ManualClock
from dray.fetch.cache import ObjectCache
from dray.fetch.offsets import OffsetLookup
from dray.fetch.plan import PartitionRead
from dray.fetch.service import FetchService
from dray.fetch.settings import FetchSettings
from dray.log.memory import MemoryLog
from dray.machine.append import Append, pack_rows
from dray.machine.names import StreamId, wal_id
from dray.node.services import ServiceSettings, run_services
from dray.objects.memory import MemoryObjects
from dray.objects.paths import WalName
from dray.offload import Offload
from dray.records import Codec, NewRecord, build_batch, one_batch, records_of
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.writer import Timing
from dray.topics.service import NewTopic
from dray.wal import codec
from tests.plane import plane_of
from tests.replica.domain import new_log, replica_on

T0 = 1_700_000_000_000
MIB = 2**20
CALM = Timing(ttl_ms=60_000, keepalive_ms=20_000, settle_ms=30_000)
"""A busy machine must not cost a test its session."""


class CountedObjects:
    """A store in memory that counts its reads, and holds or spoils them on demand."""

    def __init__(self) -> None:
        self.inner = MemoryObjects()
        self.gets: list[tuple[str, int, int]] = []
        self.running = 0
        self.most_running = 0
        self.gate: asyncio.Event | None = None
        self.errors: list[Exception] = []

    async def put(self, path, parts):
        await self.inner.put(path, parts)

    async def get(self, path, start=0, end=None):
        self.gets.append((path, start, end))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0)
            if self.errors:
                raise self.errors.pop(0)
            return await self.inner.get(path, start, end)
        finally:
            self.running -= 1

    async def close(self):
        pass

    @property
    def bytes_read(self) -> int:
        return sum(end - start for _, start, end in self.gets)

    async def spoil(self, path: str, change) -> None:
        """Replace what an object holds; None removes it."""
        held = bytes(await self.inner.get(path))
        await self.inner.delete(path)
        spoiled = change(bytearray(held))
        if spoiled is not None:
            await self.inner.put(path, [bytes(spoiled)])


class DelayedLog:
    """A handle whose follower sees nothing new while it is held: a replica that lags."""

    def __init__(self, inner: MemoryLog) -> None:
        self.inner = inner
        self.open = asyncio.Event()
        self.open.set()
        self.tails = 0

    async def append(self, entry):
        return await self.inner.append(entry)

    async def follow(self, after):
        async for found in self.inner.follow(after):
            await self.open.wait()
            yield found

    async def tail(self):
        self.tails += 1
        # Whoever asks for the tail is about to wait for it.
        self.open.set()
        return await self.inner.tail()

    async def trim(self, upto):
        await self.inner.trim(upto)

    async def close(self):
        await self.inner.close()


@dataclass
class Written:
    """One accepted batch, as it must come back."""

    start: int
    end: int
    data: bytes
    path: str


@dataclass
class World:
    replica: Replica
    objects: CountedObjects
    clock: ManualClock
    service: FetchService
    offsets: OffsetLookup
    cache: ObjectCache
    streams: list[StreamId]
    log: DelayedLog
    truth: dict[StreamId, list[Written]] = field(default_factory=dict)

    async def write(
        self, batches: list[tuple[StreamId, bytes]], *, keep: bool = False, refuse: frozenset[int] = frozenset()
    ):
        """Put an object and append it; batches whose number is in `refuse` lie in it but are accepted by nobody."""
        return await write(
            self.replica, self.objects, self.clock, self.truth, batches, refuse, self.cache if keep else None
        )

    async def fetch(self, *asked: tuple[StreamId, int, int], min_bytes=1, max_bytes=MIB, max_wait_ms=0):
        requests = [PartitionRead(stream=s, offset=o, max_bytes=m) for s, o, m in asked]
        return await self.service.fetch(requests, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms)

    async def fetch_one(self, stream: StreamId, offset: int, max_bytes: int = MIB, **how):
        (answer,) = await self.fetch((stream, offset, max_bytes), **how)
        return answer


async def write(replica, objects, clock, truth, batches, refuse=frozenset(), cache=None) -> str:
    session = await replica.open_session()
    name = wal_id(replica.machine.log_id, session.id, session.take_counter())
    created_ms = clock.wall_ms()
    by_stream: dict[int, list[int]] = {}
    for number, (stream, _) in enumerate(batches):
        by_stream.setdefault(stream, []).append(number)
    views = [one_batch(data) for _, data in batches]
    stamps = [[record.timestamp for record in records_of(view)] for view in views]
    chunks = [
        (stream, [codec.Batch(batches[n][1], views[n].record_count, min(stamps[n]), max(stamps[n])) for n in numbers])
        for stream, numbers in sorted(by_stream.items())
    ]
    encoded = codec.encode(name, replica.machine.domain, created_ms, chunks)
    zone = "z 1"
    path = WalName.of(zone=zone, domain=replica.machine.domain, created_ms=created_ms, wal_id=name).path()
    await objects.put(path, encoded.parts)
    if cache is not None:
        cache.add(path, encoded.parts, encoded.size)
    rows, order = [], []
    for (stream, numbers), positions in zip(sorted(by_stream.items()), encoded.positions, strict=True):
        for n, position in zip(numbers, positions, strict=True):
            records = 0 if n in refuse else views[n].record_count  # a row of no records is refused
            rows.append((stream, max(stamps[n]), min(stamps[n]), -1, -1, records, len(batches[n][1]), position, -1))
            order.append(n)
    append = Append(wal_id=name, size=encoded.size, created_ms=created_ms, zone=zone, packed=pack_rows(rows))
    (verdict,) = await replica.propose(append)
    for n, base in zip(order, verdict.given, strict=True):
        assert (base < 0) == (n in refuse)
        if base >= 0:
            stream, data = batches[n]
            truth.setdefault(stream, []).append(Written(base, base + views[n].record_count, data, path))
    return path


def random_batch(dice: random.Random, *, records: int = 8, value_bytes: int = 200, spread_ms: int = 1_000) -> bytes:
    """A real batch: any codec, timestamps in any order, sometimes the broker's."""
    count = dice.randint(1, records)
    rows = [
        NewRecord(
            dice.choice([None, b"", b"key"]),
            dice.randbytes(dice.randint(0, value_bytes)),
            T0 + dice.randint(0, spread_ms),
        )
        for _ in range(count)
    ]
    return build_batch(rows, codec=dice.choice(list(Codec)), append_time=dice.random() < 0.2)


@asynccontextmanager
async def world(
    *, partitions: int = 3, settings: FetchSettings | None = None, log: MemoryLog | None = None, name: str = "broker-1",
    objects: CountedObjects | None = None, version: int = 1, unpack: Offload | None = None, **how,
):  # fmt: skip
    """A broker with one topic; on a given log, the topic is already there."""
    chosen = settings or FetchSettings(**how)
    shared = log or await new_log(version)
    handle = DelayedLog(shared.handle())
    clock = ManualClock(wall_ms=T0)
    store = objects or CountedObjects()
    async with AsyncExitStack() as stack:
        replica = await stack.enter_async_context(replica_on(handle, name, timing=CALM).running())
        await replica.open_session()
        plane = plane_of(Domains({0: replica}), store, clock, name, unpack)
        services = await stack.enter_async_context(run_services(plane, ServiceSettings(fetch=chosen, upkeep=False)))
        if log is None:
            wanted = NewTopic(name="orders", partitions=partitions, replication_factor=1, configs={})
            streams = list((await services.topics.create(wanted)).streams)
        else:
            streams = list((await services.topics.find("orders")).streams)
        yield World(
            replica, store, clock, services.fetch, services.log_offsets, services.cache, streams, handle
        )  # fmt: skip
