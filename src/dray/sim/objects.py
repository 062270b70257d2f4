"""An object store in memory that fails as real ones do, by seed.

    S1  the store is unavailable: nothing happened
    S2  the put is applied, the reply is lost
    S7  a get is short, or one bit of it is wrong

Each call may also be late (by the injected clock), or never return.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from dray.buffers import Buffer
from dray.clock import Clock
from dray.ids import Entropy
from dray.objects.memory import MemoryObjects
from dray.objects.port import ObjectInfo, PutUnknown, ShortObject, StoreUnavailable

_FOR_EVER_SECONDS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFaults:
    """How often each fault happens, from 0 to 1."""

    unavailable: float = 0.0
    """S1, for any call."""
    lost_reply: float = 0.0
    """S2: a put is applied, and its caller gets PutUnknown."""
    lost_request: float = 0.0
    """A put is not applied, and its caller gets PutUnknown all the same."""
    short_get: float = 0.0
    corrupt_get: float = 0.0
    stall: float = 0.0
    """A call never returns; a put is applied or not."""
    longest_delay_seconds: float = 0.0


class FaultyObjects:
    """Faults around a `MemoryObjects`; the faults may be changed at any time."""

    def __init__(self, inner: MemoryObjects, clock: Clock, entropy: Entropy, faults: ObjectFaults) -> None:
        self.faults = faults
        self._inner = inner
        self._clock = clock
        self._entropy = entropy

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._enter("put")
        if self._happens(self.faults.lost_request):
            raise PutUnknown("simulated: the request was lost", name=path)
        if self._happens(self.faults.stall):
            if self._happens(0.5):
                await self._inner.put(path, parts)
            await self._clock.sleep(_FOR_EVER_SECONDS)
        await self._inner.put(path, parts)
        if self._happens(self.faults.lost_reply):
            raise PutUnknown("simulated: the reply was lost", name=path)

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        await self._enter("get", stalls=True)
        found = await self._inner.get(path, start, end)
        if found.nbytes and self._happens(self.faults.short_get):
            raise ShortObject("simulated: the answer ended early", name=path)
        if found.nbytes and self._happens(self.faults.corrupt_get):
            return self._corrupted(found)
        return found

    async def head(self, path: str) -> ObjectInfo:
        await self._enter("head", stalls=True)
        return await self._inner.head(path)

    async def delete(self, path: str) -> None:
        await self._enter("delete", stalls=True)
        await self._inner.delete(path)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async for found in self._inner.list(prefix):
            await self._enter("list", stalls=True)
            yield found

    async def close(self) -> None:
        await self._inner.close()

    async def _enter(self, op: str, *, stalls: bool = False) -> None:
        if self.faults.longest_delay_seconds:
            await self._clock.sleep(self._entropy.uniform(0, self.faults.longest_delay_seconds))
        if self._happens(self.faults.unavailable):
            raise StoreUnavailable("simulated: slow down", op=op)
        if stalls and self._happens(self.faults.stall):
            await self._clock.sleep(_FOR_EVER_SECONDS)

    def _corrupted(self, found: memoryview) -> memoryview:
        wrong = bytearray(found)
        bit = int(self._entropy.uniform(0, len(wrong) * 8 - 1))
        wrong[bit // 8] ^= 1 << (bit % 8)
        return memoryview(wrong)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._entropy.uniform(0, 1) < share
