"""Room on the disks that a broker writes to, and what its log takes of it.

A question to a disk may hang, so it is asked in a thread, one at a time, and
an answer serves whoever asks within a short time.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.clock import Clock
from dray.disk import DiskFull
from dray.errors import DrayError, Unavailable
from dray.node import telemetry
from dray.offload import Offload
from dray.servers.http.page import size

FRESH_S: Final = 2.0
ASK_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a broker keeps things on this machine."""

    rooms: Mapping[str, Path] = field(default_factory=dict)
    """Directories by what is kept in them."""
    logs: Mapping[int, Path] = field(default_factory=dict)
    """The log of each domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a file system has for us."""

    what: str
    path: Path
    free_bytes: int
    size_bytes: int
    files_left: bool
    """Whether it takes another file: room for names ends too."""

    def is_full(self, reserve_bytes: int) -> bool:
        return self.free_bytes < reserve_bytes or not self.files_left


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at all places."""

    rooms: tuple[Room, ...] = ()
    log_bytes: Mapping[int, int] = field(default_factory=dict)


def room_at(what: str, path: Path) -> Room:
    """Ask the file system of a directory, or of the nearest one above it that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    found = os.statvfs(path)
    return Room(
        what=what,
        path=path,
        free_bytes=found.f_bavail * found.f_frsize,
        size_bytes=(found.f_blocks - found.f_bfree + found.f_bavail) * found.f_frsize,
        files_left=found.f_favail > 0 or found.f_files == 0,  # 0 of 0: this file system does not count them
    )


def full_disk(room: Room, reserve_bytes: int) -> DiskFull:
    """A disk on which the next write may fail."""
    if not room.files_left:
        return DiskFull(f"the disk takes no more files: delete some at {room.path}", kept=room.what)
    return DiskFull(
        f"the disk is full: {size(room.free_bytes)} are left at {room.path}, at least {size(reserve_bytes)} are wanted",
        kept=room.what,
    )


class DiskWatch:
    """Looks at the places of one broker."""

    def __init__(self, places: Places, reserve_bytes: int, offload: Offload, clock: Clock) -> None:
        self.reserve_bytes: Final = reserve_bytes
        self._places = places
        self._offload = offload
        self._clock = clock
        self._reading = Reading()
        self._read_ns: int | None = None
        self._asking: asyncio.Task[Reading] | None = None

    async def look(self) -> Reading:
        """How it is now.

        Raises:
            Unavailable: a disk does not answer.
        """
        if self._read_ns is not None and self._clock.boot_ns() - self._read_ns < FRESH_S * 1e9:
            return self._reading
        if self._asking is None:
            self._asking = asyncio.create_task(self._offload.run(_measure, self._places))
        asking = self._asking
        done, _ = await asyncio.wait((asking,), timeout=ASK_S)
        if not done:
            raise Unavailable(f"the disk has not answered for {ASK_S:.0f} s: look at it, or at what it is mounted from")
        if self._asking is asking:
            self._asking = None
        try:
            self._reading = asking.result()
        except OSError as error:
            raise Unavailable("the disk cannot be asked for its room", reason=error.strerror) from error
        self._read_ns = self._clock.boot_ns()
        return self._reading

    async def probe(self) -> None:
        """Return if there is room, raise `DiskFull` or `Unavailable` if not."""
        for room in (await self.look()).rooms:
            if room.is_full(self.reserve_bytes):
                raise full_disk(room, self.reserve_bytes)

    async def measure(self) -> None:
        """Tell how it is as metrics; of a disk that does not answer, how it was."""
        with suppress(DrayError):
            report(await self.look())

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


def report(reading: Reading) -> None:
    """Tell a look as metrics."""
    for room in reading.rooms:
        telemetry.DISK_FREE.labels(room.what).set(room.free_bytes)
        telemetry.DISK_SIZE.labels(room.what).set(room.size_bytes)
    for domain, taken in reading.log_bytes.items():
        telemetry.LOG_BYTES.labels(str(domain)).set(taken)


def _measure(places: Places) -> Reading:
    return Reading(
        rooms=tuple(room_at(what, path) for what, path in places.rooms.items()),
        log_bytes={domain: _files_bytes(path) for domain, path in places.logs.items()},
    )


def _files_bytes(directory: Path) -> int:
    total = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    total += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:  # trimmed while we looked
                    continue
    except FileNotFoundError:
        return 0
    return total
