"""A cluster of several machines for who is no broker of it: an engine for its log, a store for all else.

A visitor needs nothing that lies on a disk of a broker: checkpoints are read
from the store, entries from the engine. It may run anywhere, beside running
brokers or with none; what it changes it proposes, as everybody does.

Invariants
    ND7  A visitor begins nothing: where store or log know no cluster, or two
         different ones, it is refused and nothing was written.
"""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from dray.errors import Invalid, NotFound
from dray.log.opening import open_log
from dray.log.port import Log
from dray.log.urls import SharedLogs
from dray.machine.head import all_domains
from dray.machine.machine import Machine
from dray.machine.sessions import SessionKind
from dray.node.clustered import current_log
from dray.node.metadata import Effects
from dray.objects.cluster import bound_to
from dray.objects.files import FileObjects
from dray.objects.opening import StoreEffects, local_root, open_store
from dray.objects.port import Objects
from dray.replica.checkpoints import (
    CheckpointStore,
    PublishedCheckpoints,
    ReadableCheckpoints,
    VisitingCheckpoints,
    newest_machine,
)
from dray.replica.domains import CATALOG_DOMAIN
from dray.replica.fold import state_at
from dray.replica.replica import Replica
from dray.replica.session import Identity
from dray.replica.writer import SHORTEST_TTL_MS, Timing
from dray.tables.options import Store

OpenObjects: TypeAlias = Callable[[], Awaitable[Objects]]


class NoCluster(NotFound):
    """Nobody has begun a cluster there."""

    advice = "give log.url and objects.url as its brokers have them"


class TwoClusters(Invalid):
    """The log is of one cluster, the store of another."""

    advice = "give log.url and objects.url as the brokers of one cluster have them"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlace:
    """Where a cluster of several machines is."""

    log: SharedLogs
    address: str
    """Of its store, for people."""
    open_objects: OpenObjects
    """Its store; closed by who opened it."""


def cluster_place(log: SharedLogs, store: Store, effects: Effects) -> ClusterPlace:
    """By the settings of its brokers.

    Raises:
        Invalid: they name no store.
    """
    if store.url is None or store.url == "memory:":
        raise Invalid(
            "the records of brokers that share a log are in a store that all of them reach: set objects.url as they "
            "have it",
            log=str(log),
        )
    address = store.url

    async def open_objects() -> Objects:
        return await open_beside(address, store, effects)

    return ClusterPlace(log=log, address=address, open_objects=open_objects)


async def open_beside(address: str, store: Store, effects: Effects) -> Objects:
    """A store beside who writes to it: what others are putting now into a directory is not swept."""
    root = local_root(address)
    if root is not None:
        return FileObjects(Path(root), effects.disk, effects.offload)
    of_store = StoreEffects(
        clock=effects.clock, entropy=effects.entropy, disk=effects.disk, offload=effects.offload, reads=effects.upkeep
    )
    return await open_store(address, store.options(), of_store)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitedCluster:
    """A cluster whose logs can be opened now."""

    place: ClusterPlace
    cluster_id: str
    objects: Objects
    named: Sequence[int]
    """The domains, as its catalog named them."""
    live: bool = True
    """Somebody answers for the logs, whether brokers run or not."""

    def domains(self, effects: Effects) -> Sequence[int]:
        return self.named

    @asynccontextmanager
    async def reading(self, domain: int, effects: Effects) -> AsyncIterator[Log]:
        """The log of a domain; `NotFound` if there is no such domain."""
        if domain not in self.named:
            raise NotFound("the cluster has no such domain", domain=domain, domains=",".join(map(str, self.named)))
        log = await _open(self.place, self.objects, domain, effects)
        try:
            yield log
        finally:
            await log.close()

    async def machine(self, domain: int, effects: Effects) -> Machine:
        """The state as of now: everything that was acknowledged before this call."""
        async with self.reading(domain, effects) as log:
            return await state_at(await log.tail(), log, await self.checkpoints(log, domain, effects))

    @asynccontextmanager
    async def following(self, domain: int, name: str, effects: Effects) -> AsyncIterator[Replica]:
        """A replica of a tool: it has no say in upgrades, and expires nobody (RP6). Its session is the caller's."""
        async with self.reading(domain, effects) as log:
            checkpoints = await self.checkpoints(log, domain, effects)
            async with tool_replica(log, checkpoints, name, effects) as replica:
                yield replica

    async def checkpoints(self, log: Log, domain: int, effects: Effects) -> ReadableCheckpoints:
        log_id = await current_log(log, domain, self.objects)
        published = PublishedCheckpoints(self.objects, log_id=log_id, domain=domain, offload=effects.aside)
        return VisitingCheckpoints(published, effects.aside)


@asynccontextmanager
async def visit(place: ClusterPlace, effects: Effects) -> AsyncIterator[VisitedCluster]:
    """The cluster of a place, for as long as the block runs.

    Raises:
        NoCluster, TwoClusters: nothing was begun (ND7).
    """
    async with AsyncExitStack() as stack:
        objects = await place.open_objects()
        stack.push_async_callback(objects.close)
        cluster = await bound_to(objects)
        if cluster is None:
            raise NoCluster("no cluster keeps its records in this store", objects=place.address)
        log = await _open(place, objects, CATALOG_DOMAIN, effects)
        stack.push_async_callback(log.close)
        tail = await log.tail()
        if tail == 0:  # ND7
            raise NoCluster("the log is empty: no cluster was begun in it", log=str(place.log))
        seen = VisitedCluster(place=place, cluster_id=cluster, objects=objects, named=(CATALOG_DOMAIN,))
        head = (await state_at(tail, log, await seen.checkpoints(log, CATALOG_DOMAIN, effects))).head
        if head.cluster_id != uuid.UUID(cluster).bytes:
            raise TwoClusters(
                "log and store are of two clusters", log_of=uuid.UUID(bytes=head.cluster_id), store_of=cluster
            )
        yield replace(seen, named=tuple(all_domains(head.domains)))


async def _open(place: ClusterPlace, objects: Objects, domain: int, effects: Effects) -> Log:
    return await open_log(place.log, domain, replace(effects.of_logs, objects=objects))  # a delta log is kept in them


@asynccontextmanager
async def tool_replica(log: Log, checkpoints: CheckpointStore, name: str, effects: Effects) -> AsyncIterator[Replica]:
    """A replica that follows while the block runs, for who is no broker. It opens a session when it proposes."""
    replica = Replica(
        log=log,
        machine=await newest_machine(checkpoints, set_aside=False),  # the owner's to keep aside
        identity=Identity(
            name=f"{name}-{effects.entropy.random_bytes(4).hex()}",
            instance=effects.entropy.random_bytes(16),
            kind=SessionKind.TOOL,
            owner=False,
        ),
        clock=effects.clock,
        entropy=effects.entropy,
        timing=Timing(keepalive_ms=SHORTEST_TTL_MS // 3),
        checkpoints=checkpoints,
    )
    async with replica.running():
        yield replica
