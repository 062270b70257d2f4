"""Processes that are started, watched and ended together: a log server, and the brokers on it.

    start: the first one alone, for the others need it ─► the others, at once ─► every one has said `ready`
    watch: one that ends is started anew, where it listened before, later each time
    stop:  the others, at once ─► the first

Invariants
    FL1  A process that died is started again, unless it never served: then the
         start as a whole fails as it failed.
    FL2  No process outlives the fleet: they are told to end, then made to, and
         the system ends them should this process be killed.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from dray.clock import Clock
from dray.disk import DirectoryInUse
from dray.errors import Corrupt, DrayError, Invalid, Unavailable
from dray.node import telemetry
from dray.telemetry import logger

BACKOFF_S: Final = (0.2, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Pauses before a process is started again; the last one is repeated."""
STEADY_NS: Final = 60_000_000_000
"""Who has served for this long begins with the first pause again."""
OTHERS_STOP_S: Final = 20.0
FIRST_STOP_S: Final = 4.0
_PR_SET_PDEATHSIG: Final = 1
_KINDS: Final[dict[int, type[DrayError]]] = {2: Invalid, 3: DirectoryInUse, 4: Corrupt}
"""What the exit codes of `drayd` mean."""


@dataclass(slots=True, kw_only=True)
class Member:
    """One process of a fleet."""

    name: str
    arguments: Sequence[str]
    """What `drayd` is given."""
    free: Mapping[str, str] = field(default_factory=dict)
    """Flags whose address has a free port, by the word of the ready line that tells which it took: it keeps that."""
    told: dict[str, str] = field(default_factory=dict)
    """What its ready line said."""
    process: asyncio.subprocess.Process | None = None

    def command(self) -> list[str]:
        """What starts it: the second time where it listened the first time."""
        told = {flag: urlsplit(f"//{self.told[word].removeprefix('http://')}") for word, flag in self.free.items()
                if word in self.told}  # fmt: skip
        kept = [text for flag, address in told.items() for text in (flag, address.netloc)]
        return [sys.executable, "-m", "dray.cli", *self.arguments, *kept]


class Fleet:
    """The processes, and who watches them."""

    def __init__(self, first: Member, others: Sequence[Member], clock: Clock) -> None:
        self._first = first
        self._others = others
        self._clock = clock
        self._watching: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of them serve when the block begins, and are gone when it has ended (FL2)."""
        try:
            await self._begin(self._first)
            await asyncio.gather(*(self._begin(member) for member in self._others))
            self._watching = [asyncio.create_task(self._watch(one)) for one in (self._first, *self._others)]
            yield
        finally:
            for task in self._watching:
                task.cancel()
            await asyncio.gather(*self._watching, return_exceptions=True)
            await asyncio.gather(*(_end(member, OTHERS_STOP_S) for member in self._others))
            await _end(self._first, FIRST_STOP_S)

    async def _begin(self, member: Member) -> None:
        """The first start: a process that does not come up is why the fleet does not (FL1)."""
        if not await _start(member):
            assert member.process is not None
            code = await member.process.wait()
            raise _KINDS.get(code, Unavailable)(f"{member.name} did not start: see above", exit_code=code)

    async def _watch(self, member: Member) -> None:
        failures = 0
        while True:
            assert member.process is not None
            began_ns = self._clock.boot_ns()
            code = await member.process.wait()
            failures = 0 if self._clock.boot_ns() - began_ns > STEADY_NS else failures
            pause_s = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
            failures += 1
            logger().warning(telemetry.MEMBER_ENDED, name=member.name, exit_code=code, again_in_s=pause_s)
            await self._clock.sleep(pause_s)
            if await _start(member):
                logger().info(telemetry.MEMBER_BACK, name=member.name, pid=member.process.pid)


async def _start(member: Member) -> bool:
    """Start a process and wait for its ready line; False if it ended before."""
    member.process = await asyncio.create_subprocess_exec(
        *member.command(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # what a terminal sends to all of us is for this process alone: there is an order
        preexec_fn=partial(_end_with, os.getpid()),
    )
    assert member.process.stdout is not None
    word, *facts = (await member.process.stdout.readline()).decode().split() or [""]
    if word != "ready":
        return False
    member.told |= dict(fact.split("=", 1) for fact in facts)
    return True


async def _end(member: Member, limit_s: float) -> None:
    """Tell a process to end; make it end if it does not (FL2)."""
    process = member.process
    if process is None or process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), limit_s)
    except TimeoutError:
        logger().warning(telemetry.MEMBER_KILLED, name=member.name, limit_s=limit_s)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _end_with(parent: int) -> None:
    """Runs in the child before its program: it is told to end when its parent is gone (FL2)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was gone before that
            os._exit(1)
