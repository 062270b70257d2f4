"""How a process of Dray's own treats memory; one that embeds Dray is not ours to tune.

A broker, and a worker that reads for Spark, take and free buffers of
megabytes all the time. As glibc comes, such a buffer is fresh pages from the
kernel each time, and each thread keeps a heap of its own; measured on a
broker that had served 3 GB, one heap that keeps its pages took 400 MB
instead of 660 MB, and a tenth less CPU for a fetch.

Python's collector looks for cycles after every 700 new containers. What is
there at the start stays, so it is not looked at again, and a request makes
hardly any cycle, so looking less often is enough.
"""

import ctypes
import gc
from typing import Final

MIB: Final = 1 << 20
LARGE_BYTES: Final = 32 * MIB
"""From here on a buffer is a mapping of its own; glibc takes no higher bound."""
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_COLLECT_AFTER: Final = 10_000


def keep_freed_buffers(most_bytes: int, *, heaps: int | None = None) -> bool:
    """Let freed buffers be used again, up to so many bytes; before any thread is started.

    False where the C library has no such knobs: things then stay as they are.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    options = [(_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, most_bytes)]
    if heaps is not None:
        options.append((_ARENA_MAX, heaps))
    return all([set_option(name, value) for name, value in options])


def collect_less() -> None:
    """Call when everything that stays is there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
