"""Checkpoints as files of a directory.

N.partPID   being written        N.checkpoint   may be loaded
N.made      made, not confirmed  N.damaged-M    could not be read; kept for an operator
pages/      what the large ones are made of (`dray.replica.checkpoints.pages`)
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dray.disk import Disk
from dray.errors import Corrupt
from dray.machine import checkpoint
from dray.machine.checkpoint import Summary
from dray.machine.machine import Machine
from dray.offload import Offload
from dray.replica.checkpoints.pages import LARGE, MAGIC, PAGES, Pages, is_listing, named_in

MADE: Final = ".made"
CONFIRMED: Final = ".checkpoint"
PART: Final = ".part"
DAMAGED: Final = ".damaged"
_NAME: Final = re.compile(r"([0-9]{20})(\.[a-z]+)(.*)")


class FileCheckpoints:
    """Checkpoints as files of one directory, which one process owns."""

    def __init__(self, directory: Path, disk: Disk, offload: Offload, *, maker: str = "") -> None:
        """`maker` names the half-written file, so that two processes never write the same one."""
        self._directory = directory
        self._maker = maker
        self._disk = disk
        self._offload = offload
        self._pages = Pages(directory, disk, maker)

    async def write(self, position: int, *runs: bytes | bytearray) -> None:
        await self._offload.run(self._write_any, self._path(position, MADE), runs)

    def _write_any(self, path: Path, runs: Sequence[bytes | bytearray]) -> None:
        self._disk.make_dir(self._directory)
        self._write(path, self._pages.write(runs) if sum(map(len, runs)) >= LARGE else b"".join(runs))

    def _read(self, path: Path) -> bytes | bytearray:
        content = self._disk.read(path)
        if not is_listing(content):
            return content
        with self._still_there(path):
            return self._pages.read(content)

    @contextmanager
    def _still_there(self, path: Path) -> Iterator[None]:
        try:
            yield
        except Corrupt:
            self._disk.read(path, 0, 1)  # gone by now: its pages went with it, and nothing is damaged
            raise

    def _write(self, path: Path, data: bytes) -> None:
        self._disk.make_dir(self._directory)
        temporary = path.with_suffix(f"{PART}{self._maker}")
        self._disk.remove(temporary)
        file = self._disk.create(temporary)
        try:
            file.write([data])
            file.sync()
        finally:
            file.close()
        self._disk.rename(temporary, path)
        self._disk.sync_dir(self._directory)

    async def examine(self, position: int) -> Summary:
        return await self._offload.run(self._examine_made, self._path(position, MADE))

    def _examine_made(self, path: Path) -> Summary:
        try:
            return self._examine(path)
        except Corrupt:
            content = self._disk.read(path)
            if is_listing(content):
                self._pages.set_aside(content)
            raise

    async def check(self, position: int) -> Summary:
        return await self._offload.run(self._examine, self._path(position, CONFIRMED))

    def _examine(self, path: Path) -> Summary:
        """A large one page by page: it is never in memory as a whole."""
        content = self._disk.read(path)
        if not is_listing(content):
            return checkpoint.summary(content)
        with self._still_there(path):
            return checkpoint.summary_of(self._pages.each(content))

    async def load(self, position: int) -> Machine:
        return await self._offload.run(self._load, position)

    def _load(self, position: int) -> Machine:
        return checkpoint.load(self._read(self._path(position, CONFIRMED)))

    async def confirm(self, position: int) -> None:
        await self._offload.run(self._confirm, position)

    def _confirm(self, position: int) -> None:
        self._disk.rename(self._path(position, MADE), self._path(position, CONFIRMED))
        self._disk.sync_dir(self._directory)

    async def confirmed(self) -> list[int]:
        return await self._offload.run(self._positions, CONFIRMED)

    async def made(self) -> list[int]:
        return await self._offload.run(self._positions, MADE)

    def _positions(self, wanted: str) -> list[int]:
        found = map(_parts, self._disk.list(self._directory))
        return sorted(position for position, suffix, rest in found if suffix == wanted and not rest)

    async def read(self, position: int) -> bytes:
        """The bytes of a confirmed checkpoint."""
        return await self._offload.run(self._read_bytes, self._path(position, CONFIRMED))

    async def read_made(self, position: int) -> bytes:
        """The bytes of a made checkpoint."""
        return await self._offload.run(self._read_bytes, self._path(position, MADE))

    def _read_bytes(self, path: Path) -> bytes:
        return bytes(self._read(path))

    async def set_aside(self, position: int) -> None:
        await self._offload.run(self._set_aside, position)

    def _set_aside(self, position: int) -> None:
        taken = self._disk.list(self._directory)
        number = 1
        while (aside := self._path(position, f"{DAMAGED}-{number}")).name in taken:
            number += 1
        self._disk.rename(self._path(position, CONFIRMED), aside)
        self._disk.sync_dir(self._directory)

    async def discard(self, position: int) -> None:
        await self._offload.run(self._remove, position, (MADE,))

    async def remove(self, position: int) -> None:
        await self._offload.run(self._remove, position, (MADE, CONFIRMED))

    def _remove(self, position: int, suffixes: Sequence[str]) -> None:
        for suffix in suffixes:
            self._disk.remove(self._path(position, suffix))
        self._sweep_pages()

    def _sweep_pages(self) -> None:
        """Pages that nobody names any more go (CK8), when the names that named them are surely gone."""
        names = self._disk.list(self._directory)
        if PAGES not in names:
            return
        self._disk.sync_dir(self._directory)
        named: set[str] = set()
        for name in names:
            suffix = _parts(name)[1]
            if suffix not in (MADE, CONFIRMED) and not suffix.startswith(DAMAGED):
                continue
            path = self._directory / name
            if not is_listing(self._disk.read(path, 0, min(len(MAGIC), self._disk.size(path) or 0))):
                continue
            try:
                named |= named_in(self._disk.read(path))
            except Corrupt:
                if suffix == CONFIRMED:
                    return  # it may name anything: it is set aside first
        self._pages.sweep(named)

    async def sweep(self) -> None:
        await self._offload.run(self._sweep)

    def _sweep(self) -> None:
        self.sweep_names("")
        self._sweep_pages()
        if self._disk.list(self._directory):
            # CK1: a process that was killed between a rename and its sync left a name that a power cut takes away.
            self._disk.sync_dir(self._directory)

    def sweep_names(self, maker: str) -> None:
        """Take away what is half-written by a maker; for all makers ("") also what was made and not confirmed."""
        for name in self._disk.list(self._directory):
            _, suffix, rest = _parts(name)
            if (suffix == PART and maker in ("", rest)) or (suffix == MADE and not maker):
                self._disk.remove(self._directory / name)

    def _path(self, position: int, suffix: str) -> Path:
        return self._directory / f"{position:020d}{suffix}"


def _parts(name: str) -> tuple[int, str, str]:
    """Position, suffix and what follows it; no suffix for a name that is none of ours."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), found[2], found[3]) if found else (0, "", "")
