"""Iceberg's own files through the object store of the cluster: created once, durable when written.

PyIceberg's file systems never sync: after a power cut its catalog names
metadata that is torn, and the log may have let go of the records already. Here
every manifest, list and metadata file is an object like any other, put with
the same credentials and retries as records are.

PyIceberg makes its `FileIO` by the name of a class and calls it from threads of
its own. So a store is bound to a key first, and runs on a loop in a thread;
the class finds it by the property `dray.store`.

Invariants
    TI1  A file that a commit names was durable before the commit was sent.
"""

import asyncio
import io
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from dray.errors import Invalid
from dray.objects.port import AlreadyExists, NoSuchObject, ObjectInfo, Objects

STORE: Final = "dray.store"
IMPLEMENTATION: Final = "dray.tables.io.StoreFiles"
T = TypeVar("T")
_keys: Final = itertools.count()


class OutsideStore(Invalid):
    """A table names a file that is not in the store of the cluster: its data directory was moved."""


class BoundStore:
    """An object store on a loop of its own, for callers in any thread."""

    def __init__(self, address: str, objects: Objects, loop: asyncio.AbstractEventLoop) -> None:
        self.key = str(next(_keys))
        """By which `StoreFiles` finds it."""
        self.address = address.rstrip("/")
        self._objects = objects
        self._loop = loop

    def name_of(self, location: str) -> str:
        """The name of the object at a location."""
        if not location.startswith(f"{self.address}/"):
            raise OutsideStore("a file of the table lies outside the store", location=location, store=self.address)
        return location[len(self.address) + 1 :]

    def location_of(self, name: str) -> str:
        return f"{self.address}/{name}"

    def put(self, name: str, content: bytes) -> None:
        self._run(self._objects.put(name, [content]))

    def get(self, name: str) -> bytes:
        return bytes(self._run(self._objects.get(name)))

    def head(self, name: str) -> ObjectInfo:
        return self._run(self._objects.head(name))

    def delete(self, name: str) -> None:
        self._run(self._objects.delete(name))

    def list(self, prefix: str) -> list[ObjectInfo]:
        async def collect(found: AsyncIterator[ObjectInfo]) -> list[ObjectInfo]:
            return [one async for one in found]

        return self._run(collect(self._objects.list(prefix)))

    def _run(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


_bound: Final[dict[str, BoundStore]] = {}


@contextmanager
def bound_store(address: str, open_objects: Callable[[], Awaitable[Objects]]) -> Iterator[BoundStore]:
    """The store at an address, for `StoreFiles`, while the block runs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="dray-tables", daemon=True)
    thread.start()

    async def opened() -> Objects:
        return await open_objects()

    try:
        objects = asyncio.run_coroutine_threadsafe(opened(), loop).result()
        store = BoundStore(address, objects, loop)
        _bound[store.key] = store
        try:
            yield store
        finally:
            del _bound[store.key]
            asyncio.run_coroutine_threadsafe(objects.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class StoreFiles(FileIO):
    """Files of tables as objects of a bound store."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._store = _bound[properties[STORE]]

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self._store)

    def new_output(self, location: str) -> OutputFile:
        return _Output(location, self._store)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._store.delete(self._store.name_of(location if isinstance(location, str) else location.location))


class _Input(InputFile):
    def __init__(self, location: str, store: BoundStore) -> None:
        super().__init__(location)
        self._store = store
        self._name = store.name_of(location)

    def __len__(self) -> int:
        return self._store.head(self._name).size

    def exists(self) -> bool:
        return _exists(self._store, self._name)

    def open(self, seekable: bool = True) -> InputStream:
        try:
            return io.BytesIO(self._store.get(self._name))
        except NoSuchObject as error:
            raise FileNotFoundError(self.location) from error


class _Output(OutputFile):
    def __init__(self, location: str, store: BoundStore) -> None:
        super().__init__(location)
        self._store = store
        self._name = store.name_of(location)

    def __len__(self) -> int:
        return self._store.head(self._name).size

    def exists(self) -> bool:
        return _exists(self._store, self._name)

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._store)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Names are given once: `overwrite`, which some callers ask for, is never needed."""
        return _Sink(self._store, self._name)


class _Sink:
    """Bytes on their way; they are put when it is closed, and dropped when something fails before."""

    def __init__(self, store: BoundStore, name: str) -> None:
        self._store = store
        self._name = name
        self._content: io.BytesIO | None = io.BytesIO()

    def write(self, b: bytes) -> int:
        return self._buffer().write(b)

    def tell(self) -> int:
        return self._buffer().tell()

    def close(self) -> None:
        if self._content is None:
            return
        content, self._content = self._content.getvalue(), None
        try:
            self._store.put(self._name, content)  # TI1
        except AlreadyExists as error:
            raise FileExistsError(self._name) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._content = None
        self.close()

    def _buffer(self) -> io.BytesIO:
        if self._content is None:
            raise ValueError("the file is closed")
        return self._content


def _exists(store: BoundStore, name: str) -> bool:
    try:
        store.head(name)
    except NoSuchObject:
        return False
    return True
