"""The process that holds pins for a Spark driver: `python -m dray.pipeline.keeper DIR SOCKET DRIVER`.

Started by a planner (`pins`). It follows the log beside the broker, and sees
to it that each hold is a pin of its live session, whatever happens to the
broker meanwhile: a restart is ridden out, an expired session is opened again.

A machine takes only so many pins of a session, and a dashboard may plan every
second. So plans share pins: an older pin keeps all that a younger one would.

Invariants
    SP6  A hold is answered `pinned` only after its pin was applied in every
         domain; it is unpinned when it runs out, and with the driver's end
         all of them are.
    SP7  A hold shares only a pin that is applied before the hold is answered,
         and that is younger than a `SHARES`th of the time that it asks for:
         no pin outlives its last hold, and their number is bounded.
"""

import asyncio
import fcntl
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from dray.disk import LocalDisk
from dray.errors import DrayError, Unavailable, Unknown
from dray.log.sockets import bind_unix
from dray.machine.garbage import Pin, Pinned, Unpin
from dray.node.directory import DataDirectory
from dray.node.reaching import Reached
from dray.pipeline.endings import wait_for_end
from dray.pipeline.opening import effects, is_live
from dray.pipeline.pins import MESSAGE_BYTES, Held, Hold
from dray.replica.replica import Replica

LOOK_S: Final = 0.5
"""How often holds are compared with the pins that the machine has."""
IDLE_S: Final = 60
"""How long a keeper without holds waits for one."""
COMPARING_LIMIT_S: Final = 10
CLOSING_LIMIT_S: Final = 5
SHARES: Final = 200
"""Pins at most, in about, for holds of one length."""
_SECOND_NS: Final = 1_000_000_000


@dataclass(slots=True, kw_only=True)
class _Shared:
    """One pin and the holds that it stands for, on the boot clock."""

    made_ns: int
    until_ns: int
    waiting: "list[asyncio.Future[Held]]" = field(default_factory=list)
    relied_on: bool = False
    """Some planner was told that it may go on."""

    def answer(self, held: Held, count: int) -> None:
        """Answer those that wait, the first `count` of them."""
        for waiter in self.waiting[:count]:
            if not waiter.done():
                waiter.set_result(held)
                self.relied_on = self.relied_on or held.state != "failed"
        del self.waiting[:count]


