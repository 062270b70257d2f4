"""Keys of a cluster for who owns its data directory: beside a running broker, or with none.

Whoever may write the files of a directory is its administrator: nothing else
is asked, so this is how the first key is made, and how the last one that was
lost is replaced. What is done is written down beside the broker's own audit
file, in a chain of its own, for two writers would break one.
"""

import asyncio
import os
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
from dray.node.metadata import Effects
from dray.node.reaching import reach
from dray.replica.domains import CATALOG_DOMAIN

T = TypeVar("T")

LOCK_LIMIT_S: Final = 10.0
PAUSE_S: Final = 0.05


async def change_keys(
    directory: DataDirectory,
    effects: Effects,
    action: Action,
    resource: str,
    work: Callable[[KeyService, KnownCaller], Awaitable[T]],
) -> T:
    """Do one thing to the keys; `work` is given the service, and who does it."""
    directory.read_identity(effects.disk)
    async with reach(directory, effects) as reached, reached.following(CATALOG_DOMAIN, "operator", effects) as replica:
        keys = KeyService(catalog=replica, entropy=effects.entropy, offload=effects.offload)
        async with _held(directory.root / ADMIN_PLACE, effects) as place:
            access = AccessService(
                catalog=replica,
                clock=effects.clock,
                entropy=effects.entropy,
                offload=effects.offload,
                audit=Audit(AuditFile(place, effects.disk), effects.aside),
                settings=AccessSettings(),
                loopback=True,
            )
            caller = _owner(access.new_request())
            async with access.running():
                done = await access.audited(caller, action, resource, lambda: work(keys, caller))
        await replica.close_session()
    return done


async def list_keys(directory: DataDirectory, effects: Effects) -> tuple[list[ApiKey], int]:
    """Every key, and the time of the log by which they are judged."""
    directory.read_identity(effects.disk)
    async with reach(directory, effects) as reached:
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
