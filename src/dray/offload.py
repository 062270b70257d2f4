"""Work that must not run on the event loop, as a port.

Disk calls, decompression and hashing go through `Offload`: threads in a live
process, inline in the simulator, where threads would not be deterministic.

A call that hangs in the kernel holds its thread for as long as it likes, so
kinds of work that must not wait for each other have offloads of their own,
and nobody waits for a thread without a deadline.

Invariants
    OF1  A call that hangs keeps neither `close` nor the end of the process
         waiting for longer than `close` was given.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Generic, ParamSpec, Protocol, TypeVar

from dray.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

CLOSE_S: Final = 5.0
"""What `close` gives to calls that run; what hangs longer than that is left to the end of the process."""


class Offload(Protocol):
    """Runs a blocking function away from the loop and returns what it returned."""

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


class OffloadClosed(Unavailable):
    """The process is stopping: nothing new is taken."""


class ThreadOffload:
    """A bounded pool of threads, made when they are needed.

    They are daemons, unlike those of `concurrent.futures`, which the interpreter joins at its end (OF1).
    """

    def __init__(self, threads: int, name: str = "dray") -> None:
        self._limit = threads
        self._name = name
        self._calls: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._closed = False

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of the call. A caller that is cancelled leaves a call that has begun to itself."""
        if self._closed:
            raise OffloadClosed("the process is stopping")
        call = _Call(lambda: function(*args, **kwargs), asyncio.get_running_loop())
        self._calls.put(call)  # before a thread is made: a new one finds it and does not count as idle
        if len(self._threads) < self._limit and not self._idle.acquire(blocking=False):
            self._add_thread(call)
        try:
            return await call.answer
        finally:
            del call  # an error holds this frame, and the call holds the error: freed at once, not by the collector

    def _add_thread(self, call: "_Call[T]") -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:  # else those that run come to it
                call.answer.cancel()
                raise Unavailable("no thread can be started: raise the limit of processes (ulimit -u)") from error
        else:
            self._threads.append(thread)

    def close(self, seconds: float = CLOSE_S) -> bool:
        """Take nothing new and wait for what runs, but not for longer than this; whether all of it has ended."""
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        waited = threading.Thread(target=self._join, daemon=True)
        waited.start()
        waited.join(seconds)  # OF1
        return not waited.is_alive()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call.perform()
            del call  # a result may be large, and the next call may be long in coming

    def _next(self) -> "_Work | None":
        try:
            return self._calls.get_nowait()
        except Empty:
            self._idle.release()  # whoever comes next need not make a thread
            return self._calls.get()


class _Work(Protocol):
    def perform(self) -> None: ...


class _Call(Generic[T]):
    """One call, and the loop that waits for its answer."""

    __slots__ = ("_function", "_loop", "answer")

    def __init__(self, function: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self._function = function
        self._loop = loop
        self.answer: asyncio.Future[T] = loop.create_future()

    def perform(self) -> None:
        """In the thread: nothing is done for a caller that has gone."""
        if self.answer.cancelled():
            return
        try:
            result = self._function()
        except BaseException as error:
            self._tell(self._raise, error)
        else:
            self._tell(self._return, result)
        finally:
            del self  # as in `run`: whatever the call was about may be large

    def _tell(self, how: Callable[[V], None], what: V) -> None:
        try:
            self._loop.call_soon_threadsafe(how, what)
        except RuntimeError:
            if not self._loop.is_closed():  # a call that outlived its loop has nobody to tell
                raise

    def _return(self, result: T) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def _raise(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class InlineOffload:
    """Runs the function at once, on the loop: for tests and small tools."""

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)
