"""The logs of a data directory for who does not run on it: through its owner, or in its place for a moment.

Beside a running owner a log is opened by `DIR/meta.sock`; with none, the
directory is locked for as long as it is looked at, and its files are opened.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from dray.disk import DirectoryInUse
from dray.errors import Corrupt, NotFound, Unavailable
from dray.log.closed import ClosedLog
from dray.log.opening import is_served, look_at_log, open_log
from dray.log.port import Log
from dray.machine.machine import Machine
from dray.machine.sessions import SessionKind
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects
from dray.replica.checkpoints import CheckpointStore, FileCheckpoints, newest_machine
from dray.replica.fold import state_at
from dray.replica.replica import Replica
from dray.replica.session import Identity
from dray.replica.writer import SHORTEST_TTL_MS, Timing

OPENING_LIMIT_S: Final = 30
"""How long an owner may be about to start or to stop."""
ANSWER_LIMIT_S: Final = 10
PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A directory whose logs can be opened now."""

    directory: DataDirectory
    live: bool
    """Its owner runs and answers for the logs; else the lock is ours."""

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
            return await state_at(tail, log, self.checkpoints(domain, effects))

    @asynccontextmanager
    async def following(self, domain: int, name: str, effects: Effects) -> AsyncIterator[Replica]:
        """A replica of a tool: it has no say in upgrades, and expires nobody (RP6). Its session is the caller's."""
        url = self.directory.served if self.live else self.directory.logs
        log = await open_log(url, domain, effects.of_logs)
        try:
            async with tool_replica(log, self.checkpoints(domain, effects), name, effects) as replica:
                yield replica
        finally:
            await log.close()

    def checkpoints(self, domain: int, effects: Effects) -> FileCheckpoints:
        return FileCheckpoints(self.directory.checkpoints(domain), effects.disk, effects.aside)


@asynccontextmanager
async def tool_replica(log: Log, checkpoints: CheckpointStore, name: str, effects: Effects) -> AsyncIterator[Replica]:
    """A replica that follows while the block runs, for who is no broker. It opens a session when it proposes."""
    replica = Replica(
        log=log,
        machine=await newest_machine(checkpoints, set_aside=False),  # the owner's to keep aside
        identity=Identity(
            name=f"{name}-{effects.entropy.random_bytes(4).hex()}",
            instance=effects.entropy.random_bytes(16),
            kind=SessionKind.TOOL,
            owner=False,
        ),
        clock=effects.clock,
        entropy=effects.entropy,
        timing=Timing(keepalive_ms=SHORTEST_TTL_MS // 3),
        checkpoints=checkpoints,
    )
    async with replica.running():
        yield replica


@asynccontextmanager
async def reach(directory: DataDirectory, effects: Effects) -> AsyncIterator[Reached]:
    """Beside the owner of the directory if there is one; else as its owner, for as long as the block runs.

    Raises:
        Unavailable: it has an owner that does not answer.
    """
    waited_s = 0.0
    while True:
        if await is_served(directory.served, ANSWER_LIMIT_S):
            yield Reached(directory=directory, live=True)
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
        yield Reached(directory=directory, live=False)
    finally:
        lock.release()
