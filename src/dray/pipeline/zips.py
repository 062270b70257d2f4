"""A zip on the path is read again only when it has changed.

Before each task and each plan PySpark asks Python to forget what it knows of
the path (SPARK-54744, gone in Spark 4.2), and Python 3.11 then reads
the directory of pyspark.zip again: 0.2 s of CPU, each time, for nothing.
"""

import os
import zipimport
from typing import Final

_original: Final = zipimport.zipimporter.invalidate_caches
_SEEN: Final = "_dray_seen"


def keep_unchanged() -> None:
    """Let this process look whether a zip has changed before it reads it. To call it again is harmless."""
    zipimport.zipimporter.invalidate_caches = _invalidate_changed  # type: ignore[method-assign]


def _invalidate_changed(self: zipimport.zipimporter) -> None:
    try:
        found = os.stat(self.archive)
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
    except OSError:
        stamp = None
    if stamp is None or getattr(self, _SEEN, None) != stamp:
        _original(self)
        setattr(self, _SEEN, stamp)
