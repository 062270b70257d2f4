"""Work that must not run on the event loop, as a port.

Disk calls, decompression and hashing go through `Offload`: threads in a live
process, inline in the simulator, where threads would not be deterministic.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking function away from the loop and returns what it returned."""

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


class ThreadOffload:
    """A bounded pool of threads."""

    def __init__(self, threads: int, name: str = "dray") -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Wait for what runs; nothing new is taken."""
        self._pool.shutdown(wait=True)


class InlineOffload:
    """Runs the function at once, on the loop: for tests and small tools."""

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)
