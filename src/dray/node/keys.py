"""Keys of a cluster for who owns its log: beside running brokers, or with none.

Whoever may write the files of a directory, or the log of an engine, is its
administrator: nothing else is asked, so this is how the first key is made, and
how the last one that was lost is replaced. What is done is written down in the
data directory of this machine, beside the broker's own audit file, in a chain
of its own, for two writers would break one.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

from dray.access.audit import Audit, AuditFile
from dray.access.authorizer import EVERYTHING, Action
from dray.access.key_service import KeyService
from dray.access.principals import Entrance, KnownCaller, Principal
from dray.access.service import AccessService
from dray.access.settings import AccessSettings
from dray.disk import DirectoryInUse, Lock
from dray.machine.access import ApiKey
from dray.node.audit_files import ADMIN_PLACE
from dray.node.directory import DataDirectory
from dray.node.joining import joined_directory
from dray.node.metadata import Effects
from dray.node.reaching import Place, reach
from dray.replica.domains import CATALOG_DOMAIN

T = TypeVar("T")

LOCK_LIMIT_S: Final = 10.0
PAUSE_S: Final = 0.05


async def change_keys(
    place: Place,
    root: Path,
    effects: Effects,
    action: Action,
    resource: str,
    work: Callable[[KeyService, KnownCaller], Awaitable[T]],
) -> T:
    """Do one thing to the keys; `work` is given the service, and who does it. `root` is a data directory of ours."""
    async with reach(place, effects) as reached, reached.following(CATALOG_DOMAIN, "operator", effects) as replica:
        if not isinstance(place, DataDirectory):
            effects.disk.make_dir(root)
            joined_directory(root).claim(effects.disk, effects.entropy, uuid.UUID(reached.cluster_id))  # ND1
        await replica.sync()
        keys = KeyService(catalog=replica, entropy=effects.entropy, offload=effects.offload)
        async with _held(root / ADMIN_PLACE, effects) as chain:
            access = AccessService(
                catalog=replica,
                clock=effects.clock,
                entropy=effects.entropy,
                offload=effects.offload,
                audit=Audit(AuditFile(chain, effects.disk), effects.aside),
                settings=AccessSettings(),
                loopback=True,
            )
            caller = _owner(access.new_request())
            async with access.running():
                done = await access.audited(caller, action, resource, lambda: work(keys, caller))
        await replica.close_session()
    return done


async def list_keys(place: Place, effects: Effects) -> tuple[list[ApiKey], int]:
    """Every key, and the time of the log by which they are judged."""
    async with reach(place, effects) as reached:
        machine = await reached.machine(CATALOG_DOMAIN, effects)
    return list(machine.access.by_age()), machine.time_ms


def _owner(request: str) -> KnownCaller:
    return KnownCaller(
        principal=Principal("OWNER"), rights=EVERYTHING, door=Entrance.DIRECTORY, address=f"uid {os.getuid()}",
        request=request,
    )  # fmt: skip


@asynccontextmanager
async def _held(place: Path, effects: Effects) -> AsyncIterator[Path]:
    """The chain, for us alone while we write."""
    effects.disk.make_dir(place)
    lock = await _lock(place, effects)
    try:
        yield place
    finally:
        lock.release()


async def _lock(place: Path, effects: Effects) -> Lock:
    waited_s = 0.0
    while True:
        try:
            return effects.lock(place)
        except DirectoryInUse:
            if waited_s >= LOCK_LIMIT_S:
                raise
        await asyncio.sleep(PAUSE_S)
        waited_s += PAUSE_S
