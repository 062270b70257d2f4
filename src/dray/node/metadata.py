"""The metadata of one process on a data directory: logs, their server, replicas, checkpoints."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.clock import Clock
from dray.disk import Disk
from dray.errors import Corrupt, DrayError
from dray.ids import Entropy
from dray.log.files import FileLog
from dray.log.memory import MemoryLog
from dray.log.port import Log
from dray.log.server import LogServer
from dray.machine.head import SUPPORTED, Genesis, founding
from dray.machine.machine import Machine
from dray.machine.sessions import SessionKind
from dray.node.directory import DataDirectory, WrongDirectory, mark_born, was_born
from dray.node.directory import Identity as DirectoryIdentity
from dray.offload import Offload
from dray.replica.checkpointer import KEPT_MS, Checkpointer
from dray.replica.checkpoints import CheckpointStore, FileCheckpoints, MemoryCheckpoints, newest_machine
from dray.replica.child import ChildFolder
from dray.replica.domains import Domains
from dray.replica.opening import catch_up
from dray.replica.replica import Replica
from dray.replica.session import Identity, StoreDate
from dray.replica.writer import Timing
from dray.tasks.watch import Watch

STARTING_LIMIT_S: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a process may do to the world, injected."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    offload: Offload
    """For the log, whose appends everything waits for."""
    upkeep: Offload | None = None
    """For checkpoints and the log's history, apart from its appends. None: with the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """How the metadata plane of this process behaves."""

    name: str = "broker-0"
    owner: bool = True
    """Holds the lock of the directory with the log, so a live session of the same name is a dead process's (Q4)."""
    timing: Timing = field(default_factory=Timing)
    segment_bytes: int = 64 << 20
    max_entry_bytes: int = 1 << 20
    checkpoint_due_bytes: int = 8 << 20
    checkpoint_kept_ms: int = KEPT_MS
    checkpoint_look_s: float = 1.0
    """How often it is looked whether there is something to do about checkpoints."""
    accept_clock: bool = False
    store_date: StoreDate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """A running metadata plane."""

    identity: DirectoryIdentity
    domains: Domains
    failed: "asyncio.Future[DrayError]"
    """Resolves when the process must end."""
    watch: Watch
    """Over the long-lived work of this process."""


@asynccontextmanager
async def serve_metadata(
    directory: DataDirectory, identity: DirectoryIdentity, effects: Effects, options: MetadataOptions
) -> AsyncIterator[Metadata]:
    """Open the logs of a directory whose lock this process holds, serve them, and run a replica of each."""
    async with AsyncExitStack() as stack:
        logs = await _open_logs(stack, directory, identity, effects, options)
        server = LogServer(logs, cluster_id=identity.cluster, max_entry_bytes=options.max_entry_bytes)
        stack.push_async_callback(server.close)
        await server.listen_unix(directory.socket)
        failed: asyncio.Future[DrayError] = asyncio.get_running_loop().create_future()
        for log in logs.values():
            watch_failure(log.failed, failed)
        watch = Watch(effects.clock)
        running = {}
        for domain, log in logs.items():
            home = Home(directory=directory, socket=directory.socket, domain=domain)
            store = FileCheckpoints(home.checkpoints, effects.disk, effects.upkeep or effects.offload)
            running[domain] = await run_replica(stack, home, store, identity, log, effects, options, watch)
            watch_failure(running[domain].replica.failed, failed)
        yield Metadata(identity=identity, domains=domains_of(running), failed=failed, watch=watch)
        await stop_replicas(running)


@asynccontextmanager
async def serve_in_memory(
    identity: DirectoryIdentity, effects: Effects, options: MetadataOptions
) -> AsyncIterator[Metadata]:
    """The same without a directory: nothing survives the process. For tests of users and ours."""
    async with AsyncExitStack() as stack:
        log = MemoryLog(max_entry_bytes=options.max_entry_bytes)
        await begin_log(log, identity, 0, effects)
        replica = _replica(log, Machine(), MemoryCheckpoints(), identity, effects, options)
        await stack.enter_async_context(replica.running())
        failed: asyncio.Future[DrayError] = asyncio.get_running_loop().create_future()
        watch_failure(replica.failed, failed)
        watch = Watch(effects.clock)
        yield Metadata(identity=identity, domains=Domains({0: replica}), failed=failed, watch=watch)


