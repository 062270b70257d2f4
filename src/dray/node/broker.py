"""A broker: one process, one data directory, everything there is.

Started from the bottom up, stopped from the top down: first no more requests
are taken, then what was taken is answered, then the session is given back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, TypeAlias

import dray
from dray.clock import SystemClock
from dray.config import Config
from dray.disk import DirectoryLock, LocalDisk
from dray.errors import DrayError, Unavailable
from dray.fetch.cache import ObjectCache
from dray.fetch.offsets import OffsetService as LogOffsets
from dray.fetch.service import FetchService
from dray.fetch.settings import FetchSettings
from dray.groups.offsets import OffsetService
from dray.ids import SystemEntropy
from dray.log.settings import LogSettings
from dray.machine.commands import Listener as ListenerRecord
from dray.machine.commands import RegisterBroker
from dray.machine.verdicts import BrokerRegistered
from dray.node import telemetry
from dray.node.addresses import HostPort, parse_host_port
from dray.node.descriptors import open_limit, share
from dray.node.directory import DataDirectory, Identity, new_identity
from dray.node.joining import WrongStore, check_not_joined, join_metadata, joined_directory, owner_of
from dray.node.metadata import Effects, Metadata, MetadataOptions, serve_in_memory, serve_metadata
from dray.node.settings import BrokerSettings, TopicSettings
from dray.objects.cluster import bind, bound_to
from dray.objects.opening import Effects as StoreEffects
from dray.objects.opening import StoreOptions, open_store
from dray.objects.port import Objects
from dray.objects.probe import store_date
from dray.objects.retry import RetryPolicy
from dray.objects.settings import ObjectsSettings
from dray.offload import ThreadOffload
from dray.produce.rules import RuleBook
from dray.produce.service import ProduceService
from dray.produce.settings import WalSettings
from dray.records import ScratchPool
from dray.replica.replica import CATALOG
from dray.replica.session import StoreDate
from dray.replica.settings import SessionSettings
from dray.replica.writer import Timing
from dray.retention.service import RetentionService
from dray.retention.settings import RetentionSettings
from dray.routing.service import Routing
from dray.servers.http.app import Probe, make_app
from dray.servers.http.server import serve_http
from dray.servers.http.settings import HttpSettings
from dray.servers.kafka.described import Descriptions
from dray.servers.kafka.handler import Services
from dray.servers.kafka.server import KafkaServer, Listener
from dray.servers.kafka.settings import KafkaSettings
from dray.servers.kafka.unpack import Unpacking
from dray.telemetry import logger
from dray.topics.service import TopicService

DISK_THREADS: Final = 8
UNPACK_THREADS: Final = 2
"""Threads of their own for decompression: bombs then hold at most this many scratch buffers, and no disk thread."""
LISTENER: Final = "client"
PROBE_TTL_S: Final = 2.0
LAST_PUTS_S: Final = 1.0
"""What the store is given for batches of clients that are gone, when the server has stopped."""

OpenStore: TypeAlias = Callable[[str, StoreOptions, StoreEffects], Awaitable[Objects]]
"""What makes a store of an address; a test gives one whose store fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker that serves."""

    kafka: HostPort
    http: HostPort
    metadata: Metadata
    services: Services

    @property
    def failed(self) -> "asyncio.Future[DrayError]":
        """Resolves when the process must end."""
        return self.metadata.failed


@asynccontextmanager
async def run_broker(config: Config, open_objects: OpenStore = open_store) -> AsyncIterator[RunningBroker]:
    """Serve for as long as the block runs; leaving it is a clean stop."""
    async with AsyncExitStack() as stack:
        effects, metadata, objects = await _open_state(stack, config, open_objects)
        services = await _start_services(stack, config, effects, metadata, objects)
        kafka_at, server = await _start_kafka(stack, config, services, effects)
        registration = _registration(config, kafka_at)
        await _register(metadata, registration)
        stack.push_async_callback(_stop, asyncio.create_task(_keep_registered(metadata, registration)))
        http_at = await _start_http(stack, config, metadata, objects)
        stack.push_async_callback(_drain, server, services.produce)
        telemetry.BUILD.labels(dray.__version__).set(1)
        logger().info(telemetry.READY, kafka=str(kafka_at), http=str(http_at))
        yield RunningBroker(kafka=kafka_at, http=http_at, metadata=metadata, services=services)
        logger().info(telemetry.STOPPING)
    logger().info(telemetry.STOPPED)


async def _open_state(
    stack: AsyncExitStack, config: Config, open_objects: OpenStore
) -> tuple[Effects, Metadata, Objects]:
    """The directory, the store and the metadata plane: all that a broker knows."""
    offload = ThreadOffload(DISK_THREADS)
    stack.callback(offload.close)
    effects = Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    broker, log = config.get(BrokerSettings), config.get(LogSettings)
    options = MetadataOptions(
        name="broker",
        timing=_timing(config.get(SessionSettings)),
        segment_bytes=int(log.segment_bytes),
        max_entry_bytes=int(log.max_entry_bytes),
        accept_clock=broker.accept_clock,
    )
    if log.url == "memory:":
        identity = new_identity(effects.entropy)
        objects = await _open_objects(stack, config, None, identity, effects, open_objects)
        return effects, await stack.enter_async_context(serve_in_memory(identity, effects, options)), objects
    owner = None if log.socket is None else owner_of(log.socket, effects.disk)
    root = broker.data.absolute()
    directory = DataDirectory(root, log.directory) if owner is None else joined_directory(root)
    effects.disk.make_dir(root)
    lock = DirectoryLock(root)
    stack.callback(lock.release)
    if owner is None:
        check_not_joined(root, effects.disk)
        identity = directory.claim(effects.disk, effects.entropy)
        objects = await _open_objects(stack, config, directory, identity, effects, open_objects)
        options = replace(options, store_date=await _ask_date(objects, effects))
        serving = serve_metadata(directory, identity, effects, options)
    else:
        identity = directory.claim(effects.disk, effects.entropy, owner.identity.cluster)
        objects = await _open_objects(stack, config, owner.directory, identity, effects, open_objects, joins=True)
        options = replace(options, store_date=await _ask_date(objects, effects))
        serving = join_metadata(owner, directory, identity, effects, options)
    return effects, await stack.enter_async_context(serving), objects


async def _ask_date(objects: Objects, effects: Effects) -> StoreDate | None:
    """What the store's clock says; after a long stop it vouches for ours (Q7). A store that cannot say does no harm."""
    try:
        date_ms = await store_date(objects, effects.entropy)
    except DrayError as error:
        logger().warning(telemetry.NO_DATE, error=str(error))
        return None
    return StoreDate(date_ms=date_ms, boot_ns=effects.clock.boot_ns())


