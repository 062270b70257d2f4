"""A broker's produce side for tests, on logs and stores that can be told to misbehave."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from dray.buffers import Buffer
from dray.clock import Clock, ManualClock, SystemClock
from dray.log import envelope
from dray.log.port import Log, LostReply, NotAppended, Position
from dray.machine.append import Append
from dray.machine.machine import Machine
from dray.machine.names import ProducerId, StreamId, domain_of
from dray.node.services import ServiceSettings, run_services
from dray.objects.memory import MemoryObjects
from dray.objects.paths import WalName
from dray.objects.port import Objects, StoreUnavailable
from dray.produce.batches import NewBatch, Stored
from dray.produce.service import ProduceService
from dray.produce.settings import FlushPolicy
from dray.records import NewRecord, build_batch, one_batch, records_of
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.session import COUNTERS
from dray.replica.writer import Timing
from dray.topics.service import NewTopic, TopicService
from dray.wal import codec
from tests.plane import plane_of
from tests.replica.domain import replica_on

CALM = Timing(ttl_ms=60_000, keepalive_ms=20_000, settle_ms=10_000)
EAGER = FlushPolicy(appends_per_second=100_000)
"""No linger and no pace: what a test is about decides when a flush begins."""


@dataclass(slots=True)
class Broker:
    domains: Domains
    topics: TopicService
    produce: ProduceService
    objects: Objects

    async def streams(self, topic: str = "t", partitions: int = 1) -> list[StreamId]:
        wanted = NewTopic(name=topic, partitions=partitions, replication_factor=1, configs={})
        return list((await self.topics.create(wanted)).streams)

    @property
    def replica(self) -> Replica:
        return self.domains[0]


@asynccontextmanager
async def broker(
    logs: dict[int, Log],
    objects: Objects,
    *,
    name: str = "broker-1",
    clock: Clock | None = None,
    timing: Timing = CALM,
    counters: int = COUNTERS,
    **policy: object,
) -> AsyncIterator[Broker]:
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        replicas = {}
        for domain, log in logs.items():
            replica = replica_on(log, name, clock=clock, timing=timing, counters=counters)
            replicas[domain] = await stack.enter_async_context(replica.running())
        domains = Domains(replicas)
        settings = ServiceSettings(flush=replace(EAGER, **policy), zone="a", upkeep=False)
        services = await stack.enter_async_context(run_services(plane_of(domains, objects, clock, name), settings))
        yield Broker(domains=domains, topics=services.topics, produce=services.produce, objects=objects)


def batch(
    stream: StreamId, value: bytes = b"v", *, records: int = 1, producer: int = -1, sequence: int = -1, epoch: int = 0
) -> NewBatch:
    rows = [NewRecord(value=value, timestamp=1_000 + number) for number in range(records)]
    epoch = epoch if producer >= 0 else -1
    data = build_batch(rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return NewBatch(
        stream, memoryview(data), records, 1_000, 1_000 + records - 1, ProducerId(producer), epoch, sequence
    )


async def settle(turns: int = 20) -> None:
    """Let everything run that can run."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def outlast(clock: ManualClock, answer: "asyncio.Future[Stored]") -> None:
    """Let time pass until a batch is answered."""
    for _ in range(100):
        await settle()
        if answer.done():
            return
        clock.advance(1_000)
    raise AssertionError("no answer, however long one waits")


class GatedObjects:
    """A store whose puts wait until they are let through or failed, and that remembers what was asked of it."""

    def __init__(self, inner: MemoryObjects | None = None, *, gated: bool = True) -> None:
        self.inner = inner or MemoryObjects()
        self.gated = gated
        self.puts: list[str] = []
        self.deleted: list[str] = []
        self.moments: list[str] = []
        self._gates: list[asyncio.Future[None]] = []

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        number = len(self.puts)
        self.puts.append(path)
        self._gates.append(asyncio.get_running_loop().create_future())
        self.moments.append("put")
        if self.gated:
            await self._gates[number]
        await self.inner.put(path, parts)
        self.moments.append("durable")

    def let(self, number: int) -> None:
        """Let the put of this number through."""
        self._gates[number].set_result(None)

    def fail(self, number: int, error: Exception | None = None) -> None:
        self._gates[number].set_exception(error or StoreUnavailable("not now"))

    def open_all(self) -> None:
        self.gated = False
        for gate in self._gates:
            if not gate.done():
                gate.set_result(None)

    async def put_count(self, count: int) -> None:
        """Until this many puts were asked for."""
        while len(self.puts) < count:
            await asyncio.sleep(0)

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        return await self.inner.get(path, start, end)

    async def head(self, path: str):
        return await self.inner.head(path)

    async def delete(self, path: str) -> None:
        self.deleted.append(path)
        await self.inner.delete(path)

    def list(self, prefix: str):
        return self.inner.list(prefix)

    async def close(self) -> None:
        await self.inner.close()


async def stored(broker: Broker, stream: StreamId) -> list[tuple[int, bytes]]:
    """(offset, value) of every record of a stream, read through the index and the store as a fetch would."""
    machine = broker.domains.of(stream).machine
    found = []
    for row in machine.streams.find(stream).index.rows(0):
        owner = machine.objects.find(row.object)
        name = WalName.of(zone=owner.zone, domain=domain_of(stream), created_ms=owner.created_ms, wal_id=owner.wal_id)
        data = await broker.objects.get(name.path(), row.position, row.position + row.size)
        records = records_of(one_batch(data))
        found += [(row.start + number, record.value) for number, record in enumerate(records)]
    return found


async def objects_in(objects: Objects) -> list[str]:
    return [found.path async for found in objects.list("wal/")]


async def decoded(objects: Objects, path: str) -> codec.CheckedObject:
    return codec.decode(await objects.get(path))


class HeldLog:
    """A handle whose appends wait while it is held, and that remembers which Appends it was sent, in order."""

    def __init__(self, inner: Log) -> None:
        self.inner = inner
        self.appends: list[Append] = []
        self.moments: list[str] = []
        self.refuse_appends = 0
        self.lose_appends = 0
        """Answer entries with an Append as if the reply were lost; they never arrive."""
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    async def append(self, entry: bytes) -> Position:
        found = appends_in(entry)
        if found:
            self.moments.append("append")
            await self._open.wait()
            if self.refuse_appends:
                self.refuse_appends -= 1
                raise NotAppended("not now")
            if self.lose_appends:
                self.lose_appends -= 1
                raise LostReply("swallowed")
            self.appends += found
        position = await self.inner.append(entry)
        if found:
            self.moments.append("appended")
        return position

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        async for position, entry in self.inner.follow(after):
            yield position, entry
            if appends_in(entry):
                self.moments.append("applied")  # the replica comes back for more when it has applied

    async def tail(self) -> Position:
        return await self.inner.tail()

    async def trim(self, upto: Position) -> None:
        await self.inner.trim(upto)

    async def close(self) -> None:
        await self.inner.close()


def appends_in(entry: bytes) -> list[Append]:
    head, machine = envelope.decode_head(entry), Machine()
    found = [
        machine.decoders.decode(kind, payload, head.version)
        for kind, payload in envelope.decode_commands(entry, head.count)
    ]
    return [command for command in found if isinstance(command, Append)]
