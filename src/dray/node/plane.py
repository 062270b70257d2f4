"""What the services of a process stand on, and how a process comes to it.

A broker has its plane from a data directory, an object store and the system's
clock; the simulator and tests make one of their own parts. Services are built
on it (`Plane`) and know nothing of where it comes from.

    keeps its log       lock ─► identity ─► store: checked, bound ─► logs, served ─► birth remembered (ND3)
    joins another's     owner ─► lock ─► identity of its cluster ─► its store ─► its logs (SV3)
    in a cluster        lock ─► store, which says which cluster ─► identity ─► logs of an engine (ND6)
    in memory           a new identity and a new store, of this process alone
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dray.clock import Clock
from dray.errors import DrayError, Invalid
from dray.ids import Entropy
from dray.log.urls import DeltaLogs, LocalLogs, LogUrl, MemoryLogs, ServedLogs, SharedLogs
from dray.node.birth import remember_birth
from dray.node.clustered import Clustered
from dray.node.directory import DataDirectory, Identity, new_identity
from dray.node.joining import Joined, check_not_joined, joined_directory, owner_of
from dray.node.metadata import Effects, InMemory, Metadata, MetadataOptions, Source, run_metadata
from dray.node.owning import Owned
from dray.node.space import Places
from dray.node.store import ClusterStore
from dray.objects.cluster import mark_begun
from dray.objects.port import Objects
from dray.offload import Offload
from dray.replica.child import ChildFolder
from dray.replica.domains import Domains
from dray.replica.residence import Residence
from dray.tasks.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """All that a process knows, and what it knows it by."""

    identity: Identity
    domains: Domains
    objects: Objects
    clock: Clock
    entropy: Entropy
    unpack: Offload
    """Where record batches are unpacked, beside the loop."""
    watch: Watch
    """Over the long-lived work of this process."""
    residence: Residence | None = None
    """Which domains are loaded; None: all, always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlane:
    """A plane that is kept up by this process."""

    plane: Plane
    failed: "asyncio.Future[DrayError]"
    """Resolves when the process must end."""
    places: Places
    """What of it lies on disks of this machine."""
    directory: DataDirectory | None
    """That keeps the log, ours or the one of the broker that we joined; None: everything is in memory."""


async def open_plane(
    stack: AsyncExitStack,
    root: Path,
    log: LogUrl | None,
    store: ClusterStore,
    effects: Effects,
    options: MetadataOptions,
) -> OpenPlane:
    """Everything that a broker on the directory `root` knows, until the stack ends.

    `log` says where the logs are: None, in the directory. In memory there is no directory.
    """
    if isinstance(log, SharedLogs):
        return await _clustered(stack, root, log, store, effects, options)
    match log:
        case MemoryLogs():
            return await _in_memory(stack, store, effects, options)
        case ServedLogs(address=Path() as socket):
            return await _joined(stack, root, socket, store, effects, options)
        case LocalLogs() | None:
            return await _owned(stack, DataDirectory(root, None if log is None else log.root), store, effects, options)
        case ServedLogs():
            raise Invalid("a broker joins by a unix socket: it needs the checkpoints beside it", log=str(log))


async def _owned(
    stack: AsyncExitStack, directory: DataDirectory, store: ClusterStore, effects: Effects, options: MetadataOptions
) -> OpenPlane:
    identity, objects = await open_own(stack, directory, store, effects)
    effects.disk.remove(directory.alone)
    metadata = await _run(stack, Owned(directory=directory), identity, objects, store, effects, options)
    await remember_birth(objects, directory, effects.disk)
    return _opened(metadata, objects, effects, _places(store, directory, metadata.domains), directory)


async def open_own(
    stack: AsyncExitStack, directory: DataDirectory, store: ClusterStore, effects: Effects
) -> tuple[Identity, Objects]:
    """A directory that is ours until the stack ends, and its store, before anything is done to its log (ND3)."""
    _lock(stack, directory.root, effects)
    check_not_joined(directory.root, effects.disk)
    identity = directory.claim(effects.disk, effects.entropy)
    return identity, await store.found(stack, directory, identity)


