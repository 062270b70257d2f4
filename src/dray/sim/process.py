"""A simulated process: its tasks, its clocks, its dice, its threads.

A task belongs to the process in whose context it was made, so everything that
product code starts stays inside. The world (log, store, network) runs outside
and goes on when a process is paused or dead.

    running --pause--> paused --resume--> running
       |                  |
       +----- crash ------+--> dead        running --main returns--> exited

Invariants
    SM5  After `crash` no step of the process runs; its tasks are parked, not
         cancelled. What it had sent is in the world's hands and may land.
    SM6  While a process is paused its clocks and the world go on; its timers
         that fell due run when it resumes, late.
    SM7  A restart is a new process: new memory and new dice on the same
         machine, whose disk and clocks stay; a power cut restarts the boot
         clock and takes from the disk what was not synced.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from enum import Enum
from random import Random
from typing import Final, ParamSpec, TypeVar

from dray.clock import WallMs
from dray.ids import SeededEntropy
from dray.sim.loop import GATE, Gate, GateState, SimLoop
from dray.sim.trace import Trace

P = ParamSpec("P")
T = TypeVar("T")

EPOCH_MS: Final = 1_800_000_000_000
"""What an honest wall clock shows when a run begins."""
YEAR_MS: Final = 365 * 86_400_000


class Life(Enum):
    """Where a process is in its life."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"
    EXITED = "exited"


