"""The object store, opened beside the brokers: for a planner, or in a task.

A directory is not opened as a broker opens it: that sweeps the temporary
files of puts, also those of the broker that is running.
"""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import NotFound
from dray.ids import SystemEntropy
from dray.objects.files import FileObjects
from dray.objects.opening import StoreEffects, StoreOptions, open_store
from dray.objects.port import NoSuchObject, Objects
from dray.objects.ranges import check_length
from dray.offload import InlineOffload


class LocalObjects(FileObjects):
    """A directory, for a task, which has nothing else to do while it reads: ranges are had without a loop."""

    def __init__(self, root: Path) -> None:
        self._local = LocalDisk()
        self._prefix = f"{root}/"
        super().__init__(root, self._local, InlineOffload())

    def get_now(self, path: str, start: int, end: int) -> memoryview:
        """What `get` gives; the path is one that we have put together."""
        try:
            content = self._local.read(self._prefix + path, start, end)
        except NotFound as error:
            raise NoSuchObject("no such object", name=path) from error
        check_length(path, len(content), start, end)
        return memoryview(content)


async def open_for_tasks(address: str) -> Objects:
    """The store at an address; credentials and endpoint of a cloud come from the environment."""
    scheme = urlsplit(address).scheme if "://" in address else ""
    if scheme in ("", "file"):
        root = Path(unquote(urlsplit(address).path)) if scheme else Path(address)
        return LocalObjects(root)
    effects = StoreEffects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())
    # Tasks have no configuration of ours: a store that is not Amazon's is named as Amazon's own tools have it.
    endpoint = os.environ.get("AWS_ENDPOINT_URL") if scheme == "s3" else None  # noqa: TID251
    return await open_store(address, StoreOptions(endpoint=endpoint), effects)
