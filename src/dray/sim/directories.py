"""Brokers on data directories: the product's own start, log server and checkpoints, on a simulated machine.

`kept_log` is how a broker starts that keeps a log, `joined_log` how one that
uses it does; what they wait for and in which order is the product's. Three
things are of the simulator, because a real machine would be needed for them:

    sockets     the server listens in the world, not at a file
    children    a checkpoint is folded in the process itself, through the socket
                and in files named after a child, as the child does it
    the lock    of a directory: a node has one process at a time

This module is the one place that knows how the product is put together there.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dray.disk import Disk
from dray.errors import DrayError
from dray.log.opening import LogEffects, open_log
from dray.log.server import LogServer
from dray.log.urls import LogUrl
from dray.node import owning
from dray.node.birth import check_birth, remember_birth
from dray.node.directory import DataDirectory
from dray.node.joining import Joined, WrongStore, check_not_joined, joined_directory, owner_of
from dray.node.metadata import Effects, Metadata, MetadataOptions, run_metadata
from dray.node.owning import Owned
from dray.node.recovery import Recovered, recovered
from dray.objects.cluster import bind, bound_to
from dray.objects.memory import MemoryObjects
from dray.objects.port import Objects
from dray.replica.checkpoints import FileCheckpoints
from dray.replica.fold import InlineFolder
from dray.sim.folding import TimedFolder
from dray.sim.process import Process
from dray.tasks.watch import Watch

CHILD: Final = "1"


class WorldLogServer(LogServer):
    """The product's server; only its socket is the world's."""

    async def listen_unix(self, path: Path) -> None:
        self._servers.append(await asyncio.start_unix_server(self._accept, str(path)))


class WorldFolder:
    """What a child process does, without the process."""

    def __init__(self, home: "Home", *, log: LogUrl, domain: int, directory: Path) -> None:
        self._url = log
        self._domain = domain
        self._effects = LogEffects(clock=home.process.clock, disk=home.disk, offload=home.process.offload)
        self._store = FileCheckpoints(directory, home.disk, home.process.offload, maker=CHILD)

    async def fold(self, upto: int) -> None:
        log = await open_log(self._url, self._domain, self._effects)
        try:
            await TimedFolder(InlineFolder(log, self._store)).fold(upto)
        except DrayError:
            self._store.sweep_names(CHILD)
            raise
        finally:
            await log.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a broker lives, and what it lives on."""

    root: Path
    process: Process
    disk: Disk
    objects: Objects
    options: MetadataOptions
    watch: Watch

    def effects(self) -> Effects:
        return Effects(
            clock=self.process.clock,
            entropy=self.process.entropy,
            disk=self.disk,
            offload=self.process.offload,
            folder=partial(WorldFolder, self),
            server=WorldLogServer,
            watch=lambda _clock: self.watch,
        )


@asynccontextmanager
async def kept_log(home: Home, *, remembers: bool = True) -> AsyncIterator[Metadata]:
    """A broker that keeps its log. Older builds did not remember its birth anywhere else (see `dray.node.birth`)."""
    directory, disk, effects = DataDirectory(home.root), home.disk, home.effects()
    disk.make_dir(home.root)
    check_not_joined(home.root, disk)
    identity = directory.claim(disk, effects.entropy)
    await check_birth(home.objects, directory, identity, disk)
    await bind(home.objects, identity.cluster_id)
    async with run_metadata(Owned(directory=directory), identity, effects, home.options) as metadata:
        if remembers:
            await remember_birth(home.objects, directory, disk)
        yield metadata


@asynccontextmanager
async def joined_log(home: Home, owner_root: Path) -> AsyncIterator[Metadata]:
    """A broker that uses the log which another one keeps."""
    disk, effects = home.disk, home.effects()
    owner = owner_of(DataDirectory(owner_root).socket, disk)
    directory = joined_directory(home.root)
    disk.make_dir(home.root)
    identity = directory.claim(disk, effects.entropy, owner.identity.cluster)
    if await bound_to(home.objects) != identity.cluster_id:
        raise WrongStore("this is not the store of the cluster")
    async with run_metadata(
        Joined(log_owner=owner, directory=directory, objects=MemoryObjects()), identity, effects, home.options
    ) as metadata:
        yield metadata


MARKS_BIRTH: Final = (owning, "mark_born")
"""Where a start marks that its log was begun: for mistakes."""


async def recover_log(home: Home) -> Recovered:
    """What an operator does to a directory whose log is damaged or was rolled back."""
    directory = DataDirectory.at(home.root, home.disk)
    return await recovered(directory, 0, home.disk, home.process.entropy, home.process.clock)


def home_of_log(root: Path) -> Path:
    """Where log and checkpoints of a directory lie."""
    return DataDirectory(root).home(0)


def log_of(root: Path) -> Path:
    """Where the log of a directory lies."""
    return DataDirectory(root).log(0)


def checkpoints_of(root: Path, *, joined: bool = False) -> Path:
    """Where the checkpoints of a directory lie."""
    return (joined_directory(root) if joined else DataDirectory(root)).checkpoints(0)
