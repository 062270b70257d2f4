"""A broker on the log that another broker of this machine keeps: more cores for one cluster.

    drayd dev --data A
    drayd dev --data B --log unix:A/meta.sock --kafka 127.0.0.1:9093 --http 127.0.0.1:7434

The owner of A serves its log on a socket; B follows and writes it there, and
keeps its records in the store that A uses. B's own directory holds who it is
and its checkpoints: those that it helped to confirm, and copies of the owner's,
for the owner alone decides how far its log is trimmed (CK4). While the owner is
away B serves nobody, and goes on when it is back.

Invariants
    SV3  A directory that joined a log never begins one of its own, and a
         broker that joins keeps no record in a store that the cluster does
         not have.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dray.disk import Disk
from dray.errors import Corrupt, DrayError, Invalid, NotFound, Unavailable
from dray.log.client import ClientLog
from dray.node.directory import DataDirectory, Identity
from dray.node.metadata import (
    Effects,
    Home,
    Metadata,
    MetadataOptions,
    domains_of,
    run_replica,
    stop_replicas,
    watch_failure,
)
from dray.replica import telemetry
from dray.replica.checkpoints import FileCheckpoints, report_damaged
from dray.tasks.watch import Watch
from dray.telemetry import logger

JOINED: Final = "joined"


class NoLogThere(Invalid):
    """The configured log is not one that a broker of this machine keeps."""


class HasJoined(Invalid):
    """The directory belongs to a broker that uses another's log."""


class WrongStore(Invalid):
    """A broker that joins a cluster would keep its records where the others do not look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose log it is."""

    directory: DataDirectory
    identity: Identity


def owner_of(socket: Path, disk: Disk) -> Owner:
    """The data directory in which a log is kept, by the socket on which it is served."""
    directory = DataDirectory(socket.parent).located(disk)
    try:
        identity = directory.read_identity(disk)
    except NotFound:
        raise NoLogThere("no broker keeps its log there: expected unix:DIR/meta.sock", path=directory.root) from None
    if directory.socket != socket or not directory.domains(disk):
        raise NoLogThere("the log of that directory is not kept in it: expected unix:DIR/meta.sock", path=socket)
    return Owner(directory=directory, identity=identity)


def joined_directory(root: Path) -> DataDirectory:
    """The directory of a broker that joins: its checkpoints lie where no log is looked for."""
    return DataDirectory(root, root / JOINED)


def check_not_joined(root: Path, disk: Disk) -> None:
    """Raise if this directory uses another's log: a second log of its cluster must not begin (SV3)."""
    if disk.list(root / JOINED):
        raise HasJoined("this directory joined the log of another broker: start it with --log unix:PATH", path=root)


@asynccontextmanager
async def join_metadata(
    owner: Owner, directory: DataDirectory, identity: Identity, effects: Effects, options: MetadataOptions
) -> AsyncIterator[Metadata]:
    """Run a replica of every log that the owner serves; `directory` is our own."""
    options = replace(options, name=f"broker-{identity.instance_id}", owner=False)
    async with AsyncExitStack() as stack:
        failed: asyncio.Future[DrayError] = asyncio.get_running_loop().create_future()
        watch = Watch(effects.clock)
        running = {}
        for domain in owner.directory.domains(effects.disk):
            socket = owner.directory.socket
            log = ClientLog(
                socket,
                domain,
                cluster_id=identity.cluster,
                max_entry_bytes=options.max_entry_bytes,
                call_seconds=options.timing.settle_ms / 2_000,  # a second try fits into the time of an entry
            )
            stack.push_async_callback(log.close)
            effects.disk.make_dir(directory.home(domain))  # SV3
            home = Home(directory=directory, socket=socket, domain=domain)
            store = JoinedCheckpoints(home.checkpoints, owner.directory.checkpoints(domain), effects)
            running[domain] = await run_replica(stack, home, store, identity, log, effects, options, watch)
            watch_failure(running[domain].replica.failed, failed)
        yield Metadata(identity=identity, domains=domains_of(running), failed=failed, watch=watch)
        await stop_replicas(running)


class JoinedCheckpoints(FileCheckpoints):
    """Our own, and always the newest that the owner has: its log may be trimmed up to the one before that."""

    def __init__(self, directory: Path, theirs: Path, effects: Effects) -> None:
        upkeep = effects.upkeep or effects.offload
        super().__init__(directory, effects.disk, upkeep)
        self._theirs = FileCheckpoints(theirs, effects.disk, upkeep)
        self._unreadable: set[int] = set()
        self._copying = asyncio.Lock()
        """Two who ask at once would write the same file."""

    async def confirmed(self) -> list[int]:
        async with self._copying:
            ours = await super().confirmed()
            newer = [position for position in await self._theirs.confirmed() if position > max(ours, default=0)]
            for position in reversed(newer):
                if position not in self._unreadable and await self._copied(position):
                    break
            return await super().confirmed() if newer else ours

    async def _copied(self, position: int) -> bool:
        try:
            await self.write(position, await self._theirs.read(position))
            if (await self.examine(position)).position != position:
                raise Corrupt("the checkpoint has the name of another", position=position)
        except NotFound:
            return False  # it went meanwhile
        except Corrupt as error:  # theirs to keep aside; the one before it will do
            self._unreadable.add(position)
            await report_damaged(self._theirs, position, error, set_aside=False)
            await self.discard(position)
            return False
        except Unavailable as error:  # a full disk: what we have may do
            logger().warning(telemetry.CHECKPOINT_FAILED, position=position, error=str(error))
            return False
        await self.confirm(position)  # CK1: it was confirmed where it comes from
        return True
