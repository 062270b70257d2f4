"""The logs of a cluster for who does not run on them: of a data directory, or of an engine that machines share.

Beside the running owner of a directory a log is opened by `DIR/meta.sock`;
with none, the directory is locked for as long as it is looked at, and its
files are opened. The logs of an engine are visited (`dray.node.visiting`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from dray.disk import DirectoryInUse
from dray.errors import Corrupt, NotFound, Unavailable
from dray.log.closed import ClosedLog
from dray.log.opening import is_served, look_at_log, open_log
from dray.log.port import Log
from dray.machine.machine import Machine
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects
from dray.node.visiting import ClusterPlace, tool_replica, visit
from dray.replica.checkpoints import FileCheckpoints, ReadableCheckpoints
from dray.replica.fold import state_at
from dray.replica.replica import Replica

OPENING_LIMIT_S: Final = 30
"""How long an owner may be about to start or to stop."""
ANSWER_LIMIT_S: Final = 10
PAUSE_S: Final = 0.1


DirectoryOrCluster: TypeAlias = DataDirectory | ClusterPlace
"""Where a cluster is."""


def told(place: DirectoryOrCluster) -> str:
    """A place in words."""
    return str(place.root) if isinstance(place, DataDirectory) else str(place.log)


class Reached(Protocol):
    """A cluster whose logs can be opened now."""

    @property
    def live(self) -> bool:
        """Somebody else answers for the logs, and others may use them; else they are ours alone."""
        ...

    @property
    def cluster_id(self) -> str: ...

    def domains(self, effects: Effects) -> Sequence[int]:
        """Every domain that there is."""
        ...

    def reading(self, domain: int, effects: Effects) -> AbstractAsyncContextManager[Log]:
        """The log of a domain, for reading; `NotFound` if there is no such domain."""
        ...

    async def machine(self, domain: int, effects: Effects) -> Machine:
        """The state as of now: everything that was acknowledged before this call."""
        ...

    def following(self, domain: int, name: str, effects: Effects) -> AbstractAsyncContextManager[Replica]:
        """A replica of a tool: it has no say in upgrades, and expires nobody (RP6). Its session is the caller's."""
        ...

    async def checkpoints(self, log: Log, domain: int, effects: Effects) -> ReadableCheckpoints:
        """Those of a log that was opened here."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedDirectory:
    """A directory whose logs can be opened now."""

    directory: DataDirectory
    live: bool
    """Its owner runs and answers for the logs; else the lock is ours."""
    cluster_id: str

    def domains(self, effects: Effects) -> Sequence[int]:
        return self.directory.domains(effects.disk)

    @asynccontextmanager
    async def reading(self, domain: int, effects: Effects) -> AsyncIterator[Log]:
        """The log of a domain, for reading; `NotFound` if there is no such domain."""
        if domain not in self.directory.domains(effects.disk):
            raise NotFound("the directory has no such domain", path=self.directory.root, domain=domain)
        log: Log
        if self.live:
            log = await open_log(self.directory.served, domain, effects.of_logs)
        else:
            log = look_at_log(self.directory.logs, domain, effects.disk)
        try:
            yield log
        finally:
            await log.close()

    async def machine(self, domain: int, effects: Effects) -> Machine:
        """The state as of now: everything that was acknowledged before this call.

        Raises:
            Corrupt: the log is damaged.
        """
        async with self.reading(domain, effects) as log:
            if isinstance(log, ClosedLog) and log.survey.damage is not None:
                raise Corrupt("the log is damaged: run drayd admin meta verify", reason=log.survey.damage.reason)
            async with asyncio.timeout(ANSWER_LIMIT_S):
                tail = await log.tail()
            return await state_at(tail, log, await self.checkpoints(log, domain, effects))

    @asynccontextmanager
    async def following(self, domain: int, name: str, effects: Effects) -> AsyncIterator[Replica]:
        """A replica of a tool: it has no say in upgrades, and expires nobody (RP6). Its session is the caller's."""
        url = self.directory.served if self.live else self.directory.logs
        log = await open_log(url, domain, effects.of_logs)
        try:
            checkpoints = await self.checkpoints(log, domain, effects)
            async with tool_replica(log, checkpoints, name, effects) as replica:
                yield replica
        finally:
            await log.close()

    async def checkpoints(self, log: Log, domain: int, effects: Effects) -> FileCheckpoints:
        return FileCheckpoints(self.directory.checkpoints(domain), effects.disk, effects.aside)


@asynccontextmanager
async def reach(place: DirectoryOrCluster, effects: Effects) -> AsyncIterator[Reached]:
    """Beside whoever answers for the logs; as the owner of a directory that has none, for as long as the block runs.

    Raises:
        Unavailable: the directory has an owner that does not answer.
        NotFound: there is no cluster.
    """
    if isinstance(place, ClusterPlace):
        async with visit(place, effects) as visited:
            yield visited
        return
    async with _reach_directory(place, effects) as reached:
        yield reached


@asynccontextmanager
async def _reach_directory(directory: DataDirectory, effects: Effects) -> AsyncIterator[ReachedDirectory]:
    cluster_id, waited_s = directory.read_identity(effects.disk).cluster_id, 0.0
    while True:
        if await is_served(directory.served, ANSWER_LIMIT_S):
            yield ReachedDirectory(directory=directory, live=True, cluster_id=cluster_id)
            return
        try:
            lock = effects.lock(directory.root)
            break
        except DirectoryInUse as error:  # an owner that is starting or stopping, or another one who looks
            if waited_s >= OPENING_LIMIT_S:
                raise Unavailable("the owner of the directory does not answer", socket=directory.socket) from error
        await asyncio.sleep(PAUSE_S)
        waited_s += PAUSE_S
    try:
        yield ReachedDirectory(directory=directory, live=False, cluster_id=cluster_id)
    finally:
        lock.release()
