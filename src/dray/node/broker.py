"""A broker: one process, one data directory, everything there is.

Started from the bottom up, stopped from the top down: first no more requests
are taken, then what was taken is answered, then the session is given back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
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
from dray.machine.brokers import BrokerRegistered, RegisterBroker
from dray.machine.brokers import Listener as ListenerRecord
from dray.node import telemetry
from dray.node.addresses import HostPort, advertised
from dray.node.birth import check_birth, remember_birth
from dray.node.descriptors import open_limit, share
from dray.node.directory import DataDirectory, Identity, new_identity
from dray.node.joining import WrongStore, check_not_joined, join_metadata, joined_directory, owner_of
from dray.node.listening import Taken, refusal, take
from dray.node.metadata import Effects, Metadata, MetadataOptions, serve_in_memory, serve_metadata
from dray.node.overview import BrokerView
from dray.node.pools import UNPACK_THREADS, Pools
from dray.node.settings import BrokerSettings, TopicSettings
from dray.node.space import DiskWatch, Places
from dray.objects.cluster import bind, bound_to
from dray.objects.opening import Effects as StoreEffects
from dray.objects.opening import StoreOptions, local_root, open_store
from dray.objects.port import Objects
from dray.objects.probe import store_date
from dray.objects.retry import RetryPolicy
from dray.objects.settings import ObjectsSettings
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

LISTENER: Final = "client"
PROBE_TTL_S: Final = 2.0
OFFSETS_SHARE: Final = 4
"""The part of `wal.index_budget` that committed offsets may take: made-up groups must not stop producers."""
LAST_PUTS_S: Final = 1.0
"""What the store is given for batches of clients that are gone, when the server has stopped."""

OpenStore: TypeAlias = Callable[[str, StoreOptions, StoreEffects], Awaitable[Objects]]
"""What makes a store of an address; a test gives one whose store fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker that serves."""

    kafka: HostPort
    """Where it listens."""
    advertised: HostPort
    """Where clients are told to connect."""
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
        ports = _take_ports(stack, config)
        state = await _open_state(stack, config, open_objects)
        services = await _start_services(stack, config, state)
        registration = _registration(config, ports.advertised)
        await _register(state.metadata, registration)  # RG2: before anybody can ask
        watch = state.metadata.watch
        keeper = watch.start("registration", lambda: _keep_registered(state.metadata, registration))
        stack.push_async_callback(watch.stop, keeper)
        server = await _start_kafka(stack, config, services, state, ports.kafka)
        await _start_http(stack, config, state, ports.http)
        stack.push_async_callback(_drain, server, services.produce)
        telemetry.BUILD.labels(dray.__version__).set(1)
        kafka_at, http_at = ports.kafka.address, ports.http.address
        logger().info(telemetry.READY, kafka=str(ports.advertised), http=str(http_at))
        yield RunningBroker(
            kafka=kafka_at, advertised=ports.advertised, http=http_at, metadata=state.metadata, services=services
        )
        logger().info(telemetry.STOPPING)
    logger().info(telemetry.STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    """The addresses of a broker, bound."""

    kafka: Taken
    advertised: HostPort
    http: Taken


def _take_ports(stack: AsyncExitStack, config: Config) -> _Ports:
    """Take both ports or none, before anything is made or opened."""
    settings = config.get(KafkaSettings)
    taken = []
    for text, key, flag in (
        (settings.listen, "kafka.listen", "--kafka"),
        (config.get(HttpSettings).listen, "http.listen", "--http"),
    ):
        taken.append(take(text, key, flag))
        for bound in taken[-1].sockets:
            stack.callback(bound.close)
        if not taken[-1].address.is_loopback:
            logger().warning(telemetry.EXPOSED, listener=key.partition(".")[0], host=taken[-1].address.host)
    kafka, http = taken
    told = advertised(kafka.address, settings.advertise)
    if kafka.address.is_wildcard and settings.advertise is None:
        logger().warning(telemetry.ADVERTISED, host=told.host, port=told.port)
    return _Ports(kafka=kafka, advertised=told, http=http)


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """All that a broker knows, and what it knows it by."""

    effects: Effects
    pools: Pools
    metadata: Metadata
    objects: Objects
    places: Places


async def _open_state(stack: AsyncExitStack, config: Config, open_objects: OpenStore) -> _State:
    """The directory, the store and the metadata plane: all that a broker knows."""
    pools, clock = Pools(), SystemClock()
    stack.callback(_close_pools, pools, clock)
    effects = Effects(clock=clock, entropy=SystemEntropy(), disk=LocalDisk(), offload=pools.log, upkeep=pools.upkeep)
    broker, log = config.get(BrokerSettings), config.get(LogSettings)
    options = MetadataOptions(
        name="broker",
        timing=_timing(config.get(SessionSettings)),
        segment_bytes=int(log.segment_bytes),
        max_entry_bytes=int(log.max_entry_bytes),
        accept_clock=broker.accept_clock,
    )
    store = _Store(config, effects, pools, open_objects)
    if log.url == "memory:":
        identity = new_identity(effects.entropy)
        objects = await store.open(stack, None, identity)
        metadata = await stack.enter_async_context(serve_in_memory(identity, effects, options))
        return _State(effects=effects, pools=pools, metadata=metadata, objects=objects, places=store.places(None))
    owner = None if log.socket is None else owner_of(log.socket, effects.disk)
    root = broker.data.absolute()
    directory = DataDirectory(root, log.directory) if owner is None else joined_directory(root)
    effects.disk.make_dir(root)
    lock = DirectoryLock(root)
    stack.callback(lock.release)
    if owner is None:
        check_not_joined(root, effects.disk)
        identity = directory.claim(effects.disk, effects.entropy)
        objects = await store.open(stack, directory, identity)
        options = replace(options, store_date=await _ask_date(config, objects, effects))
        metadata = await stack.enter_async_context(serve_metadata(directory, identity, effects, options))
        await remember_birth(objects, directory, effects.disk)
    else:
        identity = directory.claim(effects.disk, effects.entropy, owner.identity.cluster)
        objects = await store.open(stack, owner.directory, identity, joins=True)
        options = replace(options, store_date=await _ask_date(config, objects, effects))
        metadata = await stack.enter_async_context(join_metadata(owner, directory, identity, effects, options))
    domains = [domain for domain, _ in metadata.domains]
    places = store.places(directory, domains) if owner is None else store.places(owner.directory, domains, joined=root)
    return _State(effects=effects, pools=pools, metadata=metadata, objects=objects, places=places)


def _close_pools(pools: Pools, clock: SystemClock) -> None:
    hanging = pools.close(clock)
    if hanging:
        logger().error(telemetry.HANGS, pools=",".join(hanging))


async def _ask_date(config: Config, objects: Objects, effects: Effects) -> StoreDate | None:
    """What the store's clock says; after a long stop it vouches for ours (Q7). A store that cannot say does no harm."""
    if not config.get(ObjectsSettings).has_own_clock:
        return None  # files are dated by the very clock that would be vouched for
    try:
        date_ms = await store_date(objects, effects.entropy)
    except DrayError as error:
        logger().warning(telemetry.NO_DATE, error=str(error))
        return None
    return StoreDate(date_ms=date_ms, boot_ns=effects.clock.boot_ns())


