"""Keys of a cluster for who owns its log: beside running brokers, or with none.

Its owner needs no key, so this is how the first one is made, and how the last
one that was lost is replaced.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from dray.access.authorizer import Action
from dray.access.key_service import KeyService
from dray.access.principals import KnownCaller
from dray.machine.access import ApiKey
from dray.node.metadata import Effects
from dray.node.owner import owner_access
from dray.node.reaching import DirectoryOrCluster, reach
from dray.replica.domains import CATALOG_DOMAIN

T = TypeVar("T")


async def change_keys(
    place: DirectoryOrCluster,
    root: Path,
    effects: Effects,
    action: Action,
    resource: str,
    work: Callable[[KeyService, KnownCaller], Awaitable[T]],
) -> T:
    """Do one thing to the keys; `work` is given the service, and who does it. `root` is a data directory of ours."""
    async with reach(place, effects) as reached, reached.following(CATALOG_DOMAIN, "operator", effects) as replica:
        await replica.sync()
        keys = KeyService(catalog=replica, entropy=effects.entropy, offload=effects.offload)
        async with owner_access(place, root, reached, replica, effects) as (access, caller):
            done = await access.audited(caller, action, resource, lambda: work(keys, caller))
        await replica.close_session()
    return done


async def list_keys(place: DirectoryOrCluster, effects: Effects) -> tuple[list[ApiKey], int]:
    """Every key, and the time of the log by which they are judged."""
    async with reach(place, effects) as reached:
        machine = await reached.machine(CATALOG_DOMAIN, effects)
    return list(machine.access.by_age()), machine.time_ms
