"""The metadata of a data directory, for a planner: beside a running broker, or with none.

Beside a broker the log is read through `DIR/meta.sock`. With none, the
directory is locked for the seconds that planning takes. Nothing is written.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from dray.disk import DirectoryInUse, DirectoryLock, LocalDisk
from dray.errors import Corrupt, NotFound, Unavailable
from dray.log.client import ClientLog
from dray.log.closed import ClosedLog
from dray.log.port import Log, Trimmed
from dray.log.sockets import reachable_path
from dray.machine.machine import Machine
from dray.node.directory import DataDirectory, Identity
from dray.offload import InlineOffload
from dray.replica.checkpoints import FileCheckpoints, newest_machine
from dray.replica.fold import fold_to

OPENING_LIMIT_S: Final = 30
ANSWER_LIMIT_S: Final = 10
PAUSE_S: Final = 0.1
JUMPS: Final = 5


def read_directory(path: str) -> tuple[DataDirectory, Identity]:
    """The directory and whose it is; `NotFound` if it is not one of Dray's."""
    directory = DataDirectory(Path(path).absolute())
    try:
        return directory, directory.read_identity(LocalDisk())
    except NotFound as error:
        raise NotFound("not a data directory of Dray: give the one a broker runs on", path=path) from error


class Metadata:
    """The machines of a directory, each folded to the tail of its log when asked for."""

    def __init__(self, directory: DataDirectory, *, live: bool) -> None:
        self._directory = directory
        self._disk = LocalDisk()
        self.live = live

    async def machine(self, domain: int) -> Machine:
        """The state as of now: everything that was acknowledged before this call."""
        if domain not in self._directory.domains(self._disk):
            raise NotFound("the directory has no such domain", path=self._directory.root, domain=domain)
        if not self.live:
            closed = ClosedLog(self._directory.log(domain), self._disk)
            if closed.survey.damage is not None:
                raise Corrupt("the log is damaged: run drayd admin meta verify", reason=closed.survey.damage.reason)
            return await self._fold(closed, domain)
        log = ClientLog(self._directory.socket, domain)
        try:
            return await self._fold(log, domain)
        finally:
            await log.close()

    async def _fold(self, log: Log, domain: int) -> Machine:
        checkpoints = FileCheckpoints(self._directory.checkpoints(domain), self._disk, InlineOffload())
        async with asyncio.timeout(ANSWER_LIMIT_S):
            tail = await log.tail()
        for _ in range(JUMPS):
            machine = await newest_machine(checkpoints)
            try:
                await fold_to(machine, log, tail)
            except Trimmed:
                continue  # a newer checkpoint was confirmed while this one was read
            return machine
        raise Unavailable("the log is trimmed faster than it can be read", domain=domain)


@asynccontextmanager
async def open_metadata(directory: DataDirectory) -> AsyncIterator[Metadata]:
    """Beside the owner of the directory if there is one; else as its owner, for a moment."""
    waited = 0.0
    while True:
        if await is_served(directory):
            yield Metadata(directory, live=True)
            return
        try:
            lock = DirectoryLock(directory.root)
            break
        except DirectoryInUse as error:  # an owner that is starting or stopping, or another planner
            if waited >= OPENING_LIMIT_S:
                raise Unavailable("the owner of the directory does not answer", socket=directory.socket) from error
        await asyncio.sleep(PAUSE_S)
        waited += PAUSE_S
    try:
        yield Metadata(directory, live=False)
    finally:
        lock.release()


async def is_served(directory: DataDirectory) -> bool:
    """Whether a process listens on the log's socket."""
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            with reachable_path(directory.socket) as name:
                _, writer = await asyncio.open_unix_connection(name)
    except OSError:
        return False
    writer.close()
    return True