class _Store:
    """The object store of the configuration."""

    def __init__(self, config: Config, effects: Effects, pools: Pools, open_objects: OpenStore) -> None:
        self._settings = config.get(ObjectsSettings)
        self._effects = StoreEffects(
            clock=effects.clock, entropy=effects.entropy, disk=effects.disk, offload=pools.puts, reads=pools.reads,
            upkeep=pools.upkeep,
        )  # fmt: skip
        self._open_objects = open_objects

    async def open(
        self, stack: AsyncExitStack, directory: DataDirectory | None, identity: Identity, *, joins: bool = False
    ) -> Objects:
        """The object store, bound to this cluster; who joins others must find it bound."""
        objects = await self._open_objects(self._address(directory), store_options(self._settings), self._effects)
        stack.push_async_callback(objects.close)
        if joins and await bound_to(objects) != identity.cluster_id:
            raise WrongStore("this is not the store of the cluster: set objects.url to what its other brokers use")
        if not joins and directory is not None and self._settings.url != "memory:":
            await check_birth(objects, directory, identity, self._effects.disk)
        await bind(objects, identity.cluster_id)
        return objects

    def places(
        self, directory: DataDirectory | None, domains: Sequence[int] = (), joined: Path | None = None
    ) -> Places:
        """What of the broker lies on disks of this machine."""
        records = local_root(self._address(directory))
        rooms = {} if directory is None else {"log": directory.meta}
        if joined is not None:
            rooms["checkpoints"] = joined
        return Places(
            rooms=rooms if records is None else {**rooms, "records": records},
            logs={} if directory is None else {domain: directory.log(domain) for domain in domains},
        )

    def _address(self, directory: DataDirectory | None) -> str:
        return self._settings.url or ("memory:" if directory is None else str(directory.objects))


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


