"""An event loop whose time is virtual and whose schedule follows a seed.

Nothing here waits: when no step is ready, time jumps to the next timer. Task
steps that are ready together run in an order drawn from the seed; callbacks
keep the order in which they were scheduled, as asyncio promises. Threads and
signals do not exist, and no sockets but those of `dray.sim.sockets`.

A step belongs to the `Gate` of the context it runs in (a simulated process).
A held gate keeps steps back, a shut gate keeps them for ever: that is how a
process is paused or killed without a `finally` running.

Invariants
    SM1  The same seed gives the same schedule, in any process and under any
         hash seed: tasks and futures hash by a counter, never by address, and
         the cyclic collector is off while the loop runs.
    SM2  A step of a shut gate never runs again; its `finally` blocks do not
         run before the simulation is over.
    SM3  Nothing waits for ever unseen: when no step and no timer is left, or
         a bound on steps or time is passed, every task is reported with the
         line it waits at.
"""

import asyncio
import gc
import sys
import warnings
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from heapq import heapify, heappop, heappush
from random import Random
from types import CodeType, FrameType
from typing import Final, NoReturn, Protocol, TypeVar, TypeVarTuple, cast

import msgspec

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_COMPACT_AT: Final = 64  # cancelled timers tolerated in the heap before it is rebuilt
_SWEEP_AT: Final = 256  # tasks, dead ones among them, before the list of them is swept
_CLEANUPS: Final = 20  # awaits in the cleanup of one coroutine that is thrown away
_MIX: Final = 0x100000001B3
_MASK: Final = (1 << 64) - 1


class SimulationError(RuntimeError):
    """The simulated program did what it must not do here."""


class Deadlock(SimulationError):
    """Nothing is ready and no timer is set: the program waits for ever (SM3)."""


class OutOfBounds(SimulationError):
    """More steps or virtual time than a run may take: the program probably spins (SM3)."""


class GateState(Enum):
    """Whether the steps of a process run."""

    OPEN = "open"
    HELD = "held"
    SHUT = "shut"


_OPEN: Final = GateState.OPEN  # looked up at every step


class Gate:
    """What stands before each step of one simulated process."""

    __slots__ = ("before_step", "kept", "name", "state", "steps")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = GateState.OPEN
        self.kept: list[_Handle] = []
        self.steps = 0
        self.before_step: Callable[[int], None] | None = None
        """Called with the number of steps taken so far; may close the gate before the next one."""


GATE: Final[ContextVar[Gate | None]] = ContextVar("dray_sim_gate", default=None)


class SimFuture(asyncio.Future[T]):
    """A future that hashes by a counter (SM1)."""

    __slots__ = ("order",)
    order: int
    """Set by the loop right after it is made: a constructor in Python would cost as much as the rest."""

    def __hash__(self) -> int:
        return self.order


class SimTask(asyncio.Task[T]):
    """A task that hashes by a counter: a TaskGroup cancels its set in the same order everywhere (SM1)."""

    __slots__ = ("gate", "order")

    def __init__(
        self, coro: Coroutine[object, object, T], order: int, loop: "SimLoop", name: str | None, context: Context
    ) -> None:
        self.order = order
        self.gate = context.get(GATE)
        super().__init__(coro, loop=loop, name=name or f"task-{order}", context=context)

    def __hash__(self) -> int:
        return self.order


class _Handle(msgspec.Struct, eq=False):
    """A scheduled call: what asyncio's handles do, made in a third of their time, for one is made at every step."""

    owner: "SimLoop | None"
    """The loop whose heap holds it; nobody once it has fallen due."""
    due: float
    order: int
    callback: object
    """It takes `args`: who scheduled it was asked for that."""
    args: tuple[object, ...]
    context: Context
    gate: Gate | None
    dead: bool = False

    def __repr__(self) -> str:
        return f"<call {self.callback!r} at={self.due} cancelled={self.dead}>"

    def cancel(self) -> None:
        if not self.dead:
            self.dead = True
            self.args = ()
            if self.owner is not None:
                self.owner.timer_cancelled()

    def cancelled(self) -> bool:
        return self.dead

    def when(self) -> float:
        return self.due