class SimClock:
    """The clocks of one machine: wall time may lie and jump, both may drift, a reboot restarts one."""

    def __init__(self, loop: SimLoop, *, offset_ms: int = 0) -> None:
        self._loop = loop
        self._since = loop.now
        self._boot_ns = 0
        self._wall_ns = (EPOCH_MS + offset_ms + int(self._since * 1000)) * 1_000_000
        self._rate = 1.0

    def wall_ms(self) -> WallMs:
        return WallMs((self._wall_ns + self._elapsed_ns()) // 1_000_000)

    def boot_ns(self) -> int:
        # Asked more often than anything else here: without the call of `_elapsed_ns`.
        return self._boot_ns + int((self._loop.now - self._since) * self._rate * 1e9)

    async def sleep(self, seconds: float) -> None:
        await self._loop.sleep(seconds / self._rate)

    def jump_wall(self, ms: int) -> None:
        """Move the wall clock alone."""
        self._wall_ns = max(0, self._wall_ns + ms * 1_000_000)

    def jump_boot(self, ms: int) -> None:
        """Time passes on this machine that passes nowhere else: both clocks are ahead from now on."""
        self._boot_ns += ms * 1_000_000
        self._wall_ns += ms * 1_000_000

    def drift(self, rate: float) -> None:
        """From now on this machine counts `rate` seconds in each second."""
        self._rebase()
        self._rate = rate

    def reboot(self) -> None:
        """The machine started anew; its wall clock went on meanwhile."""
        self._rebase()
        self._boot_ns = 0

    def _rebase(self) -> None:
        elapsed = self._elapsed_ns()
        self._boot_ns += elapsed
        self._wall_ns += elapsed
        self._since = self._loop.now

    def _elapsed_ns(self) -> int:
        return int((self._loop.now - self._since) * self._rate * 1e9)


class SimOffload:
    """Threads, without threads: the function runs inside the process, a drawn moment later.

    As with a thread, a caller that is cancelled does not stop the function.
    """

    def __init__(self, loop: SimLoop, dice: Random, max_delay: float) -> None:
        self._loop = loop
        self._dice = dice
        self.max_delay = max_delay
        self.on_power_loss: Callable[[], None] = _nobody_listens

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()

        def work() -> None:
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                settle(error=error)
            except BaseException:
                self.on_power_loss()  # a disk that died in the middle of a call: no answer, ever
            else:
                settle(result=result)

        def settle(*, result: T | None = None, error: Exception | None = None) -> None:
            def deliver() -> None:
                if answer.cancelled():
                    return
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(result)  # type: ignore[arg-type]  # T, unless there is an error

            self._loop.call_later(self._delay(), deliver)

        self._loop.call_later(self._delay(), work)
        return await answer

    def _delay(self) -> float:
        return self._dice.random() * self.max_delay if self._dice.random() < 0.5 else 0.0


class Process:
    """One process from its start to its end."""

    def __init__(self, loop: SimLoop, trace: Trace, name: str, seed: str, clock: SimClock) -> None:
        dice = Random(f"process/{seed}")
        self.name = name
        self.clock = clock
        self.entropy = SeededEntropy(f"entropy/{seed}")
        self.offload = SimOffload(loop, dice, max_delay=0.002)
        self.life = Life.RUNNING
        self.main: asyncio.Task[None] | None = None
        self.error: BaseException | None = None
        """What the main task ended with, if it failed."""
        self._loop = loop
        self._trace = trace
        self._gate = Gate(name)
        self._context = copy_context()
        self._context.run(GATE.set, self._gate)
        self._ended: asyncio.Future[None] = loop.create_future()
        self._slept = 0.0
        self._asleep_since: float | None = None

    def start(self, main: Coroutine[object, object, None]) -> None:
        """Run `main` as the process; when it returns or raises, the process is gone with all its tasks."""
        assert self.main is None, "a process starts once"
        self._trace.add(self.name, "start")
        self.main = self._loop.create_task(main, name=f"{self.name}/main", context=self._context)
        self.main.add_done_callback(self._exit, context=self._context)

    def spawn(self, work: Coroutine[object, object, T], name: str | None = None) -> asyncio.Task[T]:
        """A task inside this process, as if its code had made it."""
        return self._loop.create_task(work, name=f"{self.name}/{name or 'task'}", context=self._context)

    def _exit(self, main: asyncio.Task[None]) -> None:
        self.error = asyncio.CancelledError() if main.cancelled() else main.exception()
        self._trace.add(self.name, "exit", error=type(self.error).__name__ if self.error is not None else "none")
        self._end(Life.EXITED)

    @property
    def alive(self) -> bool:
        return self.life in (Life.RUNNING, Life.PAUSED)

    @property
    def running(self) -> bool:
        """Whether it takes steps now."""
        return self.life is Life.RUNNING

    @property
    def slept(self) -> float:
        """For how many seconds it was paused so far."""
        return self._slept + (0.0 if self._asleep_since is None else self._loop.now - self._asleep_since)

    @property
    def gate(self) -> Gate:
        """What stands before each of its steps."""
        return self._gate

    @property
    def steps(self) -> int:
        """Steps taken so far; `crash_at` counts in these."""
        return self._gate.steps

    def crash(self) -> None:
        """Kill it between two steps (SM5)."""
        if self.alive:
            self._trace.add(self.name, "crash", step=self._gate.steps)
            self._end(Life.DEAD)

    def crash_at(self, step: int) -> None:
        """Kill it just before step `step` (from 0): enumerate them all and no await is left out."""

        def before(done: int) -> None:
            if done >= step:
                self.crash()

        self._gate.before_step = before

    def pause(self) -> None:
        """Stop its steps, as SIGSTOP or a sleeping laptop does (SM6)."""
        if self.life is Life.RUNNING:
            self._trace.add(self.name, "pause")
            self._asleep_since = self._loop.now
            self.life = Life.PAUSED
            self._gate.state = GateState.HELD

    def resume(self) -> None:
        """Let a paused process go on."""
        if self.life is Life.PAUSED:
            self._trace.add(self.name, "resume")
            self._slept, self._asleep_since = self.slept, None
            self.life = Life.RUNNING
            self._loop.release(self._gate)

    async def ended(self) -> None:
        """Wait, from outside, until the process is dead or has exited."""
        await asyncio.shield(self._ended)

    def _end(self, life: Life) -> None:
        self.life = life
        self._loop.park(self._gate)  # SM5
        if not self._ended.done():
            self._ended.set_result(None)


def _nobody_listens() -> None:
    return None
