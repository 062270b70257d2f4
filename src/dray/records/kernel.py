"""The kernel: the C extension where it was built, else its twin.

Both offer `scan`, `to_columns` and `write_records` with the same signatures;
`dray.records.pure` and `pure_write` describe them.

Invariants
    B6  The kernel reads nothing outside the buffers it was given and writes
        nothing outside their room, even if its input changes under its hands.
"""

from dray.records import pure, pure_write

try:
    from dray.records import _kernel
except ImportError:
    EXTENSION_LOADED = False
    scan = pure.scan
    to_columns = pure.to_columns
    write_records = pure_write.write_records
else:
    EXTENSION_LOADED = True
    scan = _kernel.scan
    to_columns = _kernel.to_columns
    write_records = _kernel.write_records

__all__ = ["EXTENSION_LOADED", "scan", "to_columns", "write_records"]