class UnixSockets(Protocol):
    """Where streams of this loop go."""

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], path: str) -> asyncio.Server: ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], path: str
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class SimLoop(asyncio.AbstractEventLoop):
    """One simulation's loop. Not for reuse: a new seed is a new loop."""

    def __init__(self, seed: int | str, *, max_steps: int = 2_000_000, max_seconds: float = 1e9) -> None:
        self._draw = Random(f"schedule/{seed}").getrandbits
        self.now = 0.0
        """Virtual time, for who asks at every step."""
        self._ready: list[_Handle] = []
        self._timers: list[tuple[float, int, _Handle]] = []
        self._cancelled_timers = 0
        self._counter = 0
        self._tasks: list[weakref.ref[SimTask[object]]] = []
        """By age. A dictionary of weak references would cost more than half of making a task."""
        self._sweep_at = _SWEEP_AT
        self._parked: list[tuple[Gate, list[SimTask[object]]]] = []
        self._generators: dict[int, Gate] = {}
        self._running = False
        self._stopping = False
        self._closed = False
        self._max_steps = max_steps
        self._max_seconds = max_seconds
        self.steps = 0
        self.schedule = 0
        """A digest of the order in which tasks ran: equal schedules have equal digests (SM1)."""
        self.failures: list[str] = []
        """What asyncio would have logged: exceptions that nobody took."""
        self.sockets: UnixSockets | None = None

    # Running.

    def run_until_complete(self, future: Awaitable[T] | Generator[None, None, T]) -> T:
        assert asyncio.iscoroutine(future), "the simulation starts from a coroutine"
        main = self.create_task(cast("Coroutine[object, object, T]", future), name="main")
        main.add_done_callback(self._main_is_done)
        self.run_forever()
        if not main.done():
            raise SimulationError("the loop was stopped before its main task ended")
        return main.result()

    def _main_is_done(self, _main: asyncio.Future[T]) -> None:
        self.stop()

    def run_forever(self) -> None:
        self._check_open()
        collecting = gc.isenabled()
        gc.disable()  # SM1: finalizers run when the last reference goes, not when a counter overflows
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._note_generator, finalizer=self._finalize_generator)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not self._stopping:
                self._run_once()
        finally:
            self._running = False
            self._stopping = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def _run_once(self) -> None:
        """Every step goes through here: what is written out would be a call for each, several tenths of a step."""
        if not self._ready:
            self._jump()
        batch = self._ready
        self._ready = []
        if len(batch) > 1:
            self._shuffle(batch)
        for handle in batch:
            if handle.dead:
                continue
            gate = handle.gate
            if gate is not None:
                if gate.before_step is not None and gate.state is _OPEN:
                    gate.before_step(gate.steps)
                if gate.state is not _OPEN:
                    gate.kept.append(handle)  # SM2
                    continue
                gate.steps += 1
            self.steps += 1
            self.schedule = ((self.schedule ^ handle.order) * _MIX) & _MASK
            try:
                handle.context.run(handle.callback, *handle.args)  # type: ignore[arg-type]
            except BaseException as error:
                self._failed(handle, error)
        if self.steps > self._max_steps:
            raise OutOfBounds(f"more than {self._max_steps} steps by {self.now:.3f} s\n{self.report()}")

    def _failed(self, handle: _Handle, error: BaseException) -> None:
        if isinstance(error, SystemExit | KeyboardInterrupt | SimulationError):
            raise error
        self.failures.append(f"callback {handle.callback!r} raised {error!r}")

    def _shuffle(self, batch: list[_Handle]) -> None:
        """Permute the task steps among their places; callbacks stay where they are."""
        places = [i for i, handle in enumerate(batch) if type(getattr(handle.callback, "__self__", None)) is SimTask]
        if len(places) > 1:
            steps = [batch[i] for i in places]
            draw = self._draw
            # As `Random.shuffle` does it, without two calls for each.
            for last in range(len(steps) - 1, 0, -1):
                bits = (last + 1).bit_length()
                drawn = draw(bits)
                while drawn > last:
                    drawn = draw(bits)
                steps[last], steps[drawn] = steps[drawn], steps[last]
            for place, handle in zip(places, steps, strict=True):
                batch[place] = handle

    def _jump(self) -> None:
        """Move time to the next timer and make what is due ready."""
        timers = self._timers
        while timers and timers[0][2].dead:
            heappop(timers)
            self._cancelled_timers -= 1
        if not timers:
            raise Deadlock(f"nothing is ready and no timer is set at {self.now:.3f} s\n{self.report()}")
        now = self.now = max(self.now, timers[0][0])
        if now > self._max_seconds:
            raise OutOfBounds(f"virtual time passed {self._max_seconds} s\n{self.report()}")
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[2]
            if handle.dead:
                self._cancelled_timers -= 1
            else:
                handle.owner = None
                self._ready.append(handle)

    def timer_cancelled(self) -> None:
        """A handle was cancelled; rebuild the heap when most of it is dead."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _COMPACT_AT and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2].dead]
            heapify(self._timers)
            self._cancelled_timers = 0

    def park(self, gate: Gate) -> None:
        """Shut a gate for good. What lies behind it is kept, or dropping it would run its `finally` (SM2)."""
        gate.state = GateState.SHUT
        self._parked.append((gate, [task for task in self.tasks() if task.gate is gate]))

    def release(self, gate: Gate) -> None:
        """Open a held gate; what it kept is ready now."""
        gate.state = GateState.OPEN
        self._ready.extend(gate.kept)
        gate.kept = []

    # Scheduling.

    # Each of these makes its handle by itself: they are called at every step, and one call less is a tenth of it.

    def call_soon(  # type: ignore[override]  # its handles are no subclass
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Handle:
        order = self._counter = self._counter + 1
        if context is None:
            context = copy_context()
        handle = _Handle(None, self.now, order, callback, args, context, context.get(GATE))
        if not self._closed:
            self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Handle:
        order = self._counter = self._counter + 1
        if context is None:
            context = copy_context()
        handle = _Handle(self, when, order, callback, args, context, context.get(GATE))
        if not self._closed:
            heappush(self._timers, (when, order, handle))
        return handle

    async def sleep(self, seconds: float) -> None:
        """What `asyncio.sleep` does, with the same steps, without the calls: half of all waiting goes through here."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: SimFuture[None] = SimFuture(loop=self)
        future.order = self._counter + 1
        order = self._counter = self._counter + 2
        context = copy_context()
        due = self.now + seconds
        handle = _Handle(self, due, order, _wake, (future,), context, context.get(GATE))
        if not self._closed:
            heappush(self._timers, (due, order, handle))
        try:
            await future
        except BaseException:
            handle.cancel()
            raise

    def create_future(self) -> SimFuture[T]:
        self._counter += 1
        future: SimFuture[T] = SimFuture(loop=self)
        future.order = self._counter
        return future

    def create_task(
        self,
        coro: Generator[None, None, T] | Coroutine[object, object, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        eager_start: bool | None = None,
    ) -> SimTask[T]:
        assert asyncio.iscoroutine(coro), "generator-based coroutines are gone"
        assert not eager_start, "an eager first step would escape the schedule"
        if self._closed:
            coro.close()
        self._check_open()
        self._counter += 1
        task = SimTask(coro, self._counter, self, name, context if context is not None else copy_context())
        self._tasks.append(weakref.ref(cast("SimTask[object]", task)))
        if len(self._tasks) > self._sweep_at:
            self._tasks = [one for one in self._tasks if one() is not None]
            self._sweep_at = 2 * len(self._tasks) + _SWEEP_AT
        return task

    def time(self) -> float:
        return self.now

    # State.

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    # Asked for each future and task that is made: a call that never enters Python.
    get_debug = staticmethod(bool)

    def tasks(self) -> list[SimTask[object]]:
        """Every task that has not ended, oldest first."""
        return [task for one in self._tasks if (task := one()) is not None and not task.done()]

    def untaken(self) -> list[str]:
        """Exceptions of ended tasks that nobody has looked at, by task; killed processes have none."""
        ended = [task for one in self._tasks if (task := one()) is not None and task.done()]
        return [
            f"{task.get_name()} ended with {task.exception()!r}"
            for task in ended
            if task._log_traceback
            and (task.gate is None or task.gate.state is not GateState.SHUT)  # asyncio's own flag
        ]

    def report(self) -> str:
        """Each task that has not ended and the line it waits at (SM3)."""
        lines = []
        for task in self.tasks():
            gate = task.gate
            place = f" [{gate.name}, {gate.state.value}]" if gate is not None else ""
            lines.append(f"  {task.get_name()}{place} waits at {_place(task.get_coro())}")
        return "\n".join(lines) or "  no tasks"

    def close(self) -> None:
        """End the world. Coroutines that were parked are thrown away; what they do now reaches nobody."""
        if self._closed:
            return
        assert not self._running
        self._closed = True
        with unheard(self):
            for task in self.tasks():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own switch
                _throw_away(task.get_coro())
            self._parked.clear()
            self._ready.clear()
            self._timers.clear()
            if self.sockets is not None:
                gc.collect()  # generators of whole brokers unwind, and nobody hears it

    def _check_open(self) -> None:
        if self._closed:
            raise SimulationError("this loop is closed")

    def _note_generator(self, generator: AsyncGenerator[object, object]) -> None:
        gate = GATE.get()
        if gate is not None:
            self._generators[id(generator)] = gate

    def _finalize_generator(self, generator: AsyncGenerator[object, object]) -> None:
        gate = self._generators.pop(id(generator), None)
        if not self._closed and (gate is None or gate.state is not GateState.SHUT):  # SM2
            self.create_task(cast("Coroutine[object, object, None]", generator.aclose()), name="close generator")

    async def shutdown_asyncgens(self) -> None:
        return None

    # Errors that nobody took.

    def call_exception_handler(self, context: dict[str, object]) -> None:
        if not self._closed:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r} in {context.get('task')!r}")

    # Unix sockets, in a world that has some. The signatures of asyncio's own methods have more that nobody uses here.

    async def create_unix_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: str
    ) -> asyncio.Server:
        assert self.sockets is not None, "this world has no sockets"
        return await self.sockets.listen(protocol_factory, path)

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: str
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert self.sockets is not None, "this world has no sockets"
        return await self.sockets.connect(protocol_factory, path)

    # What does not exist here.

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> NoReturn:
        raise SimulationError("threads are not deterministic: take an Offload")

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> NoReturn:
        raise SimulationError("threads are not deterministic: take an Offload")


