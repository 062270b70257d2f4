"""Objects as files of a directory, durable when `put` returns.

A put writes a temporary file, syncs it, links it to its name and syncs the
directory, in one hop off the loop. The link is what makes a put create-only,
and it is made only when every byte is on the disk, so a name never leads to
a torn object. Concurrent puts into one directory share its sync, which starts
after the last of their links: a disk tells a failure once, so a second sync
beside the one that failed would be told that all is well.

A name with a wal id needs no link: nobody else puts it, and nobody reads it
before a commit names it, which comes after the put. Its file is made under
that name at once, which is create-only too and spares the journal of the file
system a second commit. A crash may leave it torn (ADR-0022): then no commit
names it, and it is swept with the other orphans, by its name alone.

A name that exists is settled by syncing the file and its directory and
comparing the bytes: whoever linked it may have died before its own sync.

Several processes may share a directory. One that opens it sweeps all
temporary files, also those of its neighbours; a put whose file was swept
under its hands starts again.

Invariants
    O6  A name is linked only to a file whose sync returned, and a put is
        acknowledged only after a sync of its directory that began later.
    O10  Only a name that is given once may lead to a torn file, and only if
         its put was not acknowledged. A put that fails takes its file away, or
         says that nobody knows.
    O7  After a failed sync of a directory nothing in it is acknowledged any
        more by this process (D2).
"""

import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from dray.buffers import Buffer
from dray.disk import Disk, File, SyncFailed
from dray.errors import Conflict, DrayError, NotFound, Unavailable
from dray.ids import Entropy, SystemEntropy
from dray.objects.paths import check_name, check_prefix, is_given_once, is_name
from dray.objects.port import AlreadyExists, NoSuchObject, ObjectInfo, PutUnknown, StoreUnavailable
from dray.objects.ranges import check_length, check_range, short
from dray.objects.readback import equal, total_bytes
from dray.offload import Offload

TEMPORARY: Final = ".tmp"
_ATTEMPTS: Final = 5
_MADE_MAX: Final = 4096

P = ParamSpec("P")
T = TypeVar("T")
_Entries = list[ObjectInfo | str]


