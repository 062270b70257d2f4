"""Records handed out and settled, on a log that fails when it is told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from dray.clock import Clock, ManualClock
from dray.consume.errors import AckFailed, AckUnknown
from dray.consume.service import ConsumerWants, ConsumeService
from dray.consume.settings import ConsumeSettings
from dray.log.port import LostReply, NotAppended, Position
from dray.machine.topics import Topic
from dray.node.services import BrokerServices, ServiceSettings, run_services
from dray.objects.memory import MemoryObjects
from dray.produce.settings import FlushPolicy
from dray.replica.domains import Domains
from dray.topics.service import NewTopic
from tests.plane import plane_of
from tests.produce.broker import CALM, batch
from tests.replica.domain import new_log, replica_on


class Moody:
    """A log that refuses entries, or loses them, while it is told to."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.mood = ""

    async def append(self, entry: bytes) -> Position:
        if self.mood == "refuses":
            raise NotAppended("not now")
        if self.mood == "silent":
            raise LostReply("nobody knows")
        return await self.inner.append(entry)

    def __getattr__(self, name):
        return getattr(self.inner, name)


@dataclass
class Stand:
    services: BrokerServices
    topic: Topic

    @property
    def consume(self) -> ConsumeService:
        return self.services.consume

    async def publish(self, *values: bytes) -> None:
        for value in values:
            await self.services.produce.submit(batch(self.topic.streams[0], value))

    async def take(self, most: int = 100, *, wait_s: float = 0.0, lease_s: float | None = None) -> list[bytes]:
        wants = ConsumerWants(group="g", most=most, max_bytes=1 << 20, wait_s=wait_s, lease_s=lease_s)
        return [one.record.value for one in await self.consume.consume(self.topic, wants)]

    async def ack(self, *offsets: int) -> int:
        return await self.consume.ack(self.topic, "g", 0, [(offset, offset + 1) for offset in offsets])


@asynccontextmanager
async def stand(log, name: str = "broker-1", objects=None, clock: Clock | None = None) -> AsyncIterator[Stand]:
    clock = clock or ManualClock()
    async with AsyncExitStack() as stack:
        replica = await stack.enter_async_context(replica_on(log, name, clock=clock, timing=CALM).running())
        await replica.open_session()
        settings = ServiceSettings(
            flush=FlushPolicy(appends_per_second=100_000), zone="a", upkeep=False,
            consume=ConsumeSettings(max_retries=1, backoff="0s"),
        )  # fmt: skip
        plane = plane_of(Domains({0: replica}), objects or MemoryObjects(), clock, name)
        services = await stack.enter_async_context(run_services(plane, settings))
        await replica.sync()
        found = services.topics.peek("t")
        if found is None:
            wanted = NewTopic(name="t", partitions=1, replication_factor=1, configs={})
            found = await services.topics.create(wanted)
        yield Stand(services, found)


async def test_an_ack_that_the_log_does_not_take_changes_nothing_and_is_told():
    """CO2, W-24, W-25, W-06"""
    log = Moody(await new_log(2))
    async with stand(log) as one:
        await one.publish(b"a", b"b")
        assert await one.take() == [b"a", b"b"]
        before = one.services.plane.domains.catalog.machine.position
        log.mood = "refuses"
        with pytest.raises(AckFailed):
            await one.ack(0)
        log.mood = ""
        offsets = one.services.plane.domains.catalog.machine.offsets
        assert offsets.find("g", one.topic.id, 0) is None
        assert one.services.plane.domains.catalog.machine.position == before
        assert await one.ack(0) == 1
        assert offsets.find("g", one.topic.id, 0).offset == 1


async def test_a_covered_ack_appends_nothing_to_the_log():
    """CO1, W-02, W-22, W-26"""
    log = await new_log(2)
    async with stand(log) as one:
        await one.publish(b"a", b"b", b"c")
        await one.take()
        await one.ack(0, 2)
        before = await log.tail()
        for _ in range(5):
            assert await one.ack(0) == 1
            assert await one.ack(2) == 1
        assert await log.tail() == before


async def test_a_lease_that_passes_is_counted_before_the_record_comes_again():
    """CO8, CO4, B-2: the count is in the log, so it outlives the broker."""
    clock, log, objects = ManualClock(), await new_log(2), MemoryObjects()
    async with stand(log, objects=objects, clock=clock) as one:
        await one.publish(b"a", b"b")
        assert await one.take(lease_s=5) == [b"a", b"b"]
        assert await one.take() == [], "both are leased"
        await one.ack(1)
        clock.advance(5_000)
        assert await one.take(lease_s=5) == [b"a"]
        acks = one.services.plane.domains.catalog.machine.offsets.acks("g", one.topic.id, 0)
        assert acks.failed == {0: 1}
    async with stand(log, "broker-2", objects, clock) as two:
        assert await two.take(lease_s=5) == [b"a"], "W-37: what was not settled is handed out again"
        clock.advance(5_000)
        assert await two.take() == [], "it has failed too often"
        grave = two.services.topics.peek("dlq.t")
        assert two.services.plane.domains.catalog.machine.streams.find(grave.streams[0]).end == 1
        assert two.services.plane.domains.catalog.machine.offsets.find("g", two.topic.id, 0).offset == 2


async def test_no_record_is_passed_over_and_none_is_out_twice_with_many_who_take():
    """CO4, CO5"""
    log = await new_log(2)
    async with stand(log) as one:
        values = [b"%d" % number for number in range(60)]
        await one.publish(*values)
        found: list[bytes] = []

        async def taker() -> None:
            while some := await one.take(7):
                found.extend(some)
                await one.ack(*(int(value) for value in some))

        await asyncio.gather(*(taker() for _ in range(5)))
        assert sorted(found, key=int) == values
        assert one.services.plane.domains.catalog.machine.offsets.find("g", one.topic.id, 0).offset == 60


async def test_an_ack_whose_outcome_nobody_knows_is_told_as_such_and_repeated_harmlessly():
    """E1, W-30"""
    clock, inner = ManualClock(), await new_log(2)
    log = Moody(inner)
    async with stand(log, clock=clock) as one:
        await one.publish(b"a")
        await one.take()
        log.mood = "silent"
        work = asyncio.create_task(one.ack(0))
        while not work.done():
            await asyncio.sleep(0)
            clock.advance(1_000)
        with pytest.raises(AckUnknown):
            await work
