"""Heaps of a cluster for who owns its log: beside running brokers, or with none.

What brokers do for the heaps meanwhile they go on doing: the machine judges
what is asked here as it judges what they ask.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from dray.access.authorizer import Action
from dray.heaps.asking import AskedBy
from dray.heaps.service import HeapService
from dray.node.metadata import Effects
from dray.node.owner import owner_access
from dray.node.reaching import DirectoryOrCluster, Reached, reach
from dray.node.visiting import OpenObjects
from dray.replica.domains import Domains

T = TypeVar("T")


async def look_at_heaps(
    place: DirectoryOrCluster, open_objects: OpenObjects, effects: Effects, work: Callable[[HeapService], Awaitable[T]]
) -> T:
    """Ask something that changes nothing."""
    async with reach(place, effects) as reached, _heaps(reached, open_objects, effects) as (service, _):
        return await work(service)


async def change_heaps(
    place: DirectoryOrCluster,
    root: Path,
    open_objects: OpenObjects,
    effects: Effects,
    action: Action,
    heap: str,
    work: Callable[[HeapService, AskedBy], Awaitable[T]],
) -> T:
    """Do one thing to a heap, and write it down; `root` is a data directory of ours."""
    async with reach(place, effects) as reached, _heaps(reached, open_objects, effects) as (service, domains):
        async with owner_access(place, root, reached, domains.catalog, effects) as (access, caller):
            by = AskedBy(actor=str(caller.principal), request=caller.request)
            done = await access.audited(caller, action, heap, lambda: work(service, by))
        for _, replica in domains:
            await replica.close_session()
    return done


@asynccontextmanager
async def _heaps(
    reached: Reached, open_objects: OpenObjects, effects: Effects
) -> AsyncIterator[tuple[HeapService, Domains]]:
    async with AsyncExitStack() as stack:
        objects = await open_objects()
        stack.push_async_callback(objects.close)
        replicas = {
            domain: await stack.enter_async_context(reached.following(domain, "operator", effects))
            for domain in reached.domains(effects)
        }
        domains = Domains(replicas)
        await domains.catalog.sync()
        service = HeapService(domains=domains, objects=objects, clock=effects.clock, entropy=effects.entropy)
        yield await stack.enter_async_context(service.running()), domains
