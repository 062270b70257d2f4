"""Kafka record batches, format 2.

    one_batch, view_at, batches     look at batches in received bytes, without a copy
    inspect, check_records          validate a produced batch: on the loop, then off it if `is_compressed`
    plain_request, takes            all batches of a plain Produce request, read and scanned in one call
    append_time_parts               a batch with the broker's time (LogAppendTime)
    build_batch                     records to a batch
    records_of, first_at_or_after   a batch to records; the lookup by time

A refused batch is an `InvalidBatch` whose class says why. Columns for tables
are in `dray.records.arrow`, which alone needs pyarrow.
"""

from dray.records.build import NewRecord, build_batch
from dray.records.codecs import DEFAULT_CAP_BYTES, ScratchPool
from dray.records.errors import InvalidBatch
from dray.records.kernel import EXTENSION_LOADED, plain_request
from dray.records.layout import HEADER_SIZE, MAX_TIMESTAMP, NO_TIMESTAMP, Codec
from dray.records.read import Record, first_at_or_after, newest, records_of
from dray.records.validate import BatchRules, Validated, check_records, inspect, takes
from dray.records.view import BatchView, append_time_parts, batches, one_batch, view_at

__all__ = [
    "DEFAULT_CAP_BYTES",
    "EXTENSION_LOADED",
    "HEADER_SIZE",
    "MAX_TIMESTAMP",
    "NO_TIMESTAMP",
    "BatchRules",
    "BatchView",
    "Codec",
    "InvalidBatch",
    "NewRecord",
    "Record",
    "ScratchPool",
    "Validated",
    "append_time_parts",
    "batches",
    "build_batch",
    "check_records",
    "first_at_or_after",
    "inspect",
    "newest",
    "one_batch",
    "plain_request",
    "records_of",
    "takes",
    "view_at",
]