async def _open_objects(
    stack: AsyncExitStack,
    config: Config,
    directory: DataDirectory | None,
    identity: Identity,
    effects: Effects,
    open_objects: OpenStore,
    *,
    joins: bool = False,
) -> Objects:
    """The object store, bound to this cluster; who joins others must find it bound."""
    settings = config.get(ObjectsSettings)
    objects = await open_objects(
        settings.url or ("memory:" if directory is None else str(directory.objects)),
        store_options(settings),
        StoreEffects(clock=effects.clock, entropy=effects.entropy, disk=effects.disk, offload=effects.offload),
    )
    stack.push_async_callback(objects.close)
    if joins and await bound_to(objects) != identity.cluster_id:
        raise WrongStore("this is not the store of the cluster: set objects.url to what its other brokers use")
    await bind(objects, identity.cluster_id)
    return objects


def store_options(settings: ObjectsSettings) -> StoreOptions:
    """How the configured store is reached."""
    secret, token = settings.secret_access_key, settings.session_token
    return StoreOptions(
        endpoint=settings.endpoint,
        region=settings.region,
        access_key=settings.access_key_id,
        secret_key=None if secret is None else secret.get_secret_value(),
        session_token=None if token is None else token.get_secret_value(),
        retry=RetryPolicy(
            attempts=settings.retries + 1,
            attempt_seconds=settings.attempt_timeout.total_seconds(),
            total_seconds=settings.deadline.total_seconds(),
        ),
    )


def _timing(settings: SessionSettings) -> Timing:
    millisecond = timedelta(milliseconds=1)
    return Timing(
        ttl_ms=settings.ttl // millisecond,
        keepalive_ms=settings.keepalive // millisecond,
        settle_ms=settings.ttl * 2 // 3 // millisecond,
    )


async def _start_services(
    stack: AsyncExitStack, config: Config, effects: Effects, metadata: Metadata, objects: Objects
) -> Services:
    domains, clock = metadata.domains, effects.clock
    cache = ObjectCache(int(config.get(FetchSettings).cache_bytes))
    local = not config.get(ObjectsSettings).is_remote
    topics = TopicService(domains=domains, entropy=effects.entropy, clock=clock)
    produce = ProduceService(
        domains=domains,
        objects=objects,
        clock=clock,
        policy=config.get(WalSettings).policy(local=local),
        written=cache,
        zone=config.get(BrokerSettings).zone,
    )
    await stack.enter_async_context(produce.running())
    fetch = FetchService(domains=domains, objects=objects, clock=clock, settings=config.get(FetchSettings), cache=cache)
    stack.push_async_callback(fetch.close)
    retention = RetentionService(domains=domains, store=objects, clock=clock, settings=config.get(RetentionSettings))
    for work in (topics.run(), retention.run(), _measure_lag()):
        stack.push_async_callback(_stop, asyncio.create_task(work))
    own = config.get(TopicSettings)
    routing = Routing(domains=domains, cluster_id=metadata.identity.cluster_id)
    unpacking = ThreadOffload(UNPACK_THREADS, "dray-unpack")
    stack.callback(unpacking.close)
    return Services(
        domains=domains,
        topics=topics,
        routing=routing,
        described=Descriptions(routing),
        produce=produce,
        rules=RuleBook(),
        fetch=fetch,
        log_offsets=LogOffsets(fetch, unpacking),
        offsets=OffsetService(domains=domains, topics=topics),
        clock=clock,
        unpacking=Unpacking(unpacking, UNPACK_THREADS),
        scratch=ScratchPool(),
        auto_create=own.auto_create,
        default_partitions=own.partitions,
    )


