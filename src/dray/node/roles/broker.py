"""A broker: one process, one data directory, everything there is.

Started from the bottom up, stopped from the top down: first the others are
told and clients sent to them, then no more requests are taken, then what was
taken is answered, then the session is given back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from starlette.routing import Mount

import dray
from dray.access.settings import AccessSettings
from dray.clock import Clock
from dray.config import Config
from dray.consume.settings import ConsumeSettings
from dray.errors import DrayError
from dray.fetch.settings import FetchSettings
from dray.groups.census import Census
from dray.groups.lag import LagWatch
from dray.groups.settings import GroupSettings
from dray.log.settings import LogSettings
from dray.log.urls import MemoryLogs, SharedLogs
from dray.node import telemetry
from dray.node.addresses import HostPort
from dray.node.admission import Admission, audit_probe, run_admission
from dray.node.api import durability_of, served_api
from dray.node.catalog import served_catalog
from dray.node.descriptors import open_limit, share
from dray.node.effects import ProcessEffects, of_process
from dray.node.listening import Ports, Taken, refusal, take_ports
from dray.node.metadata import MetadataOptions
from dray.node.overview import BrokerView
from dray.node.plane import OpenPlane, Plane, open_plane
from dray.node.plans import PlannerProcesses
from dray.node.pools import Pools
from dray.node.probes import domains_probe, metadata_probe, stop_probe, store_probe, tasks_probe
from dray.node.registration import (
    LISTENER,
    OUTSIDE,
    check_not_grown,
    keep_registered,
    register,
    registration_of,
    withdraw,
)
from dray.node.rules import tell_old_rules
from dray.node.services import BrokerServices, ServiceSettings, run_services
from dray.node.settings import BrokerSettings, ClusterSettings, TopicSettings
from dray.node.space import DiskWatch
from dray.node.store import OpenStore
from dray.objects.opening import open_store
from dray.objects.settings import ObjectsSettings
from dray.produce.service import ProduceService
from dray.produce.settings import WalSettings
from dray.replica.settings import SessionSettings
from dray.replica.writer import Timing
from dray.retention.settings import RetentionSettings
from dray.routing.sending import Sending
from dray.routing.settings import RoutingSettings
from dray.servers.grpc.settings import GrpcSettings
from dray.servers.http.api import PREFIX as API
from dray.servers.http.app import make_app
from dray.servers.http.catalog import catalog_routes
from dray.servers.http.gate import HttpGuard
from dray.servers.http.plans import plan_routes
from dray.servers.http.server import serve_http
from dray.servers.http.settings import HttpSettings
from dray.servers.kafka.broker_configs import BrokerConfigs
from dray.servers.kafka.described import Descriptions
from dray.servers.kafka.handler import Services
from dray.servers.kafka.server import KafkaServer, Listening
from dray.servers.kafka.settings import KafkaSettings
from dray.tables.settings import TableSettings
from dray.telemetry import logger

OFFSETS_SHARE: Final = 4
"""The part of `wal.index_budget` that committed offsets may take: made-up groups must not stop producers."""
LAST_PUTS_S: Final = 1.0
"""What the store is given for batches of clients that are gone, when the server has stopped."""


HEARD_S: Final = 0.2
"""What the other brokers get to hear of it before clients are sent to them: they would send them back."""
LEAVING_S: Final = 1.0
"""How long clients are sent to the other brokers before connections are closed: a round of metadata, and some more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker that serves."""

    kafka: HostPort
    """Where it listens."""
    advertised: HostPort
    """Where clients are told to connect."""
    outside: HostPort | None
    """The same for those who come from outside; None: there is one listener."""
    http: HostPort
    grpc: HostPort | None
    """Where clients of heaps are told to connect; None: nowhere."""
    plane: Plane
    services: Services
    failed: "asyncio.Future[DrayError]"
    """Resolves when the process must end."""


@asynccontextmanager
async def run_broker(config: Config, open_objects: OpenStore = open_store) -> AsyncIterator[RunningBroker]:
    """Serve for as long as the block runs; leaving it is a clean stop."""
    async with AsyncExitStack() as stack:
        ports = take_ports(stack, config.get(KafkaSettings), config.get(HttpSettings), config.get(GrpcSettings))
        made = of_process(stack, config, open_objects)
        opened = await _open_plane(stack, config, made)
        plane, catalog = opened.plane, opened.plane.domains.catalog
        built = await stack.enter_async_context(run_services(plane, service_settings(config)))
        services = _kafka_services(config, built, ports)
        registration = registration_of(
            config.get(BrokerSettings), ports.advertised, plane.clock, outside=ports.outside_advertised,
            http=ports.told_http, grpc=ports.grpc_advertised,
        )  # fmt: skip
        admission = await run_admission(
            stack, config.get(AccessSettings), plane, made.effects, _own_root(config), ports.addresses
        )
        await register(catalog, registration)  # RG2: before anybody can ask
        check_not_grown(plane.domains)  # ND8
        known = plane.watch.start("registration", lambda: keep_registered(plane.domains, registration, opened.failed))
        stack.push_async_callback(plane.watch.stop, known)
        if plane.residence is not None:
            coming = partial(plane.residence.run, built.routing.led)
            stack.push_async_callback(plane.watch.stop, plane.watch.start("domains", coming))
        for name, work in (
            ("loop-lag", _measure_lag),
            ("group-lag", _lag_watch(built).run),
            ("group-census", _census(built).run),
        ):
            stack.push_async_callback(plane.watch.stop, plane.watch.start(name, work))
        server = await _start_kafka(stack, config, services, plane, ports)
        stopping = asyncio.Event()
        await _start_http(stack, config, opened, made.pools, ports.http, stopping, built, admission)
        stops: list[Callable[[], Awaitable[None]]] = [server.stop]
        if ports.grpc is not None:
            stops.append(await _start_grpc(stack, config, built, admission, ports.grpc))
        stack.push_async_callback(_drain, stops, services.produce)
        stack.callback(built.groups.stop)

        async def leave() -> None:
            stopping.set()
            await plane.watch.stop(known)  # it would register us anew
            await withdraw(catalog, registration)
            await _send_elsewhere(services, plane.clock)

        stack.push_async_callback(leave)
        telemetry.BUILD.labels(dray.__version__).set(1)
        kafka_at, http_at = ports.kafka.address, ports.http.address
        grpc_at = ports.grpc_advertised
        logger().info(telemetry.READY, kafka=str(ports.advertised), http=str(http_at), grpc=str(grpc_at or ""))
        yield RunningBroker(
            kafka=kafka_at,
            advertised=ports.advertised,
            outside=ports.outside_advertised,
            http=http_at,
            grpc=grpc_at,
            plane=plane,
            services=services,
            failed=opened.failed,
        )
        logger().info(telemetry.STOPPING)
    logger().info(telemetry.STOPPED)


async def _open_plane(stack: AsyncExitStack, config: Config, made: ProcessEffects) -> OpenPlane:
    """The directory, the store and the metadata: all that a broker knows."""
    broker, log = config.get(BrokerSettings), config.get(LogSettings)
    cluster = config.get(ClusterSettings)
    options = MetadataOptions(
        name="broker",
        domains=cluster.domains,
        loaded_domains=cluster.loaded_domains,
        domain_idle_s=cluster.idle.total_seconds(),
        load_wait_s=cluster.load_wait.total_seconds(),
        timing=_timing(config.get(SessionSettings)),
        segment_bytes=int(log.segment_bytes),
        max_entry_bytes=int(log.max_entry_bytes),
        log_kept_bytes=int(log.keep_bytes),
        checkpoint_bodies_bytes=int(log.checkpoint_bytes),
        accept_clock=broker.accept_clock,
    )
    opened = await open_plane(stack, broker.data.absolute(), log.place, made.store, made.effects, options)
    kept = None if opened.directory is None or isinstance(log.place, SharedLogs) else opened.directory.root
    tell_old_rules(opened.plane.domains, kept)
    return opened


def _timing(settings: SessionSettings) -> Timing:
    millisecond = timedelta(milliseconds=1)
    return Timing(
        ttl_ms=settings.ttl // millisecond,
        keepalive_ms=settings.keepalive // millisecond,
        settle_ms=settings.ttl * 2 // 3 // millisecond,
    )


def service_settings(config: Config) -> ServiceSettings:
    """What the configuration says about services."""
    wal, local = config.get(WalSettings), not config.get(ObjectsSettings).is_remote
    return ServiceSettings(
        flush=wal.policy(local=local),
        fetch=config.get(FetchSettings),
        retention=config.get(RetentionSettings),
        groups=config.get(GroupSettings),
        consume=config.get(ConsumeSettings),
        zone=config.get(BrokerSettings).zone,
        offsets_bytes=int(wal.index_budget) // OFFSETS_SHARE,
    )


def _lag_watch(services: BrokerServices) -> LagWatch:
    """Only in a process of its own: metrics are the process's."""
    plane, routing = services.plane, services.routing
    return LagWatch(domains=plane.domains, topics=services.topics, routing=routing, clock=plane.clock)


