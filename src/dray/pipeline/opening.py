"""Where a read finds its cluster: in a data directory, which says where its log is, or in a log that brokers share."""

from functools import partial
from pathlib import Path

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import NotFound
from dray.ids import SystemEntropy
from dray.node.directory import DataDirectory, Identity
from dray.node.joining import HasJoined, has_joined
from dray.node.metadata import Effects
from dray.node.reaching import DirectoryOrCluster
from dray.node.visiting import ClusterPlace
from dray.offload import InlineOffload
from dray.pipeline.options import ReadOptions
from dray.pipeline.stores import open_for_tasks


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
        raise HasJoined(
            "its broker uses a log that is kept elsewhere: give the directory of the broker that keeps it, or log and "
            "objects, as log.url and objects.url of brokers that share them",
            path=path,
        )  # fmt: skip
    return DataDirectory.at(root, disk), identity


def place_of(options: ReadOptions) -> tuple[DirectoryOrCluster, str]:
    """Where the cluster of a read is, and the address of its store."""
    if options.log is None:
        directory, _ = read_directory(options.path)
        return directory, options.objects or str(directory.objects)
    assert options.objects is not None, "it was asked for with the log"
    opened = partial(open_for_tasks, options.objects)
    return ClusterPlace(log=options.log, address=options.objects, open_objects=opened), options.objects
