"""The kernel: the C extension where it was built, else its twin.

Both offer `scan`, `to_columns` and `write_records` with the same signatures;
`dray.records.pure` describes them.
"""

from dray.records import pure

try:
    from dray.records import _kernel as _chosen
except ImportError:
    EXTENSION_LOADED = False
    scan = pure.scan
    to_columns = pure.to_columns
else:
    EXTENSION_LOADED = True
    scan = _chosen.scan
    to_columns = _chosen.to_columns
