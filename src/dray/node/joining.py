"""A broker on the log that another process of this machine keeps: a broker too, or a log server alone.

    drayd dev --data A                  drayd meta --data A
    drayd dev --data B --log unix:A/meta.sock --kafka 127.0.0.1:9093 --http 127.0.0.1:7434 --grpc 127.0.0.1:7431

The owner of A serves its log on a socket; B follows and writes it there, and
keeps its records in the store that A uses. B's own directory holds who it is
and its checkpoints: those that it helped to confirm, and copies, for the owner
alone decides how far its log is trimmed (CK4). They are copies of the owner's;
where the owner is a log server alone, which makes none, all share them in the
store. While the owner is away B serves nobody, and goes on when it is back.

Invariants
    SV3  A directory that joined a log never begins one of its own, and a
         broker that joins keeps no record in a store that the cluster does
         not have.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dray.disk import Disk
from dray.errors import Corrupt, Invalid, NotFound
from dray.log.opening import open_log
from dray.log.port import Log
from dray.machine.machine import Machine
from dray.machine.names import LogId
from dray.node.directory import DataDirectory, Identity
from dray.node.metadata import Effects, MetadataOptions, Part, log_options
from dray.objects.port import Objects
from dray.replica.checkpoints import (
    CheckpointStore,
    FileCheckpoints,
    JoinedCheckpoints,
    PublishedCheckpoints,
    SharedCheckpoints,
)
from dray.replica.fold import fold_to

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
    alone: bool
    """It is a log server alone."""


def owner_of(socket: Path, disk: Disk) -> Owner:
    """The data directory in which a log is kept, by the socket on which it is served."""
    directory = DataDirectory.at(socket.parent, disk)
    try:
        identity = directory.read_identity(disk)
    except NotFound:
        raise NoLogThere("nobody keeps a log there: expected unix:DIR/meta.sock", path=directory.root) from None
    if directory.socket != socket or not directory.domains(disk):
        raise NoLogThere("the log of that directory is not kept in it: expected unix:DIR/meta.sock", path=socket)
    return Owner(directory=directory, identity=identity, alone=directory.alone.name in disk.list(directory.root))


def joined_directory(root: Path) -> DataDirectory:
    """The directory of a broker that joins: its checkpoints lie where no log is looked for."""
    return DataDirectory(root, root / JOINED)


def has_joined(root: Path, disk: Disk) -> bool:
    """Whether this directory uses another's log."""
    return bool(disk.list(root / JOINED))


def check_not_joined(root: Path, disk: Disk) -> None:
    """Raise if this directory uses another's log: a second log of its cluster must not begin (SV3)."""
    if has_joined(root, disk):
        raise HasJoined(
            "this directory uses a log that it does not keep: start it with the --log that was used before", path=root
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The logs that another process keeps; the directory is our own."""

    log_owner: Owner
    directory: DataDirectory
    objects: Objects
    owner: bool = False

    def session_name(self, identity: Identity, options: MetadataOptions) -> str:
        return f"broker-{identity.instance_id}"

    async def open(
        self, stack: AsyncExitStack, identity: Identity, effects: Effects, options: MetadataOptions
    ) -> Sequence[Part]:
        theirs, ours = self.log_owner.directory, self.directory
        parts = []
        for domain in theirs.domains(effects.disk):
            log = await open_log(theirs.served, domain, effects.of_logs, log_options(options, identity.cluster))
            stack.push_async_callback(log.close)
            effects.disk.make_dir(ours.home(domain))  # SV3
            checkpoints = await self._checkpoints(log, domain, effects)
            folder = effects.folder(log=theirs.served, domain=domain, directory=ours.checkpoints(domain))
            parts.append(Part(domain=domain, log=log, checkpoints=checkpoints, folder=folder))
        return parts

    async def _checkpoints(self, log: Log, domain: int, effects: Effects) -> CheckpointStore:
        disk, aside, ours = effects.disk, effects.aside, self.directory.checkpoints(domain)
        theirs = FileCheckpoints(self.log_owner.directory.checkpoints(domain), disk, aside)
        if not self.log_owner.alone:
            return JoinedCheckpoints(ours, theirs, disk, aside)
        published = PublishedCheckpoints(
            self.objects, log_id=await log_id_of(log, theirs), domain=domain, offload=aside
        )
        return SharedCheckpoints(ours, published, disk, aside)


async def log_id_of(log: Log, checkpoints: FileCheckpoints) -> LogId:
    """Which log it is: so says each of its checkpoints, or its first entry, which is there until there are some."""
    for position in reversed(await checkpoints.confirmed()):
        with suppress(NotFound, Corrupt):
            return (await checkpoints.check(position)).log_id
    machine = Machine()
    await fold_to(machine, log, 1)
    return machine.log_id