def _census(services: BrokerServices) -> Census:
    """As with the lag."""
    plane = services.plane
    return Census(domains=plane.domains, routing=services.routing, clock=plane.clock)


def _kafka_services(config: Config, services: BrokerServices, ports: Ports) -> Services:
    """The services as Kafka's handlers know them, and what only they need."""
    own, plane = config.get(TopicSettings), services.plane
    return Services(
        domains=plane.domains,
        topics=services.topics,
        routing=services.routing,
        sending=Sending(enforced=config.get(RoutingSettings).enforce_owner),
        described=Descriptions(services.routing),
        produce=services.produce,
        intake=services.intake,
        fetch=services.fetch,
        log_offsets=services.log_offsets,
        offsets=services.offsets,
        records=services.records,
        classic=services.groups.classic,
        consumers=services.groups.consumers,
        group_admin=services.groups.admin,
        group_configs=services.groups.configs,
        broker_configs=BrokerConfigs(
            topics=own,
            broker=config.get(BrokerSettings),
            kafka=config.get(KafkaSettings),
            groups=config.get(GroupSettings),
            retention=config.get(RetentionSettings),
            advertised=str(ports.advertised),
            outside=None if ports.outside_advertised is None else str(ports.outside_advertised),
        ),
        clock=plane.clock,
        auto_create=own.auto_create,
        default_partitions=own.partitions,
    )


