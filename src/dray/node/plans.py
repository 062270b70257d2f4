"""Plans that a broker makes for drivers elsewhere, each by a process: neither its loop nor its memory is in it.

A plan of many partitions takes seconds of a processor, and one by time reads
files with Arrow. The process reads the log beside this one, as a planner on
this machine does.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import msgspec

from dray.errors import Conflict, DrayError, Invalid, NotFound, Unavailable
from dray.log.urls import LogUrl, SharedLogs
from dray.machine.holds import LetGo
from dray.node.directory import DataDirectory
from dray.node.store import store_of
from dray.objects.settings import ObjectsSettings
from dray.replica.domains import Domains
from dray.servers.http.errors import TooManyAtOnce
from dray.servers.http.plans import PlanFailed, PlanRequest, PlanStream
from dray.tables.options import Store
from dray.tables.plans import KINDS, PlanAnswer, PlanMade, PlanOrder

COMMAND: Final = (sys.executable, "-m", "dray.pipeline.planner")
AT_A_TIME: Final = 2
WAITING: Final = 32
"""Beyond that a driver is told to come again (HT4)."""
PLANNING_S: Final = 150
CHUNK_BYTES: Final = 1 << 18
LINE_BYTES: Final = 1 << 16


class PlannerProcesses:
    """Makes plans, a few at a time."""

    def __init__(
        self, directory: DataDirectory | None, log: LogUrl | None, store: ObjectsSettings, domains: Domains
    ) -> None:
        self._directory = directory
        self._log = str(log) if isinstance(log, SharedLogs) else None
        self._store: Store = store_of(store)
        self._domains = domains
        self._places = asyncio.Semaphore(AT_A_TIME)
        self._waiting = 0

    async def plan(self, request: PlanRequest) -> PlanStream:
        """Make one; its content must be read to the end or closed.

        Raises:
            PlanFailed: the planner's own words.
            TooManyAtOnce: as many wait already as may (HT4).
            Unavailable: it took too long.
        """
        if self._directory is None:
            raise Invalid("this broker keeps everything in memory: nobody else can read it")
        if self._waiting >= WAITING:
            raise TooManyAtOnce("too many plans are being made: come again", waiting=self._waiting)  # HT4
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        order = PlanOrder(
            data=str(self._directory.root.absolute()), log=self._log, store=self._store, options=request.options,
            parallel=request.parallel, shared=request.shared,
        )  # fmt: skip
        run = _Run(self._places)
        try:
            made = await run.made(msgspec.json.encode(order))
        except BaseException:
            await run.end()
            raise
        return PlanStream(size=made.size, pin=made.pin, content=run.content(made.size))

    async def let_go(self, pin: str) -> None:
        """End a hold that belongs to one plan alone.

        Raises:
            NotFound: there is none of that name.
            Conflict: others may share it; it ends by time.
        """
        found = False
        for replica in self._domains.all.values():
            await replica.sync()  # the hold was another process's: it may not be here yet
            held = replica.machine.holds.current().get(pin)
            if held is not None and held.shared:
                raise Conflict("others may share it: it ends by time", pin=pin)
            if held is not None:
                await replica.propose(LetGo(pin=pin))
                found = True
        if not found:
            raise NotFound("no such plan is held", pin=pin[:255])


class _Run:
    """One planner. It has a place until it has ended, and ends in time also if nobody reads what it says."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places: asyncio.Semaphore | None = places
        self._process: asyncio.subprocess.Process | None = None
        self._limit = asyncio.create_task(self._end_late())

    async def made(self, order: bytes) -> PlanMade:
        """What it says first."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES
            )
            assert self._process.stdin is not None, "it was asked for"
            self._process.stdin.write(order)
            self._process.stdin.close()
            line = await self._output().readline()
        except (OSError, ValueError) as error:
            raise Unavailable("a planner could not be started, or failed", reason=error) from error
        if not line:
            raise Unavailable("the planner ended without an answer: look at the log of the broker")
        told = msgspec.json.decode(line, type=PlanAnswer)
        if not isinstance(told, PlanMade):
            raise PlanFailed(type_=told.error, behind=KINDS.get(told.kind, DrayError)(told.message))
        return told

    async def content(self, size: int) -> AsyncIterator[bytes]:
        """What it says then."""
        try:
            while size:
                part = await self._output().read(min(CHUNK_BYTES, size))
                if not part:
                    raise Unavailable("the planner ended before its plan did")
                size -= len(part)
                yield part
        finally:
            await self.end()

    async def end(self) -> None:
        """To end it again is harmless."""
        self._limit.cancel()
        await self._stop()

    async def _end_late(self) -> None:
        await asyncio.sleep(PLANNING_S)
        await self._stop()

    async def _stop(self) -> None:
        places, self._places = self._places, None
        if places is None:
            return
        places.release()
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()  # it has said all, or nobody listens any more
            await self._process.wait()

    def _output(self) -> asyncio.StreamReader:
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "it was asked for"
        return self._process.stdout
