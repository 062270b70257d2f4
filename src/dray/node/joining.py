"""A broker on the log that another broker of this machine keeps: more cores for one cluster.

    drayd dev --data A
    drayd dev --data B --log unix:A/meta.sock --kafka 127.0.0.1:9093 --http 127.0.0.1:8081

The owner of A serves its log on a socket; B follows and writes it there, and
keeps its records in the store that A uses. B's own directory holds who it is
and its checkpoints. While the owner is away B serves nobody, and goes on when
it is back.

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
from dray.errors import DrayError, Invalid, NotFound
from dray.log.client import ClientLog
from dray.node.directory import DataDirectory, Identity
from dray.node.metadata import Effects, Home, Metadata, MetadataOptions, run_replica, watch_failure
from dray.replica.checkpoints import FileCheckpoints
from dray.replica.domains import Domains

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
        replicas = {}
        for domain in owner.directory.domains(effects.disk):
            socket = owner.directory.socket
            log = ClientLog(socket, domain, cluster_id=identity.cluster, max_entry_bytes=options.max_entry_bytes)
            stack.push_async_callback(log.close)
            effects.disk.make_dir(directory.home(domain))  # SV3
            await _take_checkpoint(owner.directory, directory, domain, effects)
            home = Home(directory=directory, socket=socket, domain=domain)
            replicas[domain] = await run_replica(stack, home, identity, log, effects, options)
            watch_failure(replicas[domain].failed, failed)
        yield Metadata(identity=identity, domains=Domains(replicas), failed=failed)
        for replica in replicas.values():
            await replica.close_session()


async def _take_checkpoint(owner: DataDirectory, directory: DataDirectory, domain: int, effects: Effects) -> None:
    """Copy the owner's newest confirmed checkpoint, for the log before it may be trimmed (CK1)."""
    theirs = FileCheckpoints(owner.checkpoints(domain), effects.disk, effects.offload)
    ours = FileCheckpoints(directory.checkpoints(domain), effects.disk, effects.offload)
    for newest in (await theirs.confirmed())[-1:]:
        if newest not in await ours.confirmed():
            await ours.write(newest, await theirs.read(newest))
            await ours.confirm(newest)
