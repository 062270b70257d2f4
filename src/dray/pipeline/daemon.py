"""The process that Spark forks its Python workers from: `spark.python.daemon.module=dray.pipeline.daemon`.

The stock daemon's workers spend 190 ms of CPU on every task, because each one
reads the directory of pyspark.zip again (`zips`), and 25-60 ms on collecting
the garbage of loaded modules. This one loads what tasks need before it forks,
and keeps both from happening.

Its workers keep some freed memory for themselves. A task takes and frees
buffers of megabytes all the time; by default the C library gives each back to
the system and gets it again page by page, which costs as much as the decoding.

Nothing here may start a thread: it would not survive the fork.
"""

import ctypes
import gc
import importlib
from typing import Final

import pyarrow
import pyarrow.compute  # noqa: F401
from pyspark import daemon

import dray.pipeline.reading
import dray.pipeline.source  # noqa: F401
from dray.pipeline.zips import keep_unchanged

KEPT_BYTES: Final = 64 << 20
"""Of freed memory, at most this much stays with a worker."""
LARGE_BYTES: Final = 32 << 20
"""From here on a buffer is a mapping of its own; glibc takes no higher bound."""
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def _keep_memory() -> None:
    """Only glibc has these knobs; elsewhere things stay as they are."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, LARGE_BYTES)
        set_option(_TRIM_THRESHOLD, KEPT_BYTES)


def main() -> None:
    keep_unchanged()
    importlib.invalidate_caches()
    _keep_memory()
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
