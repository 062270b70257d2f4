"""One process that decodes every WAL object of a directory into Arrow, without Spark and without an index.

    python -m bench._decodeload OBJECTS     a line of JSON for each line on stdin

The frugal way to do what the Spark source does: an object is read once and
whole, its CRC covers all batches, the kernel makes the columns.
"""

import json
import resource
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from dray.records import one_batch
from dray.records.arrow import to_arrow
from dray.wal import codec


def decode_all(root: Path) -> dict[str, float]:
    before, began = _spent(), time.perf_counter()
    records = size = 0
    for path in sorted(root.rglob("*.wo")):
        rows = _decode(path)
        records += rows.num_rows
        size += pc.sum(pc.binary_length(rows.column("value"))).as_py() or 0
    return {"seconds": time.perf_counter() - began, "python_s": _spent() - before, "records": records, "bytes": size}


def _decode(path: Path) -> pa.RecordBatch:
    whole = codec.decode(path.read_bytes())
    return to_arrow([(one_batch(data), 0) for chunk in whole.chunks for _, data in whole.batches(chunk)])


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    for _ in sys.stdin:
        print(json.dumps(decode_all(Path(sys.argv[1]))), flush=True)
