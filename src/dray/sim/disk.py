"""A disk in memory that forgets what a crash may forget.

Bytes live in the page cache until `File.sync`, names until `sync_dir`. A
crash leaves any state that a kernel could: every unsynced change of a name
is kept or undone by itself (a rename as one, and never without what happened
to the same name before), every unsynced sector of a file is new, old or
zeros, and one of them may be torn at any byte. Without a seed a crash loses
all of it; with a seed the same state is left each time.

    for disk in every_crash(seeds=(None, 0, 1, 2)):
        with disk.until_crash():
            scenario(disk)      # or: await scenario(disk)
        check(disk)             # the machine is up again

Not for threads: use it with `InlineOffload`.

Invariants
    D4  After a power loss or a kill no call succeeds until the start after it,
        and no file opened before it can be used after it.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from dray.buffers import Buffer
from dray.clock import Clock, ManualClock
from dray.disk import DiskFull, ReadOnly, Stat, SyncFailed
from dray.errors import Conflict, NotFound, Unavailable

SECTOR_BYTES = 512


class PowerLoss(BaseException):
    """The machine is off. Not an `Exception`: no handler of the code under test runs on a dead machine."""


@dataclass(slots=True, eq=False)
class _Inode:
    """A file. `cached` is what a reader sees; bytes of it at and above `clean` were changed since the last sync."""

    modified_ms: int
    cached: bytearray = field(default_factory=bytearray)
    stored: bytearray = field(default_factory=bytearray)
    clean: int = 0
    former: list[tuple[int, bytes]] = field(default_factory=list)
    """What was in the cache before each cut since the last sync, from an offset on: it may have reached the disk."""


@dataclass(slots=True, eq=False)
class _Dir:
    modified_ms: int
    cached: "dict[str, _Inode | _Dir]" = field(default_factory=dict)
    stored: "dict[str, _Inode | _Dir]" = field(default_factory=dict)


_Node = _Inode | _Dir
Volume = _Dir
"""Whatever lies at a directory, to be taken away and put back."""
_Change = tuple[_Dir, str, _Node | None]
"""In this directory, this name now means that."""
_Changes = list[_Change]


class FakeFile:
    """A file of a `FakeDisk`, open for appending."""

    def __init__(self, disk: "FakeDisk", inode: _Inode, path: Path) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._boot = disk.boots
        self._failed = False
        self._open = True

    def write(self, buffers: Sequence[Buffer]) -> None:
        self._enter("write")
        self._disk.refuse_if_read_only(self._path)
        for buffer in buffers:
            self._disk.append(self._inode, self._path, memoryview(buffer).cast("B"))

    def sync(self) -> None:
        self._enter("sync")
        if self._failed:
            raise SyncFailed("an earlier sync of this file failed", path=self._path)  # D2
        try:
            self._disk.store(self._inode, self._path)
        except SyncFailed:
            self._failed = True
            raise

    def truncate(self, size: int) -> None:
        self._enter("truncate")
        self._disk.refuse_if_read_only(self._path)
        inode = self._inode
        inode.clean = min(inode.clean, size)
        inode.former.append((inode.clean, bytes(inode.cached[inode.clean :])))
        del inode.cached[size:]
        inode.cached.extend(bytes(size - len(inode.cached)))

    def close(self) -> None:
        self._open = False

    def _enter(self, name: str) -> None:
        if self._boot != self._disk.boots:
            raise PowerLoss(f"{self._path} was opened before the crash")  # D4
        self._disk.enter(name, self._path)
        if not self._open:
            raise Unavailable("the file is closed", path=self._path)


class FakeDisk:
    """The `Disk` port, in memory, with the faults of a real disk."""

    def __init__(self, seed: int | None = None, clock: Clock | None = None) -> None:
        self.seed = seed
        self.on_call: Callable[[str, Path], None] | None = None
        """Called before every call and every step of `make_dir`; what it raises, the call raises."""
        self.calls = 0
        """How many calls there were since the machine came up."""
        self.crash_at: int | None = None
        """The power goes before the call of this number, counted from 0."""
        self.crashed = False
        """Whether `crash_at` was reached since it was set."""
        self.capacity_bytes: int | None = None
        self.read_only = False
        self.boots = 0
        self._random = random.Random(seed)
        self._clock = clock or ManualClock()
        self._root = _Dir(self._clock.wall_ms())
        self._pending: list[_Changes] = []
        self._failing: list[str] = []
        self._off = False
        self._last_call = "none"

    def __repr__(self) -> str:
        return f"FakeDisk(seed={self.seed}, boots={self.boots}, last call: {self._last_call})"

    # Faults

    def fail_sync(self, part_of_path: str = "", times: int = 1) -> None:
        """Let the next syncs of paths with this in their name fail, and lose what they should have kept (D2)."""
        self._failing.extend([part_of_path] * times)

    def mend(self) -> None:
        """Whatever was wrong with the disk is over; what was lost is lost."""
        self._failing.clear()
        self.capacity_bytes, self.read_only = None, False

    def durable(self) -> "FakeDisk":
        """Another disk, with what a crash now would leave of this one if it lost all that it may."""
        left = FakeDisk(clock=self._clock)
        left._root = _durable(self._root, {})
        return left

    def unmount(self, path: Path) -> Volume:
        """Take away what lies at a path; an empty directory is left. For a machine that is off."""
        parent, name = self._parent(path), path.name
        volume = parent.cached[name]
        assert isinstance(volume, _Dir), "a volume is mounted at a directory"
        parent.cached[name] = parent.stored[name] = _Dir(volume.modified_ms)
        return volume

    def copied(self, path: Path) -> Volume:
        """A copy of what lies at a path, as a backup takes it from a machine that is off."""
        directory = self._find(path)
        assert isinstance(directory, _Dir), "a volume is mounted at a directory"
        return _durable(directory, {})

    def flip(self, path: Path, at: int) -> None:
        """One byte of a file is not what was written."""
        inode = self._inode(path)
        for content in (inode.cached, inode.stored):
            if at < len(content):
                content[at] ^= 0x40

    def mount(self, path: Path, volume: Volume) -> None:
        """Put it back."""
        parent = self._parent(path)
        parent.cached[path.name] = parent.stored[path.name] = volume

    def used_bytes(self) -> int:
        """What all files hold now."""
        return self._used()

    def power_off(self) -> None:
        """From now on no call returns (D4)."""
        self._off = True
        self.crashed = True

    def crash(self) -> None:
        """Lose what may be lost and come up again."""
        for change in self._surviving_changes():
            _apply(change, stored=True)
        seen: set[int] = set()
        self._reload(self._root, seen)
        self._pending.clear()
        self.restart()

    def restart(self) -> None:
        """Only the process died: its files are closed, the cache lives on."""
        self.boots += 1
        self.calls = 0
        self.crash_at = None
        self._off = False

    @contextmanager
    def until_crash(self, *, keep_cache: bool = False) -> Iterator[None]:
        """Run the body until the power goes or to its end; then come up after a crash or (`keep_cache`) a kill."""
        try:
            yield
        except PowerLoss:
            pass
        except BaseExceptionGroup as group:
            _, others = group.split(PowerLoss)
            if others is not None and not self.crashed:
                raise others from group
        if keep_cache:
            self.restart()
        else:
            self.crash()

    # The port

    def create(self, path: Path) -> FakeFile:
        self.enter("create", path)
        self.refuse_if_read_only(path)
        parent = self._parent(path)
        if path.name in parent.cached:
            raise Conflict("the name exists", path=path)
        inode = _Inode(self._clock.wall_ms())
        self._change((parent, path.name, inode))
        return FakeFile(self, inode, path)

    def open(self, path: Path) -> FakeFile:
        self.enter("open", path)
        self.refuse_if_read_only(path)
        return FakeFile(self, self._inode(path), path)

    def read(self, path: Path, start: int = 0, end: int | None = None) -> bytes:
        self.enter("read", path)
        return bytes(self._inode(path).cached[start : None if end is None else max(start, end)])

    def size(self, path: Path) -> int | None:
        found = self.stat(path)
        return None if found is None or found.is_dir else found.size

    def stat(self, path: Path) -> Stat | None:
        self.enter("stat", path)
        node = self._find(path)
        if node is None:
            return None
        size = len(node.cached) if isinstance(node, _Inode) else 0
        return Stat(size=size, modified_ms=node.modified_ms, is_dir=isinstance(node, _Dir))

    def link(self, source: Path, target: Path) -> None:
        self.enter("link", target)
        self.refuse_if_read_only(target)
        inode, parent = self._inode(source), self._parent(target)
        if target.name in parent.cached:
            raise Conflict("the name exists", path=target)
        self._change((parent, target.name, inode))

    def rename(self, source: Path, target: Path) -> None:
        self.enter("rename", target)
        self.refuse_if_read_only(target)
        node, parent = self._find(source), self._parent(target)
        if node is None:
            raise NotFound("no such file", path=source)
        there = parent.cached.get(target.name)
        if isinstance(node, _Dir) and there is not None and (isinstance(there, _Inode) or there.cached):
            raise Conflict("the name exists", path=target)
        if there is not node:  # two names of one file: rename(2) does nothing
            self._change((parent, target.name, node), (self._parent(source), source.name, None))

    def remove(self, path: Path) -> None:
        self.enter("remove", path)
        self.refuse_if_read_only(path)
        if self._find(path) is not None:
            self._inode(path)
            self._change((self._parent(path), path.name, None))

    def make_dir(self, path: Path) -> None:
        self.enter("make_dir", path)
        if self._find(path) is None:
            self.make_dir(path.parent)
            self.refuse_if_read_only(path)
            self.enter("mkdir", path)
            self._change((self._parent(path), path.name, _Dir(self._clock.wall_ms())))
        elif isinstance(self._find(path), _Inode):
            raise Conflict("the name exists", path=path)
        self.sync_dir(path.parent)  # D3

    def sync_dir(self, path: Path) -> None:
        self.enter("sync_dir", path)
        directory = self._find(path)
        if not isinstance(directory, _Dir):
            raise NotFound("no such directory", path=path)
        failed = self._sync_fails(path)
        for changes in self._pending:
            for change in [change for change in changes if change[0] is directory]:
                changes.remove(change)
                if not failed or self._keeps():
                    _apply(change, stored=True)
        self._pending = [changes for changes in self._pending if changes]
        if failed:
            raise SyncFailed("the disk did not take the entry", path=path)

    def sync_file(self, path: Path) -> None:
        self.enter("sync_file", path)
        self.store(self._inode(path), path)

    def write_again(self, path: Path, start: int) -> None:
        self.enter("write_again", path)
        self.refuse_if_read_only(path)
        inode = self._inode(path)
        inode.clean = min(inode.clean, start)
        self.enter("sync_file", path)
        self.store(inode, path)

    def list(self, path: Path) -> list[str]:
        self.enter("list", path)
        node = self._find(path)
        if isinstance(node, _Inode):
            raise NotFound("no such directory", path=path)
        return [] if node is None else sorted(node.cached)

    # What files and faults need

    def enter(self, name: str, path: Path) -> None:
        """The start of every call: hooks, counting, power."""
        if self._off:
            raise PowerLoss(f"{name} {path}")
        self._last_call = f"{self.calls} {name} {path}"
        if self.on_call is not None:
            self.on_call(name, path)
        if self.crash_at == self.calls:
            self.power_off()
            raise PowerLoss(f"{name} {path}")
        self.calls += 1

    def refuse_if_read_only(self, path: Path) -> None:
        if self.read_only:
            raise ReadOnly("the directory does not take writes: remount it or change its owner", path=path)

    def append(self, inode: _Inode, path: Path, view: memoryview) -> None:
        """Add bytes to the cache, as many as there is room for."""
        room = view.nbytes if self.capacity_bytes is None else max(0, self.capacity_bytes - self._used())
        inode.cached += view[:room]
        inode.modified_ms = self._clock.wall_ms()
        if room < view.nbytes:
            raise DiskFull("no space left: free some and try again", path=path)

    def store(self, inode: _Inode, path: Path) -> None:
        """Bring the cached bytes of a file to the disk, or fail and drop them (D2)."""
        failed = self._sync_fails(path)
        inode.stored = self._left_of(inode) if failed else _joined(inode, bytes(inode.cached[inode.clean :]))
        # After a failure too: the kernel takes the pages for clean, and no later sync writes them.
        inode.clean = len(inode.cached)
        inode.former.clear()
        if failed:
            raise SyncFailed("the disk did not take the bytes", path=path)

    # Inside

    def _find(self, path: Path) -> _Node | None:
        node: _Node = self._root
        for name in _names(path):
            found = node.cached.get(name) if isinstance(node, _Dir) else None
            if found is None:
                return None
            node = found
        return node

    def _inode(self, path: Path) -> _Inode:
        node = self._find(path)
        if not isinstance(node, _Inode):
            raise NotFound("no such file", path=path)
        return node

    def _parent(self, path: Path) -> _Dir:
        node = self._find(path.parent)
        if not isinstance(node, _Dir):
            raise NotFound("no such file", path=path)
        return node

    def _change(self, *changes: _Change) -> None:
        for change in changes:
            _apply(change, stored=False)
            change[0].modified_ms = self._clock.wall_ms()
        self._pending.append(list(changes))

    def _sync_fails(self, path: Path) -> bool:
        for part in self._failing:
            if part in str(path):
                self._failing.remove(part)
                return True
        return False

    def _used(self) -> int:
        inodes: dict[int, _Inode] = {}
        directories = [self._root]
        while directories:
            for node in directories.pop().cached.values():
                if isinstance(node, _Dir):
                    directories.append(node)
                else:
                    inodes[id(node)] = node
        return sum(len(inode.cached) for inode in inodes.values())

    def _keeps(self) -> bool:
        return self.seed is not None and self._random.random() < 0.5

    def _surviving_changes(self) -> _Changes:
        """A subset of the unsynced changes in which none lacks an earlier one of the same name."""
        undone: set[tuple[int, str]] = set()
        kept: _Changes = []
        keep_all = self.seed is not None and self._random.random() < 0.25
        for changes in self._pending:
            keys = {(id(directory), name) for directory, name, _ in changes}
            if undone.isdisjoint(keys) and (keep_all or self._keeps()):
                kept.extend(changes)
            else:
                undone |= keys
        return kept

    def _reload(self, directory: _Dir, seen: set[int]) -> None:
        directory.cached = dict(directory.stored)
        for _, node in sorted(directory.cached.items()):
            if isinstance(node, _Dir):
                self._reload(node, seen)
            elif id(node) not in seen:
                seen.add(id(node))
                node.stored = self._left_of(node)
                node.cached = bytearray(node.stored)
                node.clean = len(node.cached)
                node.former.clear()

    def _left_of(self, inode: _Inode) -> bytearray:
        """What a crash now would leave of a file."""
        if self.seed is None:
            return inode.stored
        stored = (inode.clean, bytes(inode.stored[inode.clean :]))
        start, tail = self._random.choice([stored, *inode.former])
        old = bytes(inode.stored[inode.clean : start]) + tail
        return _joined(inode, _mix(self._random, bytes(inode.cached[inode.clean :]), old, inode.clean))


def _durable(directory: _Dir, seen: dict[int, _Inode]) -> _Dir:
    """A copy of what is on the disk, whatever is in the cache."""
    copy = _Dir(directory.modified_ms)
    for name, node in directory.stored.items():
        if isinstance(node, _Dir):
            copy.stored[name] = _durable(node, seen)
            continue
        if id(node) not in seen:
            stored = node.stored
            seen[id(node)] = _Inode(node.modified_ms, bytearray(stored), bytearray(stored), len(stored))
        copy.stored[name] = seen[id(node)]
    copy.cached = dict(copy.stored)
    return copy


def every_crash(seeds: Iterable[int | None] = (None, 0, 1, 2)) -> Iterator[FakeDisk]:
    """Fresh disks, each of which loses power one call later than the one before, until a run needs no more calls.

    Run the same scenario inside `until_crash` of each; the last disk of a seed crashes behind the end.
    """
    for seed in seeds:
        for call in range(1_000_000):
            disk = FakeDisk(seed if seed is None else seed * 1_000_003 + call)
            disk.crash_at = call
            yield disk
            if not disk.crashed:
                break


def _mix(dice: random.Random, new: bytes, old: bytes, start: int) -> bytes:
    """Sectors of `new` and `old` as a crash may leave them, for a tail that begins at byte `start`."""
    if dice.random() < 0.25:
        return new
    sizes = (len(old), len(new), dice.randint(min(len(old), len(new)), max(len(old), len(new))))
    mixed = bytearray(dice.choice(sizes))
    torn = dice.randint(0, len(mixed))
    at = 0
    while at < len(mixed):
        end = min(len(mixed), at + SECTOR_BYTES - (start + at) % SECTOR_BYTES)
        if at <= torn < end:
            _overlay(mixed, old, at, end)
            _overlay(mixed, new, at, torn)
        else:
            _overlay(mixed, dice.choice((new, new, old)), at, end)
        at = end
    return bytes(mixed)


def _joined(inode: _Inode, tail: bytes) -> bytearray:
    """The stored bytes with a new tail from `clean` on; bytes between that never reached the disk are zeros."""
    if not tail and len(inode.stored) <= inode.clean:
        return inode.stored
    del inode.stored[inode.clean :]
    inode.stored.extend(bytes(inode.clean - len(inode.stored)))
    inode.stored += tail
    return inode.stored


def _overlay(target: bytearray, source: bytes, start: int, end: int) -> None:
    part = source[start:end]
    target[start : start + len(part)] = part


def _apply(change: _Change, *, stored: bool) -> None:
    directory, name, node = change
    entries = directory.stored if stored else directory.cached
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _names(path: PurePath) -> tuple[str, ...]:
    return tuple(name for name in path.parts if name not in ("/", "."))
