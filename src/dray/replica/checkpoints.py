"""Where checkpoints are kept, and how one becomes fit to be loaded.

A checkpoint is a pure function of the log: made by a child process from the
checkpoint before it and the entries since, never by stopping the live replica.
It is written under a name that nobody loads; only after a replica that did not
make it has confirmed it does it get the name under which it may be loaded.

Invariants
    CK1  Only a confirmed checkpoint is ever loaded or trimmed to.
    CK2  Two confirmed checkpoints are kept, and the log between them.
"""

from pathlib import Path
from typing import Final, Protocol

from dray.disk import Disk
from dray.errors import Conflict, NotFound
from dray.machine import checkpoint
from dray.machine.checkpoint import Summary
from dray.machine.machine import Machine
from dray.offload import Offload

MADE: Final = ".made"
CONFIRMED: Final = ".checkpoint"


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

    async def read(self, position: int) -> bytes: ...

    async def remove(self, position: int) -> None:
        """Forget a checkpoint, made or confirmed; a missing one is fine."""
        ...


async def newest_machine(store: CheckpointStore) -> Machine:
    """The machine of the newest confirmed checkpoint, or an empty one if there is none."""
    positions = await store.confirmed()
    return checkpoint.load(await store.read(positions[-1])) if positions else Machine()


class FileCheckpoints:
    """Checkpoints as files of one directory."""

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
        temporary = path.with_suffix(f".part{self._maker}")
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

    def _examine(self, path: Path) -> Summary:
        return checkpoint.summary(self._disk.read(path))

    async def confirm(self, position: int) -> None:
        await self._offload.run(self._confirm, position)

    def _confirm(self, position: int) -> None:
        self._disk.rename(self._path(position, MADE), self._path(position, CONFIRMED))
        self._disk.sync_dir(self._directory)

    async def confirmed(self) -> list[int]:
        names = await self._offload.run(self._disk.list, self._directory)
        return sorted(int(name.removesuffix(CONFIRMED)) for name in names if name.endswith(CONFIRMED))

    async def read(self, position: int) -> bytes:
        return await self._offload.run(self._disk.read, self._path(position, CONFIRMED))

    async def remove(self, position: int) -> None:
        for suffix in (MADE, CONFIRMED):
            await self._offload.run(self._disk.remove, self._path(position, suffix))

    def _path(self, position: int, suffix: str) -> Path:
        return self._directory / f"{position:020d}{suffix}"


class MemoryCheckpoints:
    """Checkpoints in memory, shared by the replicas of a test or a simulation."""

    def __init__(self) -> None:
        self._made: dict[int, bytes] = {}
        self._confirmed: dict[int, bytes] = {}

    async def write(self, position: int, data: bytes) -> None:
        if position in self._confirmed:
            raise Conflict("a confirmed checkpoint of this position exists", position=position)
        self._made[position] = data

    async def examine(self, position: int) -> Summary:
        if position not in self._made:
            raise NotFound("no such checkpoint", position=position)
        return checkpoint.summary(self._made[position])

    async def confirm(self, position: int) -> None:
        if position in self._made:
            self._confirmed[position] = self._made.pop(position)

    async def confirmed(self) -> list[int]:
        return sorted(self._confirmed)

    def loadable(self) -> dict[int, bytes]:
        """The checkpoints that may be loaded, by position: for checkers."""
        return dict(self._confirmed)

    async def read(self, position: int) -> bytes:
        if position not in self._confirmed:
            raise NotFound("no such checkpoint", position=position)
        return self._confirmed[position]

    async def remove(self, position: int) -> None:
        self._made.pop(position, None)
        self._confirmed.pop(position, None)
