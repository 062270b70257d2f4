"""The services of a process, built once for everybody: brokers, the simulator, tests.

Servers are put on top of them and know nothing of each other; what only one
protocol needs is built beside its server.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from dray.consume.acks import AckService
from dray.consume.burial import Burial
from dray.consume.service import ConsumeService
from dray.consume.settings import ConsumeSettings
from dray.fetch.cache import ObjectCache
from dray.fetch.offsets import OffsetLookup as LogOffsets
from dray.fetch.reading import RecordReads
from dray.fetch.service import FetchService
from dray.fetch.settings import FetchSettings
from dray.groups.offsets import BUDGET_BYTES, OffsetService
from dray.groups.placement import domain_of_group
from dray.groups.service import GroupService
from dray.groups.settings import GroupSettings
from dray.heaps.policy import HeapPolicy
from dray.heaps.service import HeapService
from dray.node.plane import Plane
from dray.node.pools import UNPACK_THREADS
from dray.produce.intake import Intake
from dray.produce.publishing import Publisher
from dray.produce.service import ProduceService
from dray.produce.settings import FlushPolicy
from dray.produce.unpacking import Unpacking
from dray.retention.records import RecordService
from dray.retention.service import RetentionService
from dray.retention.settings import RetentionSettings
from dray.routing.service import Routing
from dray.topics.service import TopicService


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """How the services of a process behave."""

    flush: FlushPolicy = field(default_factory=FlushPolicy)
    fetch: FetchSettings = field(default_factory=FetchSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    heaps: HeapPolicy = field(default_factory=HeapPolicy)
    consume: ConsumeSettings = field(default_factory=ConsumeSettings)
    zone: str = ""
    offsets_bytes: int = BUDGET_BYTES
    """What the committed offsets of all groups may take."""
    upkeep: bool = True
    """Let groups, topics and retention look for work by themselves; whoever does not calls them when it wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """What waits between requests and the machine."""

    plane: Plane
    topics: TopicService
    routing: Routing
    produce: ProduceService
    intake: Intake
    publisher: Publisher
    fetch: FetchService
    reads: RecordReads
    consume: ConsumeService
    log_offsets: LogOffsets
    offsets: OffsetService
    groups: GroupService
    heaps: HeapService
    records: RecordService
    retention: RetentionService
    cache: ObjectCache
    """Objects that were written or read here."""


@asynccontextmanager
async def run_services(plane: Plane, settings: ServiceSettings) -> AsyncIterator[BrokerServices]:
    """Serve for as long as the block runs; whoever still waits at its end is told so."""
    async with AsyncExitStack() as stack:
        services = build_services(plane, settings)
        await stack.enter_async_context(services.produce.running())
        await stack.enter_async_context(services.heaps.running())
        stack.push_async_callback(services.fetch.close)
        if settings.upkeep:
            for name, work in (
                ("groups", services.groups.run),
                ("heaps", services.heaps.run),
                ("topics", services.topics.run),
                ("retention", services.retention.run),
            ):
                stack.push_async_callback(plane.watch.stop, plane.watch.start(name, work))
        yield services


def build_services(plane: Plane, settings: ServiceSettings) -> BrokerServices:
    """The services at rest: none takes requests that wait, or looks for work, before it runs."""
    domains, objects, clock, watch = plane.domains, plane.objects, plane.clock, plane.watch
    cache = ObjectCache(int(settings.fetch.cache_bytes))
    topics = TopicService(domains=domains, entropy=plane.entropy, clock=clock)
    fetch = FetchService(
        domains=domains, objects=objects, clock=clock, settings=settings.fetch, cache=cache, offload=plane.unpack
    )
    keeps = None if domains.is_whole else domain_of_group
    routing = Routing(domains=domains, cluster_id=plane.identity.cluster_id, keeps=keeps)
    produce = ProduceService(
        domains=domains, objects=objects, clock=clock, policy=settings.flush, written=cache, zone=settings.zone,
        watch=watch,
    )  # fmt: skip
    intake = Intake(clock=clock, unpacking=Unpacking(plane.unpack, UNPACK_THREADS))
    reads = RecordReads(fetch, plane.unpack)
    return BrokerServices(
        plane=plane,
        topics=topics,
        routing=routing,
        produce=produce,
        intake=intake,
        publisher=Publisher(topics=topics, produce=produce, intake=intake, offload=plane.unpack),
        fetch=fetch,
        reads=reads,
        consume=ConsumeService(
            domains=domains, reads=reads, acks=AckService(domains, topics, settings.offsets_bytes),
            burial=Burial(topics=topics, produce=produce, intake=intake), clock=clock, settings=settings.consume,
        ),
        log_offsets=LogOffsets(fetch, plane.unpack),
        offsets=OffsetService(domains=domains, topics=topics, budget_bytes=settings.offsets_bytes),
        groups=GroupService(
            domains=domains, topics=topics, routing=routing, clock=clock, entropy=plane.entropy,
            offload=plane.unpack, settings=settings.groups,
        ),
        heaps=HeapService(
            domains=domains, objects=objects, clock=clock, entropy=plane.entropy, policy=settings.heaps,
            zone=settings.zone,
        ),
        records=RecordService(domains),
        retention=RetentionService(
            domains=domains, store=objects, clock=clock, settings=settings.retention, watch=watch
        ),
        cache=cache,
    )  # fmt: skip
