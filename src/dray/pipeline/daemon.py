"""The process that Spark forks its Python workers from: `spark.python.daemon.module=dray.pipeline.daemon`.

The stock daemon's workers spend 190 ms of CPU on every task, because each one
throws away and reads again the directory of pyspark.zip (SPARK-54744, fixed in
Spark 4.2), and 25-60 ms on collecting the garbage of loaded modules. This one
loads what tasks need before it forks, and keeps both from happening.

Nothing here may start a thread: it would not survive the fork.
"""

import gc
import zipimport

import pyarrow
import pyarrow.compute  # noqa: F401
from pyspark import daemon

import dray.pipeline.reading
import dray.pipeline.source  # noqa: F401


def _keep(_: zipimport.zipimporter) -> None:
    """Code comes by installation here, so no zip changes while workers live."""


def main() -> None:
    zipimport.zipimporter.invalidate_caches = _keep  # type: ignore[assignment, method-assign]
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