@contextmanager
def unheard(ended: asyncio.AbstractEventLoop) -> Iterator[None]:
    """What is thrown away here says nothing: cleaning up, some want to start what never runs.

    They do it in the loop that ended. Without one that runs, asyncio would take or make another for them, and their
    coroutines would be found there, never awaited, by whoever comes later.
    """
    hook, sys.unraisablehook = sys.unraisablehook, _ignore_unraisable
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(ended)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        asyncio._set_running_loop(running)
        sys.unraisablehook = hook


def _place(coro: object) -> str:
    """The innermost line that a suspended coroutine waits at."""
    place = "its first step"
    while coro is not None:
        frame: FrameType | None = getattr(coro, "cr_frame", None) or getattr(coro, "ag_frame", None)
        if frame is not None:
            code: CodeType = frame.f_code
            place = f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"
        coro = getattr(coro, "cr_await", None) or getattr(coro, "ag_await", None)
    return place


def _throw_away(coro: object) -> None:
    """End a suspended coroutine. Cleaning up it may wait again; then that is cancelled too."""
    throw = getattr(coro, "throw", None)
    if throw is None:
        return
    for ending in [asyncio.CancelledError] * _CLEANUPS + [GeneratorExit] * 2:
        try:
            throw(ending())
        except BaseException:
            return  # the simulation is over; nobody is left to hear it


def _ignore_unraisable(_unraisable: object) -> None:
    return None


def _wake(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.set_result(None)