class FileObjects:
    """An object store in a local directory."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        offload: Offload,
        entropy: Entropy | None = None,
        *,
        reads: Offload | None = None,
        upkeep: Offload | None = None,
    ) -> None:
        """`reads` and `upkeep` (lists and deletions) run apart from the puts, where given."""
        self._root = root
        self._disk = disk
        self._puts = offload
        self._reads = reads or offload
        self._upkeep = upkeep or offload
        self._temporary = root / TEMPORARY
        self._names = itertools.count()
        self._process = (entropy or SystemEntropy()).random_bytes(8).hex()
        self._made: set[Path] = set()
        self._syncs: dict[Path, _SharedSync] = {}

    async def open(self) -> None:
        """Make the directory and remove what earlier puts left unfinished."""
        await self._attempt(self._puts, self._sweep)

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        if not await self._attempt(self._puts, self._put, self._root / check_name(path), parts):
            raise AlreadyExists("the name holds other bytes", name=path)

    async def settle(self, path: str) -> None:
        """Make the name durable that somebody else gave: it may be seen before its own put has synced it.

        Raises:
            SyncFailed: the disk did not, and nothing in the directory is acknowledged any more (O7).
        """
        await self._puts.run(self._sync_of((self._root / check_name(path)).parent).run)

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        check_range(path, start, end)
        target = self._root / check_name(path)
        try:
            content = await self._attempt(self._reads, self._disk.read, target, start, end)
            if end is not None:
                check_length(path, len(content), start, end)
            if not content and start > (size := (await self.head(path)).size):
                raise short(path, start, end, size)
        except NotFound as error:
            raise NoSuchObject("no such object", name=path) from error
        return memoryview(content)

    async def head(self, path: str) -> ObjectInfo:
        found = await self._attempt(self._reads, self._disk.stat, self._root / check_name(path))
        if found is None or found.is_dir:
            raise NoSuchObject("no such object", name=path)
        return ObjectInfo(path=path, size=found.size, modified_ms=found.modified_ms)

    async def delete(self, path: str) -> None:
        await self._attempt(self._upkeep, self._remove, self._root / check_name(path))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        start, _, _ = prefix.rpartition("/")
        # Directories not yet entered, the first in order last.
        ahead: _Entries = [start]
        while ahead:
            entry = ahead.pop()
            if isinstance(entry, ObjectInfo):
                yield entry
            else:
                ahead += await self._attempt(self._upkeep, self._entries, entry, prefix)

    async def close(self) -> None:
        pass

    async def _attempt(self, offload: Offload, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a disk call that changed nothing when it fails with `Unavailable`."""
        try:
            return await offload.run(function, *args, **kwargs)
        except StoreUnavailable:
            raise
        except Unavailable as error:
            raise StoreUnavailable(error.message, **error.facts) from error

    def _sweep(self) -> None:
        self._disk.make_dir(self._temporary)
        for name in self._disk.list(self._temporary):
            self._disk.remove(self._temporary / name)

    def _put(self, target: Path, parts: Sequence[Buffer]) -> bool:
        """Whether the name now durably holds these bytes; else it durably holds others."""
        sync = self._sync_of(target.parent)
        if sync.failed:
            raise PutUnknown("an earlier sync of this directory failed: check the disk, then restart", path=target)
        once = is_given_once(target.relative_to(self._root).as_posix())
        mine = self._create(target, parts) if once else self._place(target, parts)
        try:
            sync.run()  # O6: after the name was made, before the ack
        except DrayError as error:
            raise PutUnknown("the object has its name, but the disk did not confirm it", path=target) from error
        return mine

    def _sync_of(self, directory: Path) -> "_SharedSync":
        return self._syncs.setdefault(directory, _SharedSync(directory, self._disk))

    def _create(self, target: Path, parts: Sequence[Buffer]) -> bool:
        """Write the bytes under their name at once; False if it holds others. The directory is left to be synced."""
        try:
            file = self._new_file(target)
        except Conflict:
            return self._settle(target, parts)
        try:
            _fill(file, target, parts)
        except Exception as error:
            self._take_back(target, error)  # O10
            raise
        return True

    def _new_file(self, target: Path) -> File:
        self._make_dirs(target.parent)
        try:
            return self._disk.create(target)
        except NotFound:  # the directory is gone
            self._made.clear()
            self._make_dirs(target.parent)
            return self._disk.create(target)

    def _take_back(self, target: Path, cause: Exception) -> None:
        try:
            self._disk.remove(target)
        except DrayError:
            raise PutUnknown("the object is torn and could not be taken away", path=target) from cause

    def _place(self, target: Path, parts: Sequence[Buffer]) -> bool:
        """Bring the bytes under their name; False if it holds others. The directory is left to be synced."""
        for _ in range(_ATTEMPTS):
            try:
                return self._try_to_place(target, parts)
            except NotFound:
                # A neighbour swept the temporary file, or a directory is gone.
                self._made.clear()
        raise StoreUnavailable("temporary files vanish: does something clean this directory?", path=self._temporary)

    def _try_to_place(self, target: Path, parts: Sequence[Buffer]) -> bool:
        self._make_dirs(self._temporary, target.parent)
        temporary = self._temporary / f"{self._process}-{next(self._names)}"
        try:
            _fill(self._disk.create(temporary), temporary, parts)
            return self._link(temporary, target, parts)
        finally:
            # What can not be removed is swept at the next open; it must not hide how the put went.
            with contextlib.suppress(DrayError):
                self._disk.remove(temporary)

    def _link(self, temporary: Path, target: Path, parts: Sequence[Buffer]) -> bool:
        try:
            self._disk.link(temporary, target)  # O6: only what is synced gets a name
        except Conflict:
            return self._settle(target, parts)
        return True

    def _settle(self, target: Path, parts: Sequence[Buffer]) -> bool:
        """Make an existing object durable and compare it (O3)."""
        try:
            self._disk.sync_file(target)
        except SyncFailed as error:
            raise PutUnknown("the existing object could not be made durable", path=target) from error
        found = self._disk.size(target)
        return found == total_bytes(parts) and equal(self._disk.read(target), parts)

    def _make_dirs(self, *directories: Path) -> None:
        if len(self._made) > _MADE_MAX:
            self._made.clear()
        for needed in directories:
            if needed not in self._made:
                self._disk.make_dir(needed)
                self._made.add(needed)

    def _remove(self, target: Path) -> None:
        if self._disk.size(target) is None:
            return
        self._disk.remove(target)
        try:
            self._sync_of(target.parent).run()
        except DrayError as error:
            raise StoreUnavailable("the disk did not confirm the removal: repeat it", path=target) from error

    def _entries(self, directory: str, prefix: str) -> _Entries:
        """Objects and directories in one directory that may have the prefix, last in order first."""
        found: list[tuple[str, ObjectInfo | str]] = []
        for name in self._disk.list(self._root / directory):
            path = f"{directory}/{name}" if directory else name
            # A directory stands where its content does: `a.b` is before `a/b`.
            if not _fits(path, prefix) or not is_name(path):
                continue
            stat = self._disk.stat(self._root / path)
            if stat is None:
                continue
            if stat.is_dir:
                found.append((path + "/", path))
            elif path.startswith(prefix):
                found.append((path, ObjectInfo(path=path, size=stat.size, modified_ms=stat.modified_ms)))
        found.sort(key=lambda entry: entry[0], reverse=True)
        return [entry for _, entry in found]


def _fill(file: File, path: Path, parts: Sequence[Buffer]) -> None:
    """All bytes of a new file, durable."""
    try:
        file.write(parts)
        file.sync()
    except SyncFailed as error:
        raise StoreUnavailable("the disk did not take the bytes: nothing was stored", path=path) from error
    finally:
        file.close()


class _SharedSync:
    """Syncs of one directory by the threads that put into it: one at a time, for all who asked before it began."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.failed = False
        self._directory = directory
        self._disk = disk
        self._tickets = itertools.count()
        self._covered = 0
        self._one = threading.Lock()

    def run(self) -> None:
        """Return after a sync that began after this call (O6)."""
        ticket = next(self._tickets)
        with self._one:
            if self.failed:
                raise SyncFailed("an earlier sync of this directory failed", path=self._directory)  # O7
            if ticket < self._covered:
                return
            covered = next(self._tickets)
            try:
                self._disk.sync_dir(self._directory)
            except SyncFailed:
                self.failed = True  # O7
                raise
            self._covered = covered


def _fits(path: str, prefix: str) -> bool:
    """Whether this name, or one below it, may start with the prefix."""
    return path.startswith(prefix) or prefix.startswith(path)
