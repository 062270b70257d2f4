"""A log server alone: the logs of a cluster of brokers, none of which is special.

    lock ─► identity ─► store: checked, bound ─► logs: opened or begun, whole (ND4) ─► checkpoints shared ─► served

It folds nothing once it serves. The brokers make and confirm the checkpoints
and share them in the object store; copies come here, and the log is trimmed to
those (CK4). So a directory can be served by `drayd meta` today and by a broker
of its own tomorrow.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from dray.clock import Clock
from dray.config import Config
from dray.errors import DrayError
from dray.log.files import FileLog
from dray.log.settings import LogSettings
from dray.log.urls import LocalLogs
from dray.node import telemetry
from dray.node.addresses import HostPort
from dray.node.birth import remember_birth
from dray.node.directory import DataDirectory, Identity
from dray.node.effects import of_process
from dray.node.joining import log_id_of
from dray.node.listening import Taken, refusal, take_http
from dray.node.metadata import Effects, MetadataOptions, check_genesis, check_whole, pass_on
from dray.node.owning import open_logs
from dray.node.plane import open_own
from dray.node.probes import stop_probe, store_probe, tasks_probe
from dray.node.settings import BrokerSettings, ClusterSettings
from dray.node.space import DiskWatch, Places
from dray.objects.port import Objects
from dray.replica.checkpointer import KEPT_MS
from dray.replica.checkpoints import FileCheckpoints, PublishedCheckpoints, SharedCheckpoints
from dray.replica.domains import CATALOG_DOMAIN
from dray.replica.fold import state_at
from dray.replica.keeping import KeepLimits
from dray.replica.letting_go import LettingGo
from dray.servers.http.app import make_health_app
from dray.servers.http.server import serve_http
from dray.servers.http.settings import HttpSettings
from dray.tasks.watch import Watch
from dray.telemetry import logger

LOOK_S: Final = 10.0
"""How often it is looked for new checkpoints: each look is a listing of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMeta:
    """A log server that serves."""

    directory: DataDirectory
    http: HostPort | None
    """Where it tells how it is, if it was told to."""
    failed: "asyncio.Future[DrayError]"
    """Resolves when the process must end."""


@asynccontextmanager
async def run_meta(
    config: Config, limits: KeepLimits | None = None, look_s: float = LOOK_S
) -> AsyncIterator[RunningMeta]:
    """Serve the logs of a directory for as long as the block runs."""
    settings = config.get(LogSettings)
    async with AsyncExitStack() as stack:
        http = take_http(stack, config.get(HttpSettings)) if config.is_given("http.listen") else None
        made = of_process(stack, config)
        effects, place = made.effects, settings.place
        directory = DataDirectory(
            config.get(BrokerSettings).data.absolute(), place.root if isinstance(place, LocalLogs) else None
        )
        options = MetadataOptions(
            domains=config.get(ClusterSettings).domains,
            segment_bytes=int(settings.segment_bytes),
            max_entry_bytes=int(settings.max_entry_bytes),
        )
        limits = limits or KeepLimits(kept_ms=KEPT_MS, kept_bytes=int(settings.keep_bytes))
        identity, objects = await open_own(stack, directory, made.store, effects)
        logs = await open_logs(stack, directory, identity, effects, options)
        await _check(directory, identity, logs, effects)
        failed: asyncio.Future[DrayError] = asyncio.get_running_loop().create_future()
        watch = Watch(effects.clock)
        for domain, log in logs.items():
            pass_on(log.failed, failed)
            checkpoints = await _shared(directory, domain, log, objects, effects)
            letting_go = LettingGo(checkpoints, log, limits=limits, log_bytes=log.bytes_behind)
            work = partial(_keep, letting_go, effects.clock, look_s)
            stack.push_async_callback(watch.stop, watch.start(f"keeping-{domain}", work))
        effects.disk.remove(directory.alone)
        effects.disk.create(directory.alone).close()
        server = effects.server(logs, cluster_id=identity.cluster, max_entry_bytes=options.max_entry_bytes)
        stack.push_async_callback(server.close)
        await server.listen_unix(directory.socket)
        await remember_birth(objects, directory, effects.disk)
        if http is not None:
            places = Places(rooms={"log": directory.meta}, logs={domain: directory.log(domain) for domain in logs})
            disks = DiskWatch(places, int(config.get(BrokerSettings).disk_reserve), made.pools.upkeep, effects.clock)
            stack.push_async_callback(disks.close)
            await _start_http(stack, disks, watch, objects, identity.cluster_id, http)
        logger().info(telemetry.META_READY, log=str(directory.served), domains=len(logs))
        at = None if http is None else http.address
        yield RunningMeta(directory=directory, http=at, failed=failed)
        logger().info(telemetry.STOPPING)
    logger().info(telemetry.STOPPED)


async def _start_http(
    stack: AsyncExitStack, disks: DiskWatch, watch: Watch, objects: Objects, cluster_id: str, taken: Taken
) -> None:
    """Health and metrics. A store that is away keeps brokers from serving, and this process from trimming."""
    stopping = asyncio.Event()
    probes = {
        "store": store_probe(objects, cluster_id),
        "disk": disks.probe,
        "tasks": tasks_probe(watch),
        "stop": stop_probe(stopping),
    }
    try:
        await stack.enter_async_context(serve_http(make_health_app(probes, disks.measure), taken.sockets))
    except OSError as error:  # bound by both of us, and the other was first to listen
        raise refusal(error, taken.address, "http.listen", "--http") from error
    stack.callback(stopping.set)


async def _check(directory: DataDirectory, identity: Identity, logs: dict[int, FileLog], effects: Effects) -> None:
    """Fold the catalog once: it says whose logs these are, and how many there must be (ND4)."""
    catalog = logs[CATALOG_DOMAIN]
    checkpoints = FileCheckpoints(directory.checkpoints(CATALOG_DOMAIN), effects.disk, effects.aside)
    machine = await state_at(await catalog.tail(), catalog, checkpoints)
    check_genesis(machine, identity, CATALOG_DOMAIN)
    check_whole(machine, list(logs))


async def _shared(
    directory: DataDirectory, domain: int, log: FileLog, objects: Objects, effects: Effects
) -> SharedCheckpoints:
    """The checkpoints of a domain. What lies here is shared from now on: perhaps a broker kept this directory."""
    disk, aside, own = effects.disk, effects.aside, directory.checkpoints(domain)
    log_id = await log_id_of(log, FileCheckpoints(own, disk, aside))
    published = PublishedCheckpoints(objects, log_id=log_id, domain=domain, offload=aside)
    checkpoints = SharedCheckpoints(own, published, disk, aside)
    await checkpoints.publish_own()
    return checkpoints


async def _keep(letting_go: LettingGo, clock: Clock, look_s: float) -> None:
    """Copy what the brokers have confirmed, and trim the log to it, for ever."""
    while True:
        try:
            await letting_go.step()
        except DrayError as error:
            logger().warning(telemetry.NOT_KEPT, error=str(error))
        await clock.sleep(look_s)
