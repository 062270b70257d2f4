"""The metadata plane of a process: a replica of every domain, and who makes its checkpoints.

Where the logs are and where checkpoints go is said by a source: a directory
of our own (`dray.node.owning`), the logs that another keeps
(`dray.node.joining`), an engine that nobody of us keeps (`dray.node.clustered`),
or memory. Everything else is the same for all of them:

    source.open ─► Part per domain ─► newest checkpoint ─► fold to the tail ─► follow, write, checkpoint

Invariants
    ND4  A process starts with every domain that the catalog names, or not at
         all: one that is missing is damage.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol
from uuid import UUID

from dray.clock import Clock
from dray.disk import DirectoryLock, Disk, TakeLock
from dray.errors import Corrupt, DrayError
from dray.ids import Entropy
from dray.log.files import FileLog
from dray.log.opening import LogEffects, LogOptions, open_log
from dray.log.port import Bounded, Log
from dray.log.server import LogServer
from dray.log.urls import LogUrl, MemoryLogs
from dray.machine.head import SUPPORTED, Genesis, all_domains, founding
from dray.machine.machine import Machine
from dray.machine.sessions import SessionKind
from dray.node.directory import Identity as DirectoryIdentity
from dray.node.directory import WrongDirectory
from dray.offload import Offload
from dray.replica.checkpointer import DUE_WITH_BODIES, KEPT_BYTES, KEPT_MS, Checkpointer
from dray.replica.checkpoints import CheckpointStore, MemoryCheckpoints, newest_machine
from dray.replica.child import ChildFolder
from dray.replica.domains import CATALOG_DOMAIN, Domains, SomeDomains
from dray.replica.fold import Folder
from dray.replica.opening import catch_up
from dray.replica.replica import Replica
from dray.replica.residence import DomainSlot, Residence
from dray.replica.session import Identity, StoreDate
from dray.replica.writer import Timing
from dray.tasks.watch import Watch


class MakeFolder(Protocol):
    """Who makes checkpoints of a log in a directory, beside this process."""

    def __call__(self, *, log: LogUrl, domain: int, directory: Path) -> Folder: ...


class MakeServer(Protocol):
    """Who serves logs to other processes."""

    def __call__(self, logs: Mapping[int, Log], *, cluster_id: UUID, max_entry_bytes: int) -> LogServer: ...


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
    unpack: Offload | None = None
    """For record batches that must be unpacked. None: with the rest."""
    lock: TakeLock = DirectoryLock
    folder: MakeFolder = ChildFolder
    server: MakeServer = LogServer
    watch: Callable[[Clock], Watch] = Watch
    """Who watches the long-lived work of the process."""

    @property
    def aside(self) -> Offload:
        """For what no answer waits for."""
        return self.upkeep or self.offload

    @property
    def of_logs(self) -> LogEffects:
        return LogEffects(clock=self.clock, disk=self.disk, offload=self.offload, reads=self.upkeep)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """How the metadata plane of this process behaves."""

    name: str = "broker-0"
    domains: int = 1
    """How many data domains a new cluster is born with; one that is there has what its catalog says (ND4)."""
    timing: Timing = field(default_factory=Timing)
    segment_bytes: int = 64 << 20
    max_entry_bytes: int = 1 << 20
    checkpoint_due_bytes: int = 8 << 20
    checkpoint_bodies_bytes: int = DUE_WITH_BODIES
    """A checkpoint is due after so much of the log, bodies of messages included."""
    checkpoint_kept_ms: int = KEPT_MS
    log_kept_bytes: int = KEPT_BYTES
    checkpoint_look_s: float = 1.0
    """How often it is looked whether there is something to do about checkpoints."""
    accept_clock: bool = False
    store_date: StoreDate | None = None
    loaded_domains: int = 0
    """How many domains may be loaded that this process does not lead; 0: all are. Who keeps a log has all of it."""
    domain_idle_s: float = 60.0
    load_wait_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One domain, as this process takes part in it."""

    domain: int
    log: Log
    checkpoints: CheckpointStore
    folder: Folder | None
    """Who makes its checkpoints. None: nobody does."""
    kept: FileLog | None = None
    """The log, if this process keeps it: then it trims it (CK4), and ends when it fails."""
    shared: bool = False
    """Nobody of us keeps the log, and every checkpoint that is confirmed is published: everybody trims it (CK4)."""