async def _start_kafka(
    stack: AsyncExitStack, config: Config, services: Services, effects: Effects
) -> tuple[HostPort, KafkaServer]:
    settings = config.get(KafkaSettings)
    wanted = parse_host_port(settings.listen, "kafka.listen")
    given = share(settings.limits(), open_limit())
    if given.limits.max_connections < settings.max_connections:
        logger().info(telemetry.FEW_DESCRIPTORS, open_files=open_limit(), connections=given.limits.max_connections)
    server = await stack.enter_async_context(
        KafkaServer(services=services, clock=effects.clock, limits=given.limits, pressure=services.produce.pressure)
    )
    host, port = await server.listen(Listener(name=LISTENER, host=wanted.host, port=wanted.port, backlog=given.backlog))
    _warn_if_exposed(wanted, "kafka")
    return HostPort(host=host, port=port), server


async def _start_http(stack: AsyncExitStack, config: Config, metadata: Metadata, objects: Objects) -> HostPort:
    wanted = parse_host_port(config.get(HttpSettings).listen, "http.listen")
    app = make_app(
        {"metadata": _metadata_probe(metadata), "store": _store_probe(objects, metadata.identity.cluster_id)}
    )
    host, port = await stack.enter_async_context(serve_http(app, wanted.host, wanted.port))
    _warn_if_exposed(wanted, "http")
    return HostPort(host=host, port=port)


def _warn_if_exposed(address: HostPort, listener: str) -> None:
    if not address.is_loopback:
        logger().warning(telemetry.EXPOSED, listener=listener, host=address.host)


def _registration(config: Config, kafka_at: HostPort) -> RegisterBroker:
    """What the cluster is told: where clients reach this broker."""
    settings = config.get(BrokerSettings)
    advertise = config.get(KafkaSettings).advertise
    address = kafka_at if advertise is None else parse_host_port(advertise, "kafka.advertise")
    return RegisterBroker(
        broker_id=settings.id,
        zone=settings.zone,
        rack=settings.rack,
        listeners=(ListenerRecord(name=LISTENER, host=address.host, port=address.port or kafka_at.port),),
        started_ms=SystemClock().wall_ms(),
        build=dray.__version__,
    )


async def _register(metadata: Metadata, registration: RegisterBroker) -> None:
    (verdict,) = await metadata.domains.catalog.propose(registration)
    if not isinstance(verdict, BrokerRegistered):
        raise Unavailable("the broker could not be registered: is another one running with this id?", verdict=verdict)


async def _keep_registered(metadata: Metadata, registration: RegisterBroker) -> None:
    """A broker record lives as long as its session (M8): a session that was opened anew needs a new one."""
    catalog = metadata.domains.catalog
    with catalog.waiter((CATALOG,)) as waiter:
        while True:
            waiter.clear()
            session = catalog.session
            if session is None or catalog.machine.brokers.of_session(session.id) is None:
                with suppress(DrayError):  # tried again at the next look; readiness tells meanwhile
                    await _register(metadata, registration)
            await waiter.wait(1.0)


async def _drain(server: KafkaServer, produce: ProduceService) -> None:
    """Answer what was taken: requests wait for their batches, so both are drained at once.

    A store that hangs keeps nobody: what is not stored when the server has cut its clients was not acknowledged.
    """
    storing = asyncio.create_task(produce.drain())
    await server.stop()
    _, late = await asyncio.wait((storing,), timeout=LAST_PUTS_S)
    if late:
        logger().warning(telemetry.NOT_DRAINED, bytes=produce.pressure.unacked)
        await _stop(storing)


def _metadata_probe(metadata: Metadata) -> Probe:
    async def probe() -> None:
        metadata.domains.catalog.check_serving()

    return probe


def _store_probe(objects: Objects, cluster_id: str) -> Probe:
    """Is what we were bound to still there? One look serves whoever asks within a short time."""
    state: dict[str, float | DrayError | None] = {"at": -PROBE_TTL_S, "error": None}

    async def probe() -> None:
        now = asyncio.get_running_loop().time()
        at, error = state["at"], state["error"]
        if isinstance(at, float) and now - at >= PROBE_TTL_S:
            try:
                async with asyncio.timeout(PROBE_TTL_S):
                    found = await bound_to(objects)
                # A volume that is not mounted any more is an empty directory: it answers, and is not our store.
                error = None if found == cluster_id else Unavailable("the store is not this cluster's", found=found)
            except TimeoutError:
                error = Unavailable("the store does not answer")
            except DrayError as failure:
                error = failure
            state.update(at=now, error=error)
        if isinstance(error, DrayError):
            raise error

    return probe


async def _measure_lag(interval_s: float = 0.5) -> None:
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(interval_s)
        telemetry.LOOP_LAG.observe(max(0.0, loop.time() - before - interval_s))


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
