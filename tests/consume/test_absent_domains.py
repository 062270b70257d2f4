"""Records handed out, settled and read on a broker from which their domains went meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from dray.clock import SystemClock
from dray.consume.service import ConsumerWants
from dray.log.memory import MemoryLog
from dray.machine.machine import Machine
from dray.machine.topics import Topic
from dray.node.services import BrokerServices, ServiceSettings, run_services
from dray.objects.memory import MemoryObjects
from dray.produce.settings import FlushPolicy
from dray.replica.domains import SomeDomains
from dray.replica.opening import catch_up
from dray.replica.replica import Replica
from dray.replica.residence import DomainSlot, Residence, one_request
from dray.topics.service import NewTopic
from tests.fetch.world import CALM
from tests.plane import plane_of
from tests.produce.broker import batch
from tests.replica.domain import replica_on
from tests.topics.test_service import cluster_logs

CLOCK = SystemClock()
DATA = (1, 2)


@dataclass
class Stand:
    """A broker that leads nothing, and keeps a domain for as long as it is used."""

    services: BrokerServices
    residence: Residence
    topic: Topic

    async def forget(self) -> None:
        """Let all domains go but the catalog."""
        for domain in DATA:
            await self.residence.drop(self.residence.slots[domain])

    async def take(self) -> list[int]:
        """The partitions of the records that are handed out."""
        wants = ConsumerWants(group="g", most=100, max_bytes=1 << 20, wait_s=0.0)
        return sorted(one.partition for one in await self.services.consume.consume(self.topic, wants))


async def bring(replica: Replica, log: MemoryLog, stack: AsyncExitStack) -> None:
    replica.begin(Machine())
    await catch_up(replica, log, CLOCK.boot_ns)
    await stack.enter_async_context(replica.running())


@asynccontextmanager
async def stand() -> AsyncIterator[Stand]:
    residence = Residence(CLOCK, budget=0, idle_s=3_600.0, wait_s=60.0)  # nothing goes by itself
    async with AsyncExitStack() as stack:
        stack.push_async_callback(residence.close)
        for domain, log in (await cluster_logs(len(DATA), version=2)).items():
            replica = replica_on(log.handle(), clock=CLOCK, timing=CALM)
            slot = residence.slots[domain] = DomainSlot(domain, replica, partial(bring, replica, log.handle()), CLOCK)
            await residence.load(slot)
        settings = ServiceSettings(flush=FlushPolicy(appends_per_second=100_000), zone="a", upkeep=False)
        plane = plane_of(SomeDomains(residence), MemoryObjects(), CLOCK)
        services = await stack.enter_async_context(run_services(plane, settings))
        wanted = NewTopic(name="t", partitions=4, replication_factor=1, configs={})
        topic = await services.topics.create(wanted)
        for stream in topic.streams:
            await services.produce.submit(batch(stream))
        looking = asyncio.create_task(residence.run(lambda: frozenset()))
        stack.callback(looking.cancel)
        yield Stand(services, residence, topic)


async def test_a_group_that_is_remembered_goes_on_when_its_domains_went():
    """DL3: who asks waits until they are there again, and is not told to come again for ever."""
    async with stand() as one:
        assert await one.take() == [0, 1, 2, 3]
        await one.services.consume.nack(one.topic, "g", 2, [0], delay_s=0.0, error="")
        await one.forget()
        with one_request():
            assert await one.take() == [2]


@pytest.mark.parametrize("partition", range(4))
async def test_an_ack_is_taken_by_a_broker_that_has_neither_the_group_nor_the_partition(partition):
    """DL3"""
    async with stand() as one:
        await one.forget()
        with one_request():
            assert await one.services.consume.ack(one.topic, "g", partition, [(0, 1)]) == 1


async def test_a_read_as_of_a_version_waits_for_its_domain():
    """DL3"""
    async with stand() as one:
        await one.forget()
        with one_request():
            read = await one.services.reads.read(one.topic.streams[0], 0, max_records=9, max_bytes=1 << 20, before=1)
        assert [record.offset for record in read.records] == [0]
