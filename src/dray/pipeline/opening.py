"""The metadata of a data directory, for a planner: beside a running broker, or with none.

The directory says where its log is kept, which need not be in it. Nothing is
written.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import NotFound
from dray.ids import SystemEntropy
from dray.log.opening import is_served
from dray.machine.machine import Machine
from dray.node.directory import DataDirectory, Identity
from dray.node.joining import HasJoined, has_joined
from dray.node.metadata import Effects
from dray.node.reaching import ANSWER_LIMIT_S, Reached, reach
from dray.offload import InlineOffload


def effects() -> Effects:
    """Those of a process that reads and then ends."""
    return Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())


def read_directory(path: str) -> tuple[DataDirectory, Identity]:
    """The directory and whose it is.

    Raises:
        NotFound: it is not one of Dray's.
        HasJoined: its broker uses the log of another directory.
    """
    disk = LocalDisk()
    root = Path(path).absolute()
    try:
        identity = DataDirectory(root).read_identity(disk)
    except NotFound as error:
        raise NotFound("not a data directory of Dray: give the one a broker runs on", path=path) from error
    if has_joined(root, disk):
        raise HasJoined("its broker uses the log of another one: give the directory of that", path=path)
    return DataDirectory.at(root, disk), identity


class Metadata:
    """The machines of a directory, each folded to the tail of its log when asked for."""

    def __init__(self, reached: Reached) -> None:
        self._reached = reached

    @property
    def live(self) -> bool:
        """Whether a broker runs on it."""
        return self._reached.live

    async def machine(self, domain: int) -> Machine:
        """The state as of now: everything that was acknowledged before this call."""
        return await self._reached.machine(domain, effects())


@asynccontextmanager
async def open_metadata(directory: DataDirectory) -> AsyncIterator[Metadata]:
    """Beside the owner of the directory if there is one; else as its owner, for a moment."""
    async with reach(directory, effects()) as reached:
        yield Metadata(reached)


async def is_live(directory: DataDirectory) -> bool:
    """Whether a broker runs on the directory and serves its log."""
    return await is_served(directory.served, ANSWER_LIMIT_S)
