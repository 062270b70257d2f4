"""The object store, opened beside the brokers: for a planner, or in a task.

A directory is not opened as a broker opens it: that sweeps the temporary
files of puts, also those of the broker that is running.
"""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.objects.files import FileObjects
from dray.objects.opening import StoreEffects, StoreOptions, open_store
from dray.objects.port import Objects
from dray.offload import InlineOffload


async def open_for_tasks(address: str) -> Objects:
    """The store at an address; credentials and endpoint of a cloud come from the environment."""
    scheme = urlsplit(address).scheme if "://" in address else ""
    if scheme in ("", "file"):
        root = Path(unquote(urlsplit(address).path)) if scheme else Path(address)
        return FileObjects(root, LocalDisk(), InlineOffload())
    effects = StoreEffects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())
    # Tasks have no configuration of ours: a store that is not Amazon's is named as Amazon's own tools have it.
    endpoint = os.environ.get("AWS_ENDPOINT_URL") if scheme == "s3" else None  # noqa: TID251
    return await open_store(address, StoreOptions(endpoint=endpoint), effects)
