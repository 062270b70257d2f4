"""The local disk, as a port: the only way to touch local files.

Calls are synchronous; adapters run them through `Offload`. The port is small
so that a fake can model what a crash does: bytes that were not synced are
lost, directory entries that were not synced are lost, and any sync can fail.

Invariants
    D1  What `File.sync` returned for survives a crash, if the entry that
        names the file was synced by `sync_dir`.
    D2  A failed sync is final for that file: it is never tried again and
        never taken as done, for the kernel may have dropped the dirty pages.
    D3  A directory is made only after the entry of its parent was synced, and
        `make_dir` syncs the entry of a directory that it finds: so a synced
        file below it is never lost with an unsynced parent.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dray.buffers import Buffer
from dray.errors import Conflict, Corrupt, DrayError, Invalid, Kind, NotFound, Unavailable

_COPY_BYTES = 1 << 20
_IOV_MAX = 1024  # Linux; a longer list is written in several calls
_MANY = 32
_SMALL_BYTES = 1024


class DiskFull(Unavailable):
    """No room, or no quota: free some and try again. Nothing was acknowledged."""

    advice = "free some space or choose another directory with --data; what was acknowledged is safe"


class ReadOnly(Unavailable):
    """The file system does not take writes: remount it, or choose another directory."""

    advice = "remount it for writing, give it to the user who runs this, or choose another directory with --data"


class NotADirectory(Invalid):
    """A file has the name that a directory should have."""

    advice = "choose another directory with --data, or move that file away"


class SyncFailed(DrayError):
    """The disk could not make bytes durable. They may or may not be there; the file is finished (D2)."""

    kind = Kind.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """What the disk knows of a name."""

    size: int
    modified_ms: int
    is_dir: bool


class File(Protocol):
    """A file open for appending."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append all buffers, in order. After an error the tail of the file is undefined."""
        ...

    def sync(self) -> None:
        """Make every byte written so far durable (D1, D2)."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size`; writes go on from there."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """The calls that Dray makes on local files. Paths are absolute or relative to the process."""

    def create(self, path: Path) -> File:
        """Make a new file; `Conflict` if the name exists."""
        ...

    def open(self, path: Path) -> File:
        """Open an existing file to append to it; `NotFound` if there is none."""
        ...

    def read(self, path: Path, start: int = 0, end: int | None = None) -> bytes:
        """The bytes [start, end), fewer where the file ends earlier; `NotFound` if there is no file."""
        ...

    def size(self, path: Path) -> int | None:
        """Bytes in the file, or None if there is no such file."""
        ...

    def stat(self, path: Path) -> Stat | None:
        """Size, age and whether it is a directory; None if the name is free."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """A second name for a file; `Conflict` if `target` exists."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Move a name over another, atomically."""
        ...

    def remove(self, path: Path) -> None:
        """Take a name away; a missing one is fine."""
        ...

    def make_dir(self, path: Path) -> None:
        """Make a directory and its parents, durably; existing ones are fine (D3)."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Make the directory's entries durable (D1)."""
        ...

    def sync_file(self, path: Path) -> None:
        """Make a file durable that someone else may have written."""
        ...

    def write_again(self, path: Path, start: int) -> None:
        """Write the bytes from `start` on once more, as they are, and make the file durable.

        For bytes of whose sync nobody knows: if one failed, the kernel shows
        them still and takes them for written, and another sync writes nothing (D2).
        """
        ...

    def list(self, path: Path) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory."""
        ...


class LocalFile:
    """A file descriptor opened with O_APPEND."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path
        self._failed = False

    def write(self, buffers: Sequence[Buffer]) -> None:
        try:
            for start in range(0, len(buffers), _IOV_MAX):
                self._write_all(buffers[start : start + _IOV_MAX])
        except OSError as error:
            raise _translate(error, self._path) from error

    def _write_all(self, buffers: Sequence[Buffer]) -> None:
        if len(buffers) >= _MANY and sum(map(len, buffers)) < _SMALL_BYTES * len(buffers):
            buffers = [b"".join(buffers)]  # less than what each of them costs by itself
        written = os.writev(self._fd, buffers)
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if written >= view.nbytes:
                written -= view.nbytes
                continue
            # A full disk, a signal or a limit cut the call short: the rest goes piece by piece.
            while written < view.nbytes:
                written += os.write(self._fd, view[written:])
            written = 0

    def sync(self) -> None:
        if self._failed:
            raise SyncFailed("an earlier sync of this file failed", path=self._path)  # D2
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._failed = True
            raise SyncFailed("the disk did not take the bytes", path=self._path, errno=error.errno) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise _translate(error, self._path) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LocalDisk:
    """The real disk."""

    def create(self, path: Path) -> LocalFile:
        return self._open(path, os.O_CREAT | os.O_EXCL)

    def open(self, path: Path) -> LocalFile:
        return self._open(path, 0)

    def _open(self, path: Path, flags: int) -> LocalFile:
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
        except OSError as error:
            raise _translate(error, path) from error
        return LocalFile(fd, path)

    def read(self, path: Path | str, start: int = 0, end: int | None = None) -> bytes:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _translate(error, path) from error
        try:
            # What is asked for is bounded by what is there, before memory is taken for it.
            size = os.fstat(fd).st_size
            return _read_range(fd, start, size if end is None else min(end, size))
        except OSError as error:
            raise _translate(error, path) from error
        finally:
            os.close(fd)

    def size(self, path: Path) -> int | None:
        found = self.stat(path)
        return None if found is None or found.is_dir else found.size

    def stat(self, path: Path) -> Stat | None:
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _translate(error, path) from error
        return Stat(size=found.st_size, modified_ms=found.st_mtime_ns // 1_000_000, is_dir=stat.S_ISDIR(found.st_mode))

    def link(self, source: Path, target: Path) -> None:
        try:
            os.link(source, target)
        except OSError as error:
            raise _translate(error, target) from error

    def rename(self, source: Path, target: Path) -> None:
        try:
            source.rename(target)
        except OSError as error:
            raise _translate(error, source) from error

    def remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _translate(error, path) from error

    def make_dir(self, path: Path) -> None:
        if path.is_dir():
            self._sync_found(path)
            return
        self.make_dir(path.parent)
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectory("there is a file where a directory is needed", path=path) from error
        except OSError as error:
            raise _translate(error, path) from error
        self.sync_dir(path.parent)  # D3

    def _sync_found(self, path: Path) -> None:
        # D3: whoever made it may have died before its sync. A parent that we
        # may not read is not ours, and nothing of ours was made in it.
        with contextlib.suppress(ReadOnly):
            self.sync_dir(path.parent)

    def sync_dir(self, path: Path) -> None:
        self._sync(path, os.O_DIRECTORY)

    def sync_file(self, path: Path) -> None:
        self._sync(path, 0)

    def write_again(self, path: Path, start: int) -> None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise _translate(error, path) from error
        try:
            while part := os.pread(fd, _COPY_BYTES, start):
                start += os.pwrite(fd, part, start)
        except OSError as error:
            os.close(fd)
            raise _translate(error, path) from error
        try:
            os.fsync(fd)
        except OSError as error:
            raise SyncFailed("the disk did not take the bytes", path=path, errno=error.errno) from error
        finally:
            os.close(fd)

    def _sync(self, path: Path, flags: int) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        except OSError as error:
            raise _translate(error, path) from error
        try:
            os.fsync(fd)
        except OSError as error:
            raise SyncFailed("the disk did not take the entry", path=path, errno=error.errno) from error
        finally:
            os.close(fd)

    def list(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _translate(error, path) from error


class DirectoryInUse(Conflict):
    """Another process owns the directory: stop it, or choose another directory."""


class Lock(Protocol):
    """Owns a directory until it is released."""

    def release(self) -> None: ...


class TakeLock(Protocol):
    """Own a directory from now on; `DirectoryInUse` if another process does."""

    def __call__(self, directory: Path) -> Lock: ...


class DirectoryLock:
    """Owns a directory for the life of the process (flock; the kernel lets go at any death)."""

    def __init__(self, directory: Path) -> None:
        path = directory / "LOCK"
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _translate(error, path) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 64, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            in_use = DirectoryInUse("another process uses this directory", path=directory, pid=holder)
            in_use.advice = f"stop process {holder or 'that holds it'}, or choose another directory with --data"
            raise in_use from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _read_range(fd: int, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        part = os.pread(fd, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _translate(error: OSError, path: Path | str) -> DrayError:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull("no space left: free some and try again", path=path)
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return ReadOnly("the directory does not take writes: remount it or change its owner", path=path)
        case errno.EEXIST:
            return Conflict("the name exists", path=path)
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR:
            return NotFound("no such file", path=path)
        case errno.EIO:
            return Corrupt("the disk reports an input/output error", path=path)
        case _:
            return Unavailable("the disk call failed", path=path, errno=error.errno, reason=error.strerror)
