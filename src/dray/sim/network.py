"""The way between processes and services: slow, lossy, cut at any moment.

A call leaves its process, arrives at the service some time later, is carried
out there by the world, and its answer travels back. Each leg may fail. The
caller hears of a failure as `lost` (it may have happened) or as `refused`
(it surely did not); which error that is, the port decides.

Invariants
    SM8  A call that has left its process is carried out or not whatever
         becomes of the caller: dead, paused or cancelled.
    SM9  `refused` is raised only if the call never arrives, now or later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from dray.errors import DrayError
from dray.sim.loop import GATE, SimLoop
from dray.sim.trace import Trace

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How bad a link is; probabilities are per call."""

    min_delay: float = 0.0005
    max_delay: float = 0.005
    request_lost: float = 0.0
    """The request never arrives; the caller hears `lost`."""
    reply_lost: float = 0.0
    """It was carried out; the caller hears `lost`."""
    refused: float = 0.0
    """It never leaves, and the caller is told so."""
    late_copy: float = 0.0
    """A copy of the request arrives again, up to `copy_within` seconds later."""
    copy_within: float = 120.0
    timeout: float = 5.0
    """How long a caller waits for an answer that does not come."""


FAIR: Final = Weather()
ROUGH: Final = Weather(
    max_delay=0.2, request_lost=0.1, reply_lost=0.2, refused=0.05, late_copy=0.2, copy_within=60.0, timeout=2.0
)


class Network:
    """All links of one world."""

    def __init__(self, loop: SimLoop, trace: Trace, dice: Random) -> None:
        self.loop = loop
        self.trace = trace
        self.dice = dice
        self.outside: Context = copy_context()
        self.outside.run(GATE.set, None)
        self._links: dict[tuple[str, str], Link] = {}
        self._messages: set[asyncio.Task[None]] = set()

    def link(self, process: str, service: str) -> "Link":
        """The link from a process (by the name of its node) to a service; a restart does not mend it."""
        key = (process, service)
        if key not in self._links:
            self._links[key] = Link(self, process, service)
        return self._links[key]

    def links(self, process: str | None = None, service: str | None = None) -> list["Link"]:
        """The links of a process, to a service, or all."""
        return [
            link for link in self._links.values() if process in (None, link.process) and service in (None, link.service)
        ]

    def start(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        """Run something in the world: it outlives every process."""
        task = self.loop.create_task(work, name="message", context=self.outside)
        self._messages.add(task)
        task.add_done_callback(self._messages.discard, context=self.outside)
        return task

    def heal(self) -> None:
        """Fair weather everywhere, nothing cut."""
        for link in self._links.values():
            link.weather = FAIR
            link.join()


class Link:
    """One process' way to one service."""

    def __init__(self, network: Network, process: str, service: str) -> None:
        self.process = process
        self.service = service
        self.weather = FAIR
        self._network = network
        self._up = True
        self.broken_streams = 0
        """How often the streams of this link went silent: one that began before the last time shows nothing more."""
        self._joined: list[asyncio.Future[None]] = []

    def half_open(self) -> None:
        """Whatever flows now flows no more, and nobody is told; calls and new streams pass."""
        self.note("half open")
        self.broken_streams += 1

    async def never(self) -> None:
        """Wait for what does not come."""
        await self._network.loop.create_future()

    def is_up(self) -> bool:
        """Whether anything passes now."""
        return self._up

    def cut(self) -> None:
        """Nothing passes in either direction."""
        self._up = False

    def join(self) -> None:
        """Mend a cut link."""
        self._up = True
        waiting, self._joined = self._joined, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until_up(self) -> None:
        """Wait while the link is cut."""
        while not self._up:
            future: asyncio.Future[None] = self._network.loop.create_future()
            self._joined.append(future)
            await future

    async def travel(self) -> None:
        """One leg of a conversation that is not lost, only slow."""
        await self._network.loop.sleep(self.delay())

    async def call(
        self,
        what: str,
        operation: Callable[[], Awaitable[T]],
        *,
        lost: Callable[[], DrayError],
        refused: Callable[[], DrayError],
        copies: bool = False,
    ) -> T:
        """Carry `operation` out at the service; see the module for what can go wrong."""
        network, weather = self._network, self.weather
        fate = network.dice.random()
        if fate < weather.refused or (not self._up and fate < 0.5):
            self.note(f"{what} refused")
            await self.travel()
            raise refused()  # SM9: nothing has left
        request_lost = not self._up or fate < weather.refused + weather.request_lost
        answer: asyncio.Future[T] = network.loop.create_future()
        network.start(self._carry(what, operation, answer, lost, request_lost))  # SM8
        if copies and network.dice.random() < weather.late_copy:
            network.start(self._copy(what, operation, network.dice.random() * weather.copy_within))
        return await answer

    async def _carry(
        self,
        what: str,
        operation: Callable[[], Awaitable[T]],
        answer: asyncio.Future[T],
        lost: Callable[[], DrayError],
        request_lost: bool,
    ) -> None:
        weather = self.weather
        await self.travel()
        if request_lost or not self.is_up():
            self.note(f"{what} request lost")
            await asyncio.sleep(weather.timeout)
            _fail(answer, lost())
            return
        try:
            result = await operation()
        except DrayError as error:
            await self.travel()
            _fail(answer, error if self.is_up() else lost())
            return
        if self._network.dice.random() < weather.reply_lost:
            self.note(f"{what} reply lost")
            await asyncio.sleep(weather.timeout)
            _fail(answer, lost())
            return
        await self.travel()
        if not self.is_up():
            self.note(f"{what} reply cut off")
            await asyncio.sleep(weather.timeout)
            _fail(answer, lost())
        elif not answer.done():
            answer.set_result(result)

    async def _copy(self, what: str, operation: Callable[[], Awaitable[T]], after: float) -> None:
        await asyncio.sleep(after)
        self.note(f"{what} late copy")
        try:
            await operation()
        except DrayError as error:
            self.note(f"{what} late copy failed: {error}")

    def note(self, what: str) -> None:
        """Say in the trace what became of a message."""
        self._network.trace.add(self.process, f"{self.service}: {what}")

    def delay(self) -> float:
        """How long one leg takes, drawn anew each time."""
        dice, weather = self._network.dice, self.weather
        return weather.min_delay + dice.random() * (weather.max_delay - weather.min_delay)


def _fail(answer: asyncio.Future[T], error: DrayError) -> None:
    if not answer.done():
        answer.set_exception(error)
        # A caller that died never looks; that is no failure of the world.
        answer.exception()
