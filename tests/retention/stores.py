"""Stores that watch, fail or stop on demand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from dray.buffers import Buffer
from dray.objects.port import ObjectInfo, Objects, StoreUnavailable


class WatchedObjects:
    """Passes everything on; tells of each deletion before it happens."""

    def __init__(self, inner: Objects, before_delete: Callable[[str], None] = lambda path: None) -> None:
        self.inner = inner
        self.before_delete = before_delete
        self.deleted: list[str] = []
        self.refuse: set[str] = set()
        self.fail_list_after: int | None = None
        self.during_list: Callable[[], None] = lambda: None
        self.lists = 0
        self.at_once = self.most_at_once = 0

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self.inner.put(path, parts)

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        return await self.inner.get(path, start, end)

    async def head(self, path: str) -> ObjectInfo:
        return await self.inner.head(path)

    async def delete(self, path: str) -> None:
        self.before_delete(path)
        if path in self.refuse:
            raise StoreUnavailable("not now", name=path)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        await self.inner.delete(path)
        self.deleted.append(path)
        self.at_once -= 1

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        self.lists += 1
        count = 0
        async for info in self.inner.list(prefix):
            if self.fail_list_after is not None and count >= self.fail_list_after:
                raise StoreUnavailable("the list broke off", after=count)
            count += 1
            self.during_list()
            yield info

    async def close(self) -> None:
        await self.inner.close()
