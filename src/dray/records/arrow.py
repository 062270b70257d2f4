"""Batches to Arrow and back: the only module here that needs pyarrow.

pyarrow wraps the kernel's buffers and copies nothing. The columns are

    offset int64 | timestamp int64 | key binary? | value binary? | headers list<struct<key string, value binary?>>

Timestamps are milliseconds as stored, -1 for none; a caller that wants a
timestamp type casts (`view("timestamp[ms]")` is free). A column becomes its
large_ variant when 32-bit offsets cannot hold its bytes.
"""

from collections.abc import Iterable

import pyarrow as pa

from dray.buffers import Buffer
from dray.errors import Invalid
from dray.records import kernel
from dray.records.codecs import DEFAULT_CAP_BYTES, expand
from dray.records.columns import NARROW_LIMIT, Binary, Columns, Lists, Part, columns_of
from dray.records.validate import refusal
from dray.records.view import BatchView


def to_arrow(
    batches: Iterable[tuple[BatchView, int]],
    *,
    cap_bytes: int = DEFAULT_CAP_BYTES,
    narrow_limit: int = NARROW_LIMIT,
) -> pa.RecordBatch:
    """The records of many batches, each with the base offset it was given.

    Give it many at a time: wrapping the buffers costs as much for one as for a thousand.

    Raises:
        InvalidBatch: one of them cannot be read; `facts` has its index as `batch`.
    """
    return parts_to_arrow([part_of(batch, base_offset, cap_bytes) for batch, base_offset in batches], narrow_limit)


def parts_to_arrow(parts: list[Part], narrow_limit: int = NARROW_LIMIT) -> pa.RecordBatch:
    """The same for batches that `part_of` has decompressed: for a caller that bounds their bytes.

    Raises:
        InvalidBatch: one of them cannot be read; `facts` has its index as `batch`.
    """
    try:
        columns = columns_of(kernel.to_columns(parts, narrow_limit))
    except ValueError as error:
        fault, position, record, part = error.args
        refused = refusal(fault, position, record)
        refused.facts["batch"] = part
        raise refused from None
    return wrap(columns)


def part_of(batch: BatchView, base_offset: int, cap_bytes: int = DEFAULT_CAP_BYTES) -> Part:
    """A batch as the kernel takes it, decompressed if need be.

    Raises:
        InvalidBatch: it cannot be decompressed within the cap.
    """
    timestamp = batch.max_timestamp if batch.has_append_time else batch.base_timestamp
    records = expand(batch.codec, batch.records, cap_bytes)
    return records, batch.record_count, base_offset, timestamp, batch.has_append_time


def wrap(columns: Columns) -> pa.RecordBatch:
    """Arrow around the kernel's buffers."""
    headers = len(columns.header_key.offsets) // (8 if columns.header_key.wide else 4) - 1
    keys = _binary(columns.header_key, headers, pa.large_string() if columns.header_key.wide else pa.string())
    values = _binary(columns.header_value, headers, _binary_type(columns.header_value))
    entry = pa.struct([pa.field("key", keys.type, nullable=False), pa.field("value", values.type)])
    entries = pa.Array.from_buffers(entry, headers, [None], children=[keys, values])
    item = pa.field("element", entry, nullable=False)
    list_type = pa.large_list(item) if columns.header_lists.wide else pa.list_(item)
    list_buffers = [None, pa.py_buffer(columns.header_lists.offsets)]
    arrays = [
        pa.Array.from_buffers(pa.int64(), columns.rows, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(pa.int64(), columns.rows, [None, pa.py_buffer(columns.timestamps)]),
        _binary(columns.key, columns.rows, _binary_type(columns.key)),
        _binary(columns.value, columns.rows, _binary_type(columns.value)),
        pa.Array.from_buffers(list_type, columns.rows, list_buffers, null_count=0, children=[entries]),
    ]
    nullable = {"key", "value"}
    names = ("offset", "timestamp", "key", "value", "headers")
    fields = [pa.field(name, array.type, name in nullable) for name, array in zip(names, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def unwrap(batch: pa.RecordBatch) -> Columns:
    """The buffers behind a record batch, slices included, for `BatchWriter`. Nothing is copied.

    Raises:
        Invalid: a column is missing or has another type.
    """
    missing = {"offset", "timestamp", "key", "value", "headers"} - set(batch.schema.names)
    if missing:
        raise Invalid("columns are missing", missing=",".join(sorted(missing)))
    headers = batch.column("headers")
    if not (pa.types.is_list(headers.type) or pa.types.is_large_list(headers.type)):
        raise Invalid("headers must be a list of structs", type=headers.type)
    entries = headers.values
    if not pa.types.is_struct(entries.type) or {"key", "value"} - {field.name for field in entries.type}:
        raise Invalid("headers must be a list of structs of key and value", type=headers.type)
    if entries.null_count:
        raise Invalid("a header is null", nulls=entries.null_count)
    wide = pa.types.is_large_list(headers.type)
    return Columns(
        batch.num_rows,
        _numbers(batch.column("offset"), "offset"),
        _numbers(batch.column("timestamp"), "timestamp"),
        _contents(batch.column("key"), "key"),
        _contents(batch.column("value"), "value"),
        Lists(_bitmap(headers), _ranges(headers, wide), wide, headers.offset),
        _contents(entries.field("key"), "headers.key"),
        _contents(entries.field("value"), "headers.value"),
    )


def _binary_type(column: Binary) -> pa.DataType:
    return pa.large_binary() if column.wide else pa.binary()


def _binary(column: Binary, rows: int, kind: pa.DataType) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.content)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.nulls)


def _numbers(array: pa.Array, name: str) -> Buffer:
    if array.type not in (pa.int64(), pa.timestamp("ms"), pa.timestamp("ms", "UTC")):
        raise Invalid("column must hold int64, timestamps milliseconds: cast it first", column=name, type=array.type)
    if array.null_count:
        raise Invalid("column must not hold nulls", column=name, nulls=array.null_count)
    return memoryview(array.buffers()[1] or b"")[8 * array.offset : 8 * (array.offset + len(array))]


def _contents(array: pa.Array, name: str) -> Binary:
    wide = array.type in (pa.large_binary(), pa.large_string())
    if not wide and array.type not in (pa.binary(), pa.string()):
        raise Invalid("column must hold binary or string: cast it first", column=name, type=array.type)
    content = memoryview(array.buffers()[2] or b"")
    return Binary(_bitmap(array), _ranges(array, wide), content, array.null_count, wide, array.offset)


def _bitmap(array: pa.Array) -> Buffer | None:
    bitmap = array.buffers()[0]
    return None if bitmap is None or array.null_count == 0 else memoryview(bitmap)


def _ranges(array: pa.Array, wide: bool) -> Buffer:
    width = 8 if wide else 4
    offsets = array.buffers()[1]
    if offsets is None or offsets.size == 0:  # an empty array need not have any
        return bytes(width)
    return memoryview(offsets)[width * array.offset : width * (array.offset + len(array) + 1)]
