"""A data directory, for who does not run on it: it says where its log is kept, which need not be in it."""

from pathlib import Path

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import NotFound
from dray.ids import SystemEntropy
from dray.node.directory import DataDirectory, Identity
from dray.node.joining import HasJoined, has_joined
from dray.node.metadata import Effects
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