class Source(Protocol):
    """Where the logs of a process come from."""

    @property
    def owner(self) -> bool:
        """Nobody else can be at work under our name: a live session of it is a dead process's (Q4)."""
        ...

    def session_name(self, identity: DirectoryIdentity, options: MetadataOptions) -> str:
        """The name of our sessions."""
        ...

    async def open(
        self, stack: AsyncExitStack, identity: DirectoryIdentity, effects: Effects, options: MetadataOptions
    ) -> Sequence[Part]:
        """Every domain that there is, open until the stack ends."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """A running metadata plane."""

    identity: DirectoryIdentity
    domains: Domains
    failed: "asyncio.Future[DrayError]"
    """Resolves when the process must end."""
    watch: Watch
    """Over the long-lived work of this process."""
    residence: Residence
    """Which domains are loaded."""


@asynccontextmanager
async def run_metadata(
    source: Source, identity: DirectoryIdentity, effects: Effects, options: MetadataOptions
) -> AsyncIterator[Metadata]:
    """A replica of every domain for as long as the block runs; leaving it is a clean stop."""
    failed: asyncio.Future[DrayError] = asyncio.get_running_loop().create_future()
    watch = effects.watch(effects.clock)
    session = Identity(
        name=source.session_name(identity, options),
        instance=identity.instance.bytes,
        kind=SessionKind.BROKER,
        owner=source.owner,
        accept_clock=options.accept_clock,
        store_date=options.store_date,
    )
    async with AsyncExitStack() as stack:
        parts = await source.open(stack, identity, effects, options)
        for part in parts:
            if part.kept is not None:
                pass_on(part.kept.failed, failed)
        residence = Residence(
            effects.clock, budget=0 if source.owner else options.loaded_domains, idle_s=options.domain_idle_s,
            wait_s=options.load_wait_s,
        )  # fmt: skip
        making: dict[int, _Making] = {}
        stack.push_async_callback(residence.close)
        for part in parts:
            replica = _replica(part, session, effects, options.timing)
            pass_on(replica.failed, failed)
            bring = partial(_bring, part, replica, identity, effects, options, watch, making)
            slot = residence.slots[part.domain] = DomainSlot(part.domain, replica, bring, effects.clock)
            await residence.load(slot)
            if part.domain == CATALOG_DOMAIN:
                check_whole(replica.machine, [part.domain for part in parts])
        domains = SomeDomains(residence) if residence.budget else Domains(residence.replicas)
        yield Metadata(identity=identity, domains=domains, failed=failed, watch=watch, residence=residence)

        async def finish(domain: int) -> None:
            if domain in making:
                await making[domain].finish()

        await residence.end(finish)


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemory:
    """No directory: nothing survives the process. For tests of users and ours."""

    owner: bool = True

    def session_name(self, identity: DirectoryIdentity, options: MetadataOptions) -> str:
        return options.name

    async def open(
        self, stack: AsyncExitStack, identity: DirectoryIdentity, effects: Effects, options: MetadataOptions
    ) -> Sequence[Part]:
        parts = []
        for domain in all_domains(options.domains):
            log = await open_log(MemoryLogs(), domain, effects.of_logs, log_options(options))
            stack.push_async_callback(log.close)
            await begin_log(log, identity.cluster, domain, effects, options.domains, SUPPORTED)
            parts.append(Part(domain=domain, log=log, checkpoints=MemoryCheckpoints(), folder=None))
        return parts


def log_options(options: MetadataOptions, cluster_id: UUID | None = None) -> LogOptions:
    """How the logs of this process are opened."""
    return LogOptions(
        segment_bytes=options.segment_bytes,
        max_entry_bytes=options.max_entry_bytes,
        cluster_id=cluster_id,
        call_seconds=options.timing.settle_ms / 2_000,  # a second try fits into the time of an entry
    )


async def begin_log(log: Log, cluster: UUID, domain: int, effects: Effects, domains: int, version: int) -> None:
    """The first entry of a new log, of a cluster with so many data domains and these rules."""
    genesis = Genesis(
        cluster_id=cluster.bytes,
        log_id=effects.entropy.random_bytes(8),
        domain=domain,
        domains=domains,
        version=version,
    )
    await log.append(founding(genesis, effects.clock.wall_ms()))


def check_genesis(machine: Machine, identity: DirectoryIdentity, domain: int) -> None:
    """Every replica checks that the log it folds is the one it was meant to."""
    if machine.head.cluster_id != identity.cluster.bytes or machine.domain != domain:
        raise WrongDirectory(
            "the log belongs to another cluster or domain: do not mix directories",
            has=machine.head.cluster_id.hex(), domain=machine.domain, wanted=identity.cluster.hex, wanted_domain=domain,
        )  # fmt: skip


def check_whole(catalog: Machine, there: Sequence[int]) -> None:
    """Raise `Corrupt` if a domain is missing that the catalog names (ND4)."""
    missing = sorted({CATALOG_DOMAIN, *catalog.head.data_domains} - set(there))
    if missing:
        raise Corrupt(
            "the log of a domain is missing, but the catalog names it: mount its volume, or restore it from a backup",
            missing=",".join(map(str, missing)), domains=catalog.head.domains,
        )  # fmt: skip


def _replica(part: Part, session: Identity, effects: Effects, timing: Timing) -> Replica:
    return Replica(
        log=part.log,
        machine=Machine(),
        identity=session,
        clock=effects.clock,
        entropy=effects.entropy,
        timing=timing,
        checkpoints=part.checkpoints,
    )


async def _bring(
    part: Part,
    replica: Replica,
    identity: DirectoryIdentity,
    effects: Effects,
    options: MetadataOptions,
    watch: Watch,
    making: "dict[int, _Making]",
    stack: AsyncExitStack,
) -> None:
    """Fold what there is of a domain; until the stack ends its replica runs, and checkpoints are made."""
    await part.checkpoints.sweep()  # what the last life left half made; whatever is still wanted is folded again
    replica.begin(await newest_machine(part.checkpoints))
    await catch_up(replica, part.log, effects.clock.boot_ns)
    await stack.enter_async_context(replica.running())
    check_genesis(replica.machine, identity, part.domain)
    if part.folder is not None:
        making[part.domain] = _make_checkpoints(part, part.folder, replica, watch, effects.clock, options)
        stack.push_async_callback(making[part.domain].stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """The checkpoints of one domain are made, confirmed and let go."""

    checkpointer: Checkpointer
    folder: Folder
    watch: Watch
    task: "asyncio.Task[None]"

    async def stop(self) -> None:
        await self.watch.stop(self.task)

    async def finish(self) -> None:
        """The last checkpoint, if it is worth it."""
        await self.stop()
        if isinstance(self.folder, ChildFolder):
            self.folder.nice = 0  # nobody is served any more, and the stop waits for it
        await self.checkpointer.finish()


def _make_checkpoints(
    part: Part, folder: Folder, replica: Replica, watch: Watch, clock: Clock, options: MetadataOptions
) -> _Making:
    bounded = part.log if part.shared and isinstance(part.log, Bounded) else None
    measured = bounded or part.kept
    checkpointer = Checkpointer(
        replica, part.checkpoints, folder, clock,
        due_bytes=options.checkpoint_due_bytes, due_with_bodies=options.checkpoint_bodies_bytes,
        kept_ms=options.checkpoint_kept_ms,
        kept_bytes=min(options.log_kept_bytes, options.log_kept_bytes if bounded is None else bounded.most_kept_bytes),
        trims=part.shared or part.kept is not None, log_bytes=None if measured is None else measured.bytes_behind,
        crowded=None if bounded is None else lambda: bounded.is_crowded,
    )  # fmt: skip
    task = watch.start(f"checkpointer-{part.domain}", lambda: checkpointer.run(options.checkpoint_look_s))
    return _Making(checkpointer=checkpointer, folder=folder, watch=watch, task=task)


def pass_on(source: "asyncio.Future[DrayError]", target: "asyncio.Future[DrayError]") -> None:
    """Let the first failure of any part become the failure of the whole."""

    def tell(done: "asyncio.Future[DrayError]") -> None:
        if not done.cancelled() and not target.done():
            target.set_result(done.result())

    source.add_done_callback(tell)