async def _start_kafka(
    stack: AsyncExitStack, config: Config, services: Services, plane: Plane, ports: Ports
) -> KafkaServer:
    settings = config.get(KafkaSettings)
    given = share(settings.limits(), open_limit())
    if given.limits.max_connections < settings.max_connections:
        logger().info(telemetry.FEW_DESCRIPTORS, open_files=open_limit(), connections=given.limits.max_connections)
    server = await stack.enter_async_context(
        KafkaServer(
            services=services,
            clock=plane.clock,
            limits=given.limits,
            pressure=services.produce.pressure,
            watch=plane.watch,
        )
    )
    for name, taken in ((LISTENER, ports.kafka), (OUTSIDE, ports.outside)):
        if taken is not None:
            at = taken.address
            await server.listen(
                Listening(name=name, host=at.host, port=at.port, sockets=taken.sockets, backlog=given.backlog)
            )
    return server


async def _start_http(
    stack: AsyncExitStack, config: Config, opened: OpenPlane, pools: Pools, taken: Taken, stopping: asyncio.Event,
    services: BrokerServices, admission: Admission,
) -> None:  # fmt: skip
    plane, reserve = opened.plane, int(config.get(BrokerSettings).disk_reserve)
    disks = DiskWatch(opened.places, reserve, pools.upkeep, plane.clock)
    stack.push_async_callback(disks.close)
    probes = {
        "metadata": metadata_probe(plane.domains),
        "store": store_probe(plane.objects, plane.identity.cluster_id),
        "disk": disks.probe,
        "tasks": tasks_probe(plane.watch),
        "audit": audit_probe(admission.access),
        "stop": stop_probe(stopping),
    }
    if plane.residence is not None:
        probes["domains"] = domains_probe(plane.residence)
    tables = served_catalog(
        config.get(TableSettings), config.get(ObjectsSettings), opened.directory, plane.objects, pools.upkeep
    )
    planner = PlannerProcesses(
        opened.directory, config.get(LogSettings).place, config.get(ObjectsSettings), plane.domains
    )
    gate = HttpGuard(admission.access)
    others = [*catalog_routes(tables, gate), *plan_routes(planner, gate)]
    app = make_app(probes, BrokerView(plane, disks), [*others, Mount(API, app=served_api(config, services, admission))])
    try:
        await stack.enter_async_context(serve_http(app, taken.sockets))
    except OSError as error:  # bound by both of us, and the other was first to listen
        raise refusal(error, taken.address, "http.listen", "--http") from error


async def _start_grpc(
    stack: AsyncExitStack, config: Config, built: BrokerServices, admission: Admission, taken: Taken
) -> Callable[[], Awaitable[None]]:
    """Loaded only where it is served: it costs memory and time."""
    from dray.servers.grpc.server import serve_grpc

    plane = built.plane
    try:
        places = [at.getsockname()[:2] for at in taken.sockets]
        server = await stack.enter_async_context(
            serve_grpc(
                built.heaps,
                admission.access,
                admission.keys,
                config.get(GrpcSettings),
                plane.clock,
                durability_of(config),
                places,
            )
        )
    except OSError as error:  # bound by both of us, and the other was first to listen
        raise refusal(error, taken.address, "grpc.listen", "--grpc") from error
    return server.stop


def _own_root(config: Config) -> Path | None:
    """The data directory of this process; None: it has none."""
    in_memory = isinstance(config.get(LogSettings).place, MemoryLogs)
    return None if in_memory else config.get(BrokerSettings).data.absolute()


async def _send_elsewhere(services: Services, clock: Clock) -> None:
    """Let clients find the new leaders while they can still ask here; a broker that is alone has nobody to name."""
    if services.routing.broker_id in services.routing.view(LISTENER).nodes:
        return
    await clock.sleep(HEARD_S)
    services.sending.leave()
    await clock.sleep(LEAVING_S)


async def _drain(stops: "Sequence[Callable[[], Awaitable[None]]]", produce: ProduceService) -> None:
    """Answer what was taken: requests wait for their batches, so both are drained at once.

    A store that hangs keeps nobody: what is not stored when the server has cut its clients was not acknowledged.
    """
    storing = asyncio.create_task(produce.drain())
    await asyncio.gather(*(stop() for stop in stops))
    _, late = await asyncio.wait((storing,), timeout=LAST_PUTS_S)
    if late:
        logger().warning(telemetry.NOT_DRAINED, bytes=produce.pressure.unacked)
        await _stop(storing)


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