async def _start_services(stack: AsyncExitStack, config: Config, state: _State) -> Services:
    effects, metadata, objects, unpacking = state.effects, state.metadata, state.objects, state.pools.unpack
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
        watch=metadata.watch,
    )
    await stack.enter_async_context(produce.running())
    fetch = FetchService(domains=domains, objects=objects, clock=clock, settings=config.get(FetchSettings), cache=cache)
    stack.push_async_callback(fetch.close)
    watch = metadata.watch
    retention = RetentionService(
        domains=domains, store=objects, clock=clock, settings=config.get(RetentionSettings), watch=watch
    )
    for name, work in (("topics", topics.run), ("retention", retention.run), ("loop-lag", _measure_lag)):
        stack.push_async_callback(watch.stop, watch.start(name, work))
    own = config.get(TopicSettings)
    routing = Routing(domains=domains, cluster_id=metadata.identity.cluster_id)
    return Services(
        domains=domains,
        topics=topics,
        routing=routing,
        described=Descriptions(routing),
        produce=produce,
        rules=RuleBook(),
        fetch=fetch,
        log_offsets=LogOffsets(fetch, unpacking),
        offsets=OffsetService(
            domains=domains, topics=topics, budget_bytes=int(config.get(WalSettings).index_budget) // OFFSETS_SHARE
        ),
        clock=clock,
        unpacking=Unpacking(unpacking, UNPACK_THREADS),
        scratch=ScratchPool(),
        auto_create=own.auto_create,
        default_partitions=own.partitions,
    )


async def _start_kafka(
    stack: AsyncExitStack, config: Config, services: Services, state: _State, taken: Taken
) -> KafkaServer:
    settings = config.get(KafkaSettings)
    given = share(settings.limits(), open_limit())
    if given.limits.max_connections < settings.max_connections:
        logger().info(telemetry.FEW_DESCRIPTORS, open_files=open_limit(), connections=given.limits.max_connections)
    server = await stack.enter_async_context(
        KafkaServer(
            services=services,
            clock=state.effects.clock,
            limits=given.limits,
            pressure=services.produce.pressure,
            watch=state.metadata.watch,
        )
    )
    at = taken.address
    await server.listen(
        Listener(name=LISTENER, host=at.host, port=at.port, sockets=taken.sockets, backlog=given.backlog)
    )
    return server


async def _start_http(stack: AsyncExitStack, config: Config, state: _State, taken: Taken) -> None:
    disks = DiskWatch(
        state.places, int(config.get(BrokerSettings).disk_reserve), state.pools.upkeep, state.effects.clock
    )
    stack.push_async_callback(disks.close)
    probes = {
        "metadata": _metadata_probe(state.metadata),
        "store": _store_probe(state.objects, state.metadata.identity.cluster_id),
        "disk": disks.probe,
        "tasks": _tasks_probe(state.metadata),
    }
    app = make_app(probes, BrokerView(state.metadata, disks, state.effects.clock))
    try:
        await stack.enter_async_context(serve_http(app, taken.sockets))
    except OSError as error:  # bound by both of us, and the other was first to listen
        raise refusal(error, taken.address, "http.listen", "--http") from error


def _registration(config: Config, told: HostPort) -> RegisterBroker:
    """What the cluster is told: where clients reach this broker."""
    settings = config.get(BrokerSettings)
    return RegisterBroker(
        broker_id=settings.id,
        zone=settings.zone,
        rack=settings.rack,
        listeners=(ListenerRecord(name=LISTENER, host=told.host, port=told.port),),
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


def _tasks_probe(metadata: Metadata) -> Probe:
    async def probe() -> None:
        metadata.watch.check()

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
