"""Who owns a log is its administrator: what they do to a cluster is done in their name, and written down.

Whoever may write the files of a directory, or the log of an engine, is asked
for nothing else. What is done is written down in the data directory of this
machine, beside the broker's own audit file, in a chain of its own, for two
writers would break one.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from dray.access.audit import Audit, AuditFile
from dray.access.authorizer import EVERYTHING
from dray.access.principals import Entrance, KnownCaller, Principal
from dray.access.service import AccessService
from dray.access.settings import AccessSettings
from dray.disk import DirectoryInUse, Lock
from dray.node.audit_files import ADMIN_PLACE
from dray.node.directory import DataDirectory
from dray.node.joining import joined_directory
from dray.node.metadata import Effects
from dray.node.reaching import DirectoryOrCluster, Reached
from dray.replica.replica import Replica

LOCK_LIMIT_S: Final = 10.0
PAUSE_S: Final = 0.05


@asynccontextmanager
async def owner_access(
    place: DirectoryOrCluster, root: Path, reached: Reached, catalog: Replica, effects: Effects
) -> AsyncIterator[tuple[AccessService, KnownCaller]]:
    """What the owner does in the block is audited; `root` is a data directory of ours."""
    if not isinstance(place, DataDirectory):
        effects.disk.make_dir(root)
        joined_directory(root).claim(effects.disk, effects.entropy, uuid.UUID(reached.cluster_id))  # ND1
    async with _held(root / ADMIN_PLACE, effects) as chain:
        access = AccessService(
            catalog=catalog,
            clock=effects.clock,
            entropy=effects.entropy,
            offload=effects.offload,
            audit=Audit(AuditFile(chain, effects.disk), effects.aside),
            settings=AccessSettings(),
            loopback=True,
        )
        async with access.running():
            yield access, _owner(access.new_request())


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
