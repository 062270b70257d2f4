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

import gc
import importlib
from typing import Final

import pyarrow
import pyarrow.compute  # noqa: F401
from pyspark import daemon

import dray.pipeline.reading
import dray.pipeline.source  # noqa: F401
from dray.memory import MIB, keep_freed_buffers
from dray.pipeline.zips import keep_unchanged

KEPT_BYTES: Final = 64 * MIB
"""Of freed memory, at most this much stays with a worker."""


def main() -> None:
    keep_unchanged()
    importlib.invalidate_caches()
    keep_freed_buffers(KEPT_BYTES)
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