class Keeper:
    """Holds and the pins that stand for them."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._effects = effects()
        self._clock = self._effects.clock
        self._pins: dict[str, _Shared] = {}
        """By name, the oldest first."""
        self._changed = asyncio.Event()
        self.done = asyncio.Event()

    async def hold(self, request: Hold) -> Held:
        """Answered once the pin is applied, or once it is known that no broker runs (SP6)."""
        now = self._clock.boot_ns()
        length = request.seconds * _SECOND_NS
        young = (p for p in self._pins.values() if now - p.made_ns <= length // SHARES and p.until_ns > now)  # SP7
        shared = next(young, None)
        if shared is None:
            shared = self._pins[request.pin] = _Shared(made_ns=now, until_ns=now)
        shared.until_ns = max(shared.until_ns, now + length)
        answer: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        shared.waiting.append(answer)
        self._changed.set()
        return await answer

    async def run(self) -> None:
        """Until the driver is gone, or nothing has been held for a while."""
        idle_since = self._clock.boot_ns()
        while not self.done.is_set():
            if self._current():
                idle_since = self._clock.boot_ns()
            elif self._clock.boot_ns() - idle_since > IDLE_S * _SECOND_NS:
                return
            else:
                await self._wait()
                continue
            try:
                if await is_live(self._directory):
                    await self._pin_while_served()
                    continue
                self._answer_all(Held(state="closed"))
            except (DrayError, OSError, TimeoutError) as error:
                self._answer_all(Held(state="failed", reason=str(error)[:500]))
            await self._wait()

    async def _pin_while_served(self) -> None:
        """One replica for each domain, until the holds end or a replica stops."""
        async with AsyncExitStack() as stack:
            reached = Reached(directory=self._directory, live=True)
            name = f"spark-{os.getpid()}"
            replicas = [
                await stack.enter_async_context(reached.following(domain, name, self._effects))
                for domain in self._directory.domains(self._effects.disk)
            ]
            while not self.done.is_set() and self._current():
                stopped = next((replica for replica in replicas if replica.failed.done()), None)
                if stopped is not None:
                    # Not given back: until it expires, the old session holds what the next one has yet to pin.
                    raise stopped.failed.result()
                if any(shared.waiting for shared in self._pins.values()) and not await is_live(self._directory):
                    self._answer_all(Held(state="closed"))  # the broker has stopped; its log may come back, or not
                else:
                    with suppress(Unavailable, Unknown, TimeoutError):  # the broker restarts: try at the next look
                        async with asyncio.timeout(COMPARING_LIMIT_S):
                            await self._compare(replicas)
                await self._wait()
            await self._give_back(replicas)

    async def _compare(self, replicas: list[Replica]) -> None:
        """Make the pins of the live session equal to the holds."""
        wanted = self._current()
        waiting = {pin: len(self._pins[pin].waiting) for pin in wanted}
        for replica in replicas:
            if any(waiting.values()):
                await replica.sync()  # SP7: what is remembered of a pin may be older than its end
            session = await replica.open_session()
            pins = {pin for owner, pin in replica.machine.objects.pins if owner == session.id}
            commands = [*(Pin(pin=pin) for pin in wanted if pin not in pins)]
            for verdict in await replica.propose(*commands) if commands else ():
                if not isinstance(verdict, Pinned):
                    raise Unavailable("a pin was refused", verdict=verdict)
            surplus = [Unpin(pin=pin) for pin in sorted(pins) if pin not in wanted]
            if surplus:
                await replica.propose(*surplus)
            if replica.session is not session:
                raise Unavailable("the session ended, and its pins with it: they are made again")
        for pin, count in waiting.items():
            self._pins[pin].answer(Held(state="pinned"), count)

    async def _give_back(self, replicas: list[Replica]) -> None:
        with suppress(TimeoutError, DrayError):
            async with asyncio.timeout(CLOSING_LIMIT_S):
                for replica in replicas:
                    await replica.close_session()

    def _current(self) -> list[str]:
        """The pins whose holds have not all run out."""
        now = self._clock.boot_ns()
        self._pins = {pin: shared for pin, shared in self._pins.items() if shared.until_ns > now}
        return list(self._pins)

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._changed.wait()
        self._changed.clear()

    def stop(self) -> None:
        self.done.set()
        self._changed.set()

    def _answer_all(self, held: Held) -> None:
        for pin, shared in list(self._pins.items()):
            shared.answer(held, len(shared.waiting))
            if not shared.relied_on:
                del self._pins[pin]


async def serve(directory: DataDirectory, socket: Path, driver: int) -> None:
    """Serve planners until there is no more reason to."""
    keeper = Keeper(directory)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, keeper.stop)
    watching = asyncio.create_task(_watch(driver, keeper))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, msgspec.DecodeError, ValueError):
            request = msgspec.json.decode(await reader.readline(), type=Hold)
            writer.write(msgspec.json.encode(await keeper.hold(request)) + b"\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, sock=bind_unix(socket), limit=MESSAGE_BYTES)
    try:
        await keeper.run()
    finally:
        server.close()
        watching.cancel()


async def _watch(driver: int, keeper: Keeper) -> None:
    """Stop the keeper when the driver is gone, or can no longer be watched: a pin must not stay for nobody."""
    try:
        await wait_for_end(driver)
    finally:
        keeper.stop()


def main(arguments: list[str]) -> None:
    root, socket, driver = arguments
    lock_file = Path(f"{socket}.lock")
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock_file.stat().st_ino != os.fstat(lock).st_ino:
            return  # the file of a keeper that just ended: the planner starts another one
    except OSError:
        return  # another one serves this driver already
    try:
        asyncio.run(serve(DataDirectory.at(Path(root), LocalDisk()), Path(socket), int(driver)))
    finally:
        Path(socket).unlink(missing_ok=True)
        lock_file.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1:])
