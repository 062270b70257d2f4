"""An object store for the simulator: one shared truth, and a faulty way to it per process.

`SharedObjects` is what the store holds, with a record of every put and every
deletion for the checkers. `NetworkObjects` is the port that a process uses.

Invariants
    SM14  A put is acknowledged only after the object is in the truth;
          `StoreUnavailable` only if it never arrives; everything else is
          `PutUnknown`, and a copy of it may land later.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dray.buffers import Buffer
from dray.clock import WallMs
from dray.objects.memory import MemoryObjects
from dray.objects.port import ObjectInfo, PutUnknown, StoreUnavailable
from dray.objects.retry import RetryPolicy
from dray.sim.loop import SimLoop
from dray.sim.network import Link
from dray.sim.process import EPOCH_MS
from dray.sim.trace import Trace

SERVICE = "objects"
_REPEATED_WITHIN_S: Final = RetryPolicy().longest_pause_seconds


class StoreClock:
    """The store's own clock: it is right, and nobody else's."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> WallMs:
        return WallMs(EPOCH_MS + int(self._loop.time() * 1000))

    def boot_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError("a store does not wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A name that a process took away."""

    path: str
    sent: float
    """When it was asked for: a copy of the request, or a repeat of one that was lost, may arrive long after."""
    by: str


class SharedObjects:
    """The truth: what is in the bucket."""

    def __init__(self, loop: SimLoop, trace: Trace) -> None:
        self.inner = MemoryObjects(StoreClock(loop))
        self.deletions: list[Deletion] = []
        self.on_put: Callable[[str, str], None] | None = None
        """Called with the name and who put it, when it is there."""
        self.on_content: Callable[[str, bytes, str], None] | None = None
        """Called with the bytes as well."""
        self.on_delete: Callable[[str, str], None] | None = None
        """Called with the name and who takes it away, before it goes: how a checker watches."""
        self._loop = loop
        self._trace = trace

    async def put(self, path: str, content: bytes, by: str = "") -> None:
        await self.inner.put(path, [content])
        if by and self.on_put is not None:
            self.on_put(path, by)
        if by and self.on_content is not None:
            self.on_content(path, content, by)

    def now(self) -> float:
        return self._loop.time()

    async def delete(self, path: str, by: str, sent: float) -> None:
        self.deletions.append(Deletion(path=path, sent=sent, by=by))
        self._trace.add(SERVICE, "deleted", path=path, by=by)
        if self.on_delete is not None:
            self.on_delete(path, by)
        await self.inner.delete(path)

    async def names(self, prefix: str = "") -> list[str]:
        """Everything that is there, in order of name."""
        return [found.path async for found in self.inner.list(prefix)]

    async def read(self, path: str) -> bytes:
        return bytes(await self.inner.get(path))


class NetworkObjects:
    """The store as one process reaches it: the port, with the faults of its link."""

    def __init__(self, truth: SharedObjects, link: Link) -> None:
        self._truth = truth
        self._link = link
        self._deleting: dict[str, tuple[float, float]] = {}
        """What was not answered: when it was asked for, and when that was last known."""

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        content = b"".join(parts)

        async def arrive() -> None:
            await self._truth.put(path, content, self._link.process)

        await self._link.call("put", arrive, lost=_put_unknown, refused=_unavailable, copies=True)  # SM14

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        async def read() -> memoryview:
            return await self._truth.inner.get(path, start, end)

        return await self._link.call("get", read, lost=_unavailable, refused=_unavailable)

    async def head(self, path: str) -> ObjectInfo:
        async def look() -> ObjectInfo:
            return await self._truth.inner.head(path)

        return await self._link.call("head", look, lost=_unavailable, refused=_unavailable)

    async def delete(self, path: str) -> None:
        now = self._truth.now()
        sent, failed = self._deleting.pop(path, (now, now))
        if now - failed > _REPEATED_WITHIN_S:
            sent = now  # no repeat any more: somebody asks again

        async def remove() -> None:
            await self._truth.delete(path, self._link.process, sent)

        # Names are used once, so a deletion that lands again later meets nothing new.
        try:
            await self._link.call("delete", remove, lost=_unavailable, refused=_unavailable, copies=True)
        except StoreUnavailable:
            self._deleting[path] = sent, self._truth.now()
            raise

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async def look() -> list[ObjectInfo]:
            return [found async for found in self._truth.inner.list(prefix)]

        for found in await self._link.call("list", look, lost=_unavailable, refused=_unavailable):
            yield found

    async def close(self) -> None:
        return None


def _put_unknown() -> PutUnknown:
    return PutUnknown("the store did not answer")


def _unavailable() -> StoreUnavailable:
    return StoreUnavailable("the store cannot be reached")
