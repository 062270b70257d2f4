"""Objects in memory: the reference of the contract, and the store of tests."""

from collections.abc import AsyncIterator, Sequence

from dray.buffers import Buffer
from dray.clock import Clock, SystemClock
from dray.objects.paths import check_name, check_prefix
from dray.objects.port import AlreadyExists, NoSuchObject, ObjectInfo
from dray.objects.ranges import check_range, cut
from dray.objects.readback import equal


class MemoryObjects:
    """A dictionary with the manners of an object store. Lost with the process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._objects: dict[str, tuple[bytes, int]] = {}

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        check_name(path)
        found = self._objects.get(path)
        if found is None:
            self._objects[path] = (b"".join(parts), self._clock.wall_ms())
        elif not equal(found[0], parts):
            raise AlreadyExists("the name holds other bytes", name=path)  # O3

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        check_range(path, start, end)
        return cut(path, self._find(path)[0], start, end)

    async def head(self, path: str) -> ObjectInfo:
        content, modified_ms = self._find(path)
        return ObjectInfo(path=path, size=len(content), modified_ms=modified_ms)

    async def delete(self, path: str) -> None:
        self._objects.pop(check_name(path), None)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        for path in sorted(path for path in self._objects if path.startswith(prefix)):
            if path in self._objects:
                yield await self.head(path)

    async def close(self) -> None:
        pass

    def _find(self, path: str) -> tuple[bytes, int]:
        found = self._objects.get(check_name(path))
        if found is None:
            raise NoSuchObject("no such object", name=path)
        return found
