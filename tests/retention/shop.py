"""A small cluster on one log per domain, with objects and a clock that tests move."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from dray.clock import ManualClock
from dray.ids import SeededEntropy
from dray.log.memory import MemoryLog
from dray.machine.append import Accepted, Append, Appended, pack_rows
from dray.machine.head import SUPPORTED, Genesis, founding
from dray.machine.machine import Machine
from dray.machine.names import StreamId, wal_id
from dray.machine.sessions import KeepAlive, SessionKind
from dray.machine.stream import Stream
from dray.machine.topics import Topic
from dray.node.plane import Plane
from dray.node.services import BrokerServices, ServiceSettings, build_services, run_services
from dray.objects.memory import MemoryObjects
from dray.objects.paths import WAL_PREFIX, WalName
from dray.objects.port import Objects
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.session import Identity
from dray.replica.writer import Timing
from dray.retention.service import RetentionService
from dray.retention.settings import RetentionSettings
from dray.topics.service import NewTopic
from tests.plane import plane_of

NOW = 1_700_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
CLUSTER = b"cluster-of-tests"
QUIET = Timing(ttl_ms=400 * DAY, keepalive_ms=100 * DAY, settle_ms=400 * DAY, wait_ms=400 * DAY)
"""Nobody keeps alive by itself: what is in the log was put there by the test or by retention."""
BATCH_BYTES = 100


class Cluster:
    """What outlives its brokers: logs, objects and time."""

    def __init__(self, store: Objects | None = None) -> None:
        self.clock = ManualClock(NOW)
        self.store: Objects = store or MemoryObjects(self.clock)
        self.logs: dict[int, MemoryLog] = {}

    async def begin(self, data_domains: int = 1) -> "Cluster":
        for domain in range(1 if data_domains == 1 else data_domains + 1):
            genesis = Genesis(
                cluster_id=CLUSTER, log_id=b"log-id-%d" % domain, domain=domain, domains=data_domains, version=SUPPORTED
            )
            self.logs[domain] = MemoryLog()
            await self.logs[domain].append(founding(genesis, NOW))
        return self

    @asynccontextmanager
    async def broker(self, name: str = "broker-1", **options) -> AsyncIterator["Broker"]:
        async with AsyncExitStack() as stack:
            replicas = {
                domain: await stack.enter_async_context(self.replica(log, name, **options).running())
                for domain, log in self.logs.items()
            }
            plane = self.plane(Domains(replicas), name)
            services = await stack.enter_async_context(run_services(plane, ServiceSettings(upkeep=False)))
            yield Broker(self, services, name)

    def plane(
        self, domains: Domains, name: str, store: Objects | None = None, clock: ManualClock | None = None
    ) -> Plane:
        """What a broker stands on; one that starts again draws other ids."""
        entropy = SeededEntropy(f"{name} {self.entries()} services")
        return replace(plane_of(domains, store or self.store, clock or self.clock, name), entropy=entropy)

    def replica(self, log: MemoryLog, name: str, *, timing: Timing = QUIET, **who) -> Replica:
        identity = Identity(
            name=name,
            instance=name.encode().ljust(16, b"-"),
            kind=SessionKind.BROKER,
            owner=True,
            **who,
        )
        entropy = SeededEntropy(f"{name} {log.sequence.last}")
        return Replica(
            log=log.handle(), machine=Machine(), identity=identity, clock=self.clock, entropy=entropy, timing=timing
        )  # fmt: skip

    def entries(self) -> int:
        """How much was written to all logs."""
        return sum(log.sequence.last for log in self.logs.values())

    async def paths(self) -> list[str]:
        return [info.path async for info in self.store.list(WAL_PREFIX)]


@dataclass
class Broker:
    """One process."""

    cluster: Cluster
    services: BrokerServices
    name: str

    def __post_init__(self) -> None:
        self.domains = self.services.plane.domains
        self.topics = self.services.topics
        self.catalog = self.domains.catalog
        self.machine = self.domains.catalog.machine

    def retention(self, store: Objects | None = None, clock: ManualClock | None = None, **settings) -> RetentionService:
        """This broker's; or one like it on another store or clock, or with other settings."""
        if store is None and clock is None and not settings:
            return self.services.retention
        plane = self.cluster.plane(self.domains, self.name, store, clock)
        return build_services(plane, ServiceSettings(retention=RetentionSettings(**settings))).retention

    async def topic(self, name: str = "orders", partitions: int = 1, **configs: str) -> Topic:
        given = {key.replace("_", "."): value for key, value in configs.items()}
        return await self.topics.create(NewTopic(name=name, partitions=partitions, replication_factor=1, configs=given))

    def stream(self, number: StreamId) -> Stream | None:
        return self.domains.of(number).machine.streams.find(number)

    async def put(self, domain: int = 0) -> tuple[str, bytes, int]:
        """Write an object that no entry names yet: (path, walId, creation time)."""
        replica = self.domains[domain]
        session = await replica.open_session()
        name = wal_id(replica.machine.log_id, session.id, session.take_counter())
        created = session.stamp_ms(self.cluster.clock.wall_ms(), self.cluster.clock.boot_ns())
        path = WalName.of(zone="a", domain=domain, created_ms=created, wal_id=name).path()
        await self.cluster.store.put(path, [name * 100])
        return path, name, created

    async def produce(self, *batches: tuple[StreamId, int], stamp: int | None = None) -> str:
        """Put and commit one object with (stream, records) batches; its path."""
        replica = self.domains.of(batches[0][0])
        path, name, created = await self.put(replica.machine.domain)
        await self.commit(name, created, *batches, stamp=stamp)
        return path

    async def commit(self, name: bytes, created: int, *batches: tuple[StreamId, int], stamp: int | None = None) -> None:
        replica = self.domains.of(batches[0][0])
        stamp = self.cluster.clock.wall_ms() if stamp is None else stamp
        rows = [
            (stream, stamp, stamp, -1, -1, records, BATCH_BYTES, 53 + at * (BATCH_BYTES + 4), -1)
            for at, (stream, records) in enumerate(batches)
        ]
        command = Append(wal_id=name, size=1 << 20, created_ms=created, zone="a", packed=pack_rows(rows))
        (verdict,) = await replica.propose(command)
        assert isinstance(verdict, Appended), verdict
        assert all(isinstance(batch, Accepted) for batch in verdict)

    async def pass_time(self, ms: int) -> None:
        """Let time pass as it does while a broker lives: in steps that are no jumps."""
        await pass_time(ms, self)


async def pass_time(ms: int, *brokers: Broker) -> None:
    """Let time pass for several brokers: each says so in the log, in steps that are no jumps."""
    while ms > 0:
        step = min(ms, HOUR)
        brokers[0].cluster.clock.advance(step)
        for broker in brokers:
            for _, replica in broker.domains:
                await replica.propose(KeepAlive())
        ms -= step


async def collect(service: RetentionService, broker: Broker, *, grace_ms: int = 10 * MINUTE) -> None:
    """What is due goes, and after its grace its objects go too."""
    await service.retain()
    await broker.pass_time(grace_ms)
    await service.retain()


DEFAULTS = RetentionSettings()
TTL_MS = DEFAULTS.orphan_ttl // timedelta(milliseconds=1)
