"""A delta log where its URL says: in the cluster's store, or in a directory."""

from typing import Final

from dray.clock import Clock
from dray.disk import Disk
from dray.errors import Invalid
from dray.ids import Entropy, SystemEntropy
from dray.log.delta.engine import DeltaLog
from dray.log.urls import DeltaLogs
from dray.objects.files import FileObjects
from dray.objects.port import Objects, Settles
from dray.offload import Offload

DIRECTORY_IDLE_S: Final = (0.005, 0.25)
"""Looking into a directory costs no money."""


async def open_delta_log(
    url: DeltaLogs,
    domain: int,
    *,
    objects: Objects | None,
    clock: Clock,
    disk: Disk,
    offload: Offload,
    max_entry_bytes: int,
    entropy: Entropy | None = None,
) -> DeltaLog:
    """The log of a domain, at its end.

    Raises:
        Invalid: it is to be in the cluster's store, and there is none that others reach.
        Unavailable, Denied: the store does not answer, or does not let us in.
    """
    entropy = entropy or SystemEntropy()
    if url.root is not None:
        files = FileObjects(url.root, disk, offload, entropy)
        await files.open()
        log = DeltaLog(
            files, domain, clock=clock, entropy=entropy, max_entry_bytes=max_entry_bytes, settle=files.settle,
            idle_s=DIRECTORY_IDLE_S,
        )  # fmt: skip
        return await log.open()
    if objects is None:
        raise Invalid("a log in the object store needs one: set objects.url, s3://BUCKET/PREFIX say")
    settle = objects.settle if isinstance(objects, Settles) else None
    return await DeltaLog(
        objects, domain, clock=clock, entropy=entropy, max_entry_bytes=max_entry_bytes, settle=settle
    ).open()
