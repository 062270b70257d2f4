"""Where checkpoints are kept, and how one becomes fit to be loaded.

A checkpoint is a pure function of the log: made by a child process from the
checkpoint before it and the entries since, never by stopping the live replica.
It is written under a name that nobody loads; only after a replica that did not
make it has confirmed it does it get the name under which it may be loaded.

    N.partPID   being written        N.checkpoint   may be loaded
    N.made      made, not confirmed  N.damaged-M    could not be read; kept for an operator

Invariants
    CK1  Only a confirmed checkpoint is ever loaded or trimmed to.
    CK2  Two confirmed checkpoints are kept, and the log between them.
    CK3  A checkpoint that cannot be read costs nothing but time: the one
         before it is loaded, or the log from its beginning. It is kept aside,
         and nothing is trimmed on its account.
"""

import re
from pathlib import Path
from typing import Final, Protocol

from dray.disk import Disk
from dray.errors import Conflict, Corrupt, DrayError, NotFound
from dray.machine import checkpoint
from dray.machine.checkpoint import Summary
from dray.machine.machine import Machine
from dray.offload import Offload
from dray.replica import telemetry
from dray.telemetry import logger

MADE: Final = ".made"
CONFIRMED: Final = ".checkpoint"
PART: Final = ".part"
DAMAGED: Final = ".damaged"
_NAME: Final = re.compile(r"([0-9]{20})(\.[a-z]+)(.*)")


class CheckpointStore(Protocol):
    """Checkpoints of one domain, by position."""

    async def write(self, position: int, data: bytes) -> None:
        """Keep a checkpoint, durably, not yet to be loaded."""
        ...

    async def examine(self, position: int) -> Summary:
        """Read a made checkpoint back and check it whole; its megabytes stay off the loop."""
        ...

    async def confirm(self, position: int) -> None:
        """From now on it may be loaded (CK1)."""
        ...

    async def confirmed(self) -> list[int]:
        """Positions of the checkpoints that may be loaded, ascending."""
        ...

    async def check(self, position: int) -> Summary:
        """Read a confirmed checkpoint and check it whole, off the loop."""
        ...

    async def load(self, position: int) -> Machine:
        """The machine of a confirmed checkpoint, built off the loop."""
        ...

    async def set_aside(self, position: int) -> None:
        """Keep a confirmed checkpoint that cannot be read where nobody loads it (CK3)."""
        ...

    async def discard(self, position: int) -> None:
        """Forget a made checkpoint; a missing one is fine."""
        ...

    async def remove(self, position: int) -> None:
        """Forget a checkpoint, made or confirmed; a missing one is fine."""
        ...

    async def made(self) -> list[int]:
        """Positions of the checkpoints that were made and not confirmed."""
        ...

    async def sweep(self) -> None:
        """Forget all that is half-written or not confirmed: for who comes to a store in which nobody is at work."""
        ...


async def newest_machine(store: CheckpointStore, upto: int | None = None, *, set_aside: bool = True) -> Machine:
    """The machine of the newest confirmed checkpoint that can be read, or an empty one if there is none (CK3)."""
    for position in reversed(await store.confirmed()):
        if upto is not None and position > upto:
            continue
        try:
            return await store.load(position)
        except NotFound:
            continue  # it went between two calls
        except Corrupt as error:
            await report_damaged(store, position, error, set_aside=set_aside)
    return Machine()


async def report_damaged(store: CheckpointStore, position: int, error: DrayError, *, set_aside: bool = True) -> None:
    """Say so, and keep the file where nobody loads it."""
    logger().error(telemetry.CHECKPOINT_DAMAGED, position=position, error=str(error))
    if not set_aside:
        return
    try:
        await store.set_aside(position)
    except DrayError as second:  # a disk that takes no writes: it is passed over again the next time
        logger().warning(telemetry.CHECKPOINT_FAILED, position=position, error=str(second))


class FileCheckpoints:
    """Checkpoints as files of one directory, which one process owns."""

    def __init__(self, directory: Path, disk: Disk, offload: Offload, *, maker: str = "") -> None:
        """`maker` names the half-written file, so that two processes never write the same one."""
        self._directory = directory
        self._maker = maker
        self._disk = disk
        self._offload = offload

    async def write(self, position: int, data: bytes) -> None:
        await self._offload.run(self._write, self._path(position, MADE), data)

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
        return await self._offload.run(self._examine, self._path(position, MADE))

    async def check(self, position: int) -> Summary:
        return await self._offload.run(self._examine, self._path(position, CONFIRMED))

    def _examine(self, path: Path) -> Summary:
        return checkpoint.summary(self._disk.read(path))

    async def load(self, position: int) -> Machine:
        return await self._offload.run(self._load, position)

    def _load(self, position: int) -> Machine:
        return checkpoint.load(self._disk.read(self._path(position, CONFIRMED)))

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
        return await self._offload.run(self._disk.read, self._path(position, CONFIRMED))

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
        await self._offload.run(self._disk.remove, self._path(position, MADE))

    async def remove(self, position: int) -> None:
        for suffix in (MADE, CONFIRMED):
            await self._offload.run(self._disk.remove, self._path(position, suffix))

    async def sweep(self) -> None:
        await self._offload.run(self.sweep_names, "")

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


class MemoryCheckpoints:
    """Checkpoints in memory, shared by the replicas of a test or a simulation."""

    def __init__(self) -> None:
        self._made: dict[int, bytes] = {}
        self._confirmed: dict[int, bytes] = {}
        self.aside: dict[int, bytes] = {}

    async def write(self, position: int, data: bytes) -> None:
        if position in self._confirmed:
            raise Conflict("a confirmed checkpoint of this position exists", position=position)
        self._made[position] = data

    async def examine(self, position: int) -> Summary:
        return checkpoint.summary(_found(self._made, position))

    async def check(self, position: int) -> Summary:
        return checkpoint.summary(_found(self._confirmed, position))

    async def load(self, position: int) -> Machine:
        return checkpoint.load(_found(self._confirmed, position))

    async def confirm(self, position: int) -> None:
        if position in self._made:
            self._confirmed[position] = self._made.pop(position)

    async def confirmed(self) -> list[int]:
        return sorted(self._confirmed)

    def loadable(self) -> dict[int, bytes]:
        """The checkpoints that may be loaded, by position: for checkers."""
        return dict(self._confirmed)

    async def set_aside(self, position: int) -> None:
        if position in self._confirmed:
            self.aside[position] = self._confirmed.pop(position)

    async def discard(self, position: int) -> None:
        self._made.pop(position, None)

    async def remove(self, position: int) -> None:
        self._made.pop(position, None)
        self._confirmed.pop(position, None)

    async def made(self) -> list[int]:
        return sorted(self._made)

    async def sweep(self) -> None:
        """Others may be at work here: nothing goes."""


def _found(kept: dict[int, bytes], position: int) -> bytes:
    if position not in kept:
        raise NotFound("no such checkpoint", position=position)
    return kept[position]