async def _joined(
    stack: AsyncExitStack, root: Path, socket: Path, store: ClusterStore, effects: Effects, options: MetadataOptions
) -> OpenPlane:
    owner, directory = owner_of(socket, effects.disk), joined_directory(root)
    _lock(stack, root, effects)
    identity = directory.claim(effects.disk, effects.entropy, owner.identity.cluster)
    objects = await store.join(stack, owner.directory, identity)
    source = Joined(log_owner=owner, directory=directory, objects=objects)
    metadata = await _run(stack, source, identity, objects, store, effects, options)
    places = _places(store, owner.directory, metadata.domains, joined=root)
    return _opened(metadata, objects, effects, places, owner.directory)


async def _clustered(
    stack: AsyncExitStack, root: Path, log: LogUrl, store: ClusterStore, effects: Effects, options: MetadataOptions
) -> OpenPlane:
    directory = joined_directory(root)
    _lock(stack, root, effects)
    objects, cluster = await store.shared(stack)
    if isinstance(log, DeltaLogs):
        effects = _of_delta_log(log, store, effects)
    identity = directory.claim(effects.disk, effects.entropy, cluster)
    source = Clustered(url=log, directory=directory, objects=objects)
    metadata = await _run(stack, source, identity, objects, store, effects, options)
    await mark_begun(objects)  # ND6
    rooms = {"checkpoints": root, "records": store.directory(None)}
    places = Places(rooms={what: path for what, path in rooms.items() if path is not None})
    return _opened(metadata, objects, effects, places, directory)


def _of_delta_log(log: DeltaLogs, store: ClusterStore, effects: Effects) -> Effects:
    """Where the log is in the store, a child that folds it has to be told of the store."""
    if log.root is not None or effects.folder is not ChildFolder:
        return effects
    return replace(effects, folder=partial(ChildFolder, store=store.address()))


async def _in_memory(
    stack: AsyncExitStack, store: ClusterStore, effects: Effects, options: MetadataOptions
) -> OpenPlane:
    identity = new_identity(effects.entropy)
    objects = await store.found(stack, None, identity)
    metadata = await _run(stack, InMemory(), identity, objects, store, effects, options)
    return _opened(metadata, objects, effects, _places(store, None, metadata.domains), None)


def _lock(stack: AsyncExitStack, root: Path, effects: Effects) -> None:
    effects.disk.make_dir(root)
    stack.callback(effects.lock(root).release)


async def _run(
    stack: AsyncExitStack,
    source: Source,
    identity: Identity,
    objects: Objects,
    store: ClusterStore,
    effects: Effects,
    options: MetadataOptions,
) -> Metadata:
    options = replace(options, store_date=await store.date(objects))
    return await stack.enter_async_context(run_metadata(source, identity, effects, options))


def _opened(
    metadata: Metadata, objects: Objects, effects: Effects, places: Places, directory: DataDirectory | None
) -> OpenPlane:
    plane = Plane(
        identity=metadata.identity,
        domains=metadata.domains,
        objects=objects,
        clock=effects.clock,
        entropy=effects.entropy,
        unpack=effects.unpack or effects.offload,
        watch=metadata.watch,
        residence=metadata.residence if metadata.residence.budget else None,
    )
    return OpenPlane(plane=plane, failed=metadata.failed, places=places, directory=directory)


def _places(
    store: ClusterStore, directory: DataDirectory | None, domains: Domains, joined: Path | None = None
) -> Places:
    rooms = {
        "log": None if directory is None else directory.meta,
        "checkpoints": joined,
        "records": store.directory(directory),
    }
    return Places(
        rooms={what: path for what, path in rooms.items() if path is not None},
        logs={} if directory is None else {domain: directory.log(domain) for domain in domains.all},
    )
