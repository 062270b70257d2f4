"""Two brokers of one cluster with several domains; the second sees what others did only when it asks."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from dray.clock import ManualClock
from dray.machine.topics import Topic
from dray.node.services import BrokerServices, ServiceSettings, run_services
from dray.objects.memory import MemoryObjects
from dray.produce.settings import FlushPolicy
from dray.replica.domains import Domains
from dray.topics.service import NewTopic
from tests.fetch.world import CALM, DelayedLog
from tests.plane import plane_of
from tests.replica.domain import replica_on
from tests.topics.test_service import cluster_logs

DATA_DOMAINS = 2
FEW, MANY = 2, 8


class AskedLog(DelayedLog):
    """A lagging one that shows what is new to whoever wrote something, too."""

    async def append(self, entry):
        self.open.set()
        return await super().append(entry)


@dataclass
class LateBroker:
    """A broker, and what it sees the logs through."""

    services: BrokerServices
    logs: dict[int, AskedLog]

    @property
    def topic(self) -> Topic:
        """`t`, as it is known here."""
        found = self.services.topics.peek("t")
        assert found is not None, "it was made before"
        return found

    def fall_behind(self, *domains: int) -> None:
        """See nothing new of these domains (of all, if none is named) until the log is asked for its tail."""
        for domain in domains or self.logs:
            self.logs[domain].open.clear()

    async def sync(self, *domains: int) -> None:
        for domain in domains or self.logs:
            await self.services.plane.domains[domain].sync()

    async def grow(self) -> None:
        """Give `t` more partitions."""
        await self.services.topics.add_partitions(self.topic, MANY)

    def knows(self, partition: int) -> tuple[bool, bool]:
        """Whether the catalog and the data domain know a partition, in memory."""
        streams = self.services.plane.domains[0].machine.topics.named("t").streams
        if partition >= len(streams):
            return False, False
        number = streams[partition]
        return True, self.services.plane.domains.of(number).machine.streams.find(number) is not None


@asynccontextmanager
async def late_broker(logs, name: str, objects: MemoryObjects) -> AsyncIterator[LateBroker]:
    async with AsyncExitStack() as stack:
        clock, replicas, handles = ManualClock(), {}, {}
        for domain, log in logs.items():
            handles[domain] = AskedLog(log.handle())
            replica = replica_on(handles[domain], name, clock=clock, timing=CALM)
            replicas[domain] = await stack.enter_async_context(replica.running())
            await replica.open_session()
        settings = ServiceSettings(flush=FlushPolicy(appends_per_second=100_000), zone="a", upkeep=False)
        plane = plane_of(Domains(replicas), objects, clock, name)
        yield LateBroker(await stack.enter_async_context(run_services(plane, settings)), handles)


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[LateBroker, LateBroker]]:
    """Both know the topic `t`, which has few partitions."""
    logs, objects = await cluster_logs(DATA_DOMAINS, version=2), MemoryObjects()
    async with late_broker(logs, "broker-1", objects) as one, late_broker(logs, "broker-2", objects) as two:
        await one.services.topics.create(NewTopic(name="t", partitions=FEW, replication_factor=1, configs={}))
        await two.sync()
        yield one, two
