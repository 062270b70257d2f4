"""Brokers that serve heaps on one log and one store, for tests."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from dray.clock import Clock, SystemClock
from dray.heaps.consumers import Delivery
from dray.heaps.policy import HeapPolicy
from dray.heaps.service import HeapMessage, HeapService, Settlement
from dray.ids import SeededEntropy
from dray.log.memory import MemoryLog
from dray.log.port import Log
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import Mode
from dray.machine.heaps.shard import Shard
from dray.objects.memory import MemoryObjects
from dray.objects.port import Objects
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.writer import Timing
from tests.replica.domain import new_log, replica_on

CALM = Timing(ttl_ms=120_000, keepalive_ms=40_000, settle_ms=20_000)
LONG_S = 60.0
"""What a busy machine may take for anything."""


@dataclass
class Stand:
    """One broker."""

    service: HeapService
    replica: Replica
    objects: Objects

    def shard(self, heap: Heap) -> Shard:
        found = self.replica.machine.heaps.find(heap.shard)
        assert found is not None
        return found

    async def take(self, heap: Heap, count: int = 1, *, seconds: float = LONG_S, holder: str = "c") -> list[Delivery]:
        return await self.service.pop(heap, most=count, holder=holder, wait_s=seconds)

    async def ack(self, heap: Heap, delivery: Delivery) -> None:
        await self.service.settle(heap, Settlement.ACK, delivery.token)


@asynccontextmanager
async def stand(
    log: Log, objects: Objects, name: str = "broker-1", *, clock: Clock | None = None, timing: Timing = CALM, **policy
) -> AsyncIterator[Stand]:
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        replica = await stack.enter_async_context(replica_on(log, name, clock=clock, timing=timing).running())
        await replica.open_session()
        service = HeapService(
            domains=Domains({0: replica}), objects=objects, clock=clock, entropy=SeededEntropy(f"{name} heaps"),
            policy=HeapPolicy(**policy), zone="a",
        )  # fmt: skip
        await stack.enter_async_context(service.running())
        yield Stand(service, replica, objects)


@asynccontextmanager
async def one(**policy) -> AsyncIterator[tuple[Stand, Heap]]:
    """A broker with a heap."""
    async with stand(await new_log(version=2), MemoryObjects(), **policy) as broker:
        yield broker, await broker.service.admin.make("jobs", mode=Mode.MIN)


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Stand, Stand]]:
    """Two brokers of one log."""
    log = await new_log(version=2)
    objects = MemoryObjects()
    async with stand(log, objects) as first, stand(MemoryLog(log.sequence), objects, "broker-2") as second:
        yield first, second


def job(payload: bytes = b"work", **fields) -> HeapMessage:
    return HeapMessage(payload=payload, **fields)