async def _open_logs(
    stack: AsyncExitStack,
    directory: DataDirectory,
    identity: DirectoryIdentity,
    effects: Effects,
    options: MetadataOptions,
) -> dict[int, FileLog]:
    logs = {}
    for domain in directory.domains(effects.disk) or [0]:
        log = await FileLog.open(
            directory.log(domain),
            disk=effects.disk,
            offload=effects.offload,
            clock=effects.clock,
            segment_bytes=options.segment_bytes,
            max_entry_bytes=options.max_entry_bytes,
            reads=effects.upkeep,
        )
        stack.push_async_callback(log.close)
        home = directory.home(domain)
        if await log.tail() == 0:
            if was_born(effects.disk, home):  # ND2
                raise Corrupt("the log is empty, but it was not: restore it from a backup", path=directory.log(domain))
            await begin_log(log, identity, domain, effects)
        mark_born(effects.disk, home)
        logs[domain] = log
    return logs


async def begin_log(log: Log, identity: DirectoryIdentity, domain: int, effects: Effects, domains: int = 1) -> None:
    """The first entry of a new log."""
    genesis = Genesis(
        cluster_id=identity.cluster.bytes,
        log_id=effects.entropy.random_bytes(8),
        domain=domain,
        domains=domains,
        version=SUPPORTED,
    )
    await log.append(founding(genesis, effects.clock.wall_ms()))


def check_genesis(machine: Machine, identity: DirectoryIdentity, domain: int) -> None:
    """Every replica checks that the log it folds is the one it was meant to."""
    if machine.head.cluster_id != identity.cluster.bytes or machine.domain != domain:
        raise WrongDirectory(
            "the log belongs to another cluster or domain: do not mix directories",
            has=machine.head.cluster_id.hex(), domain=machine.domain, wanted=identity.cluster.hex, wanted_domain=domain,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a replica keeps its checkpoints, and where its log is served."""

    directory: DataDirectory
    socket: Path
    domain: int

    @property
    def checkpoints(self) -> Path:
        return self.directory.checkpoints(self.domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A replica, and who makes its checkpoints."""

    replica: Replica
    checkpointer: Checkpointer
    watch: Watch
    folder: ChildFolder
    task: "asyncio.Task[None]"


async def run_replica(
    stack: AsyncExitStack,
    home: Home,
    store: CheckpointStore,
    identity: DirectoryIdentity,
    log: Log,
    effects: Effects,
    options: MetadataOptions,
    watch: Watch,
) -> Running:
    """A replica that follows, writes and makes checkpoints for as long as the stack is open."""
    await store.sweep()  # what the last life left half made; whatever is still wanted is folded again
    replica = _replica(log, await newest_machine(store), store, identity, effects, options)
    await catch_up(replica, log, effects.clock.boot_ns)
    await stack.enter_async_context(replica.running())
    check_genesis(replica.machine, identity, home.domain)
    folder = ChildFolder(socket=home.socket, domain=home.domain, directory=home.checkpoints)
    kept = log if isinstance(log, FileLog) else None
    checkpointer = Checkpointer(
        replica, store, folder, effects.clock,
        due_bytes=options.checkpoint_due_bytes, kept_ms=options.checkpoint_kept_ms,
        trims=kept is not None, log_bytes=None if kept is None else kept.bytes_behind,
    )  # fmt: skip
    name, look_s = f"checkpointer-{home.domain}", options.checkpoint_look_s
    task = watch.start(name, lambda: checkpointer.run(look_s))
    stack.push_async_callback(watch.stop, task)
    return Running(replica=replica, checkpointer=checkpointer, folder=folder, watch=watch, task=task)


def domains_of(running: Mapping[int, Running]) -> Domains:
    return Domains({domain: one.replica for domain, one in running.items()})


async def stop_replicas(running: Mapping[int, Running]) -> None:
    """A clean stop: the last checkpoints if they are worth it, then the sessions are given back."""
    for one in running.values():
        await one.watch.stop(one.task)
        one.folder.nice = 0  # nobody is served any more, and the stop waits for it
        await one.checkpointer.finish()
        await one.replica.close_session()


def _replica(
    log: Log,
    machine: Machine,
    store: CheckpointStore,
    identity: DirectoryIdentity,
    effects: Effects,
    options: MetadataOptions,
) -> Replica:
    return Replica(
        log=log,
        machine=machine,
        identity=Identity(
            name=options.name,
            instance=identity.instance.bytes,
            kind=SessionKind.BROKER,
            owner=options.owner,
            accept_clock=options.accept_clock,
            store_date=options.store_date,
        ),
        clock=effects.clock,
        entropy=effects.entropy,
        timing=options.timing,
        checkpoints=store,
    )


def watch_failure(source: "asyncio.Future[DrayError]", target: "asyncio.Future[DrayError]") -> None:
    """Let the first failure of any part become the failure of the whole."""

    def pass_on(done: "asyncio.Future[DrayError]") -> None:
        if not done.cancelled() and not target.done():
            target.set_result(done.result())

    source.add_done_callback(pass_on)
