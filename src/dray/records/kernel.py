"""The kernel: the C extension where it was built, else its twin.

Both offer `scan`, `to_columns`, `write_records` and `plain_request` with the
same signatures; `dray.records.pure`, `pure_write` and `pure_request` describe
them.

Invariants
    B6  The kernel reads nothing outside the buffers it was given and writes
        nothing outside their room, even if its input changes under its hands.
"""

from dray.records import pure, pure_request, pure_write

try:
    from dray.records import _kernel
except ImportError:
    EXTENSION_LOADED = False
    plain_request = pure_request.plain_request
    scan = pure.scan
    to_columns = pure.to_columns
    write_records = pure_write.write_records
else:
    EXTENSION_LOADED = True
    plain_request = _kernel.plain_request
    scan = _kernel.scan
    to_columns = _kernel.to_columns
    write_records = _kernel.write_records

__all__ = ["EXTENSION_LOADED", "plain_request", "scan", "to_columns", "write_records"]
