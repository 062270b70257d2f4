"""Rows to a Parquet file, and what the table and the index must know of it.

Rows come in the order of their offsets, as `dray.records.arrow` makes them.
They are gathered until a row group is worth its place: consumers read whole
groups, so a group is small, 8 MiB of rows. What is told of the file comes from
the writer itself; nothing is read again.

Where the bytes go is the caller's: a file is written once, forward.

Invariants
    PQ2  A file holds rows of one partition, offsets rising; what `FileFacts`
         says of offsets, times and rows is exact.
"""

import io
import struct
from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dray.errors import Invalid
from dray.parquet.footer import footer_crc
from dray.parquet.schema import ALWAYS_NULL, APPEND_TIME, HEADERS, SCHEMA

GROUP_BYTES: Final = 8 << 20
"""Of rows in one group, before compression."""
MOST_GROUP_BYTES: Final = 10 << 20
"""Rows come some megabytes at a time: a group is ended early rather than let them make it larger than this."""
TAIL_BYTES: Final = 4 << 20
"""Of a file's end that are remembered: no footer is so long."""
ZSTD_LEVEL: Final = 1
_DICTIONARIES: Final = ["partition", "key", "headers.list.element.key", "headers.list.element.value", "attributes"]
_ENCODINGS: Final = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
_WITH_STATISTICS: Final = ["partition", "offset", "timestamp", "key", *ALWAYS_NULL, "attributes"]
"""Not values: their least and greatest would be most of the footer, and nobody looks for them."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a written file (PQ2). It travels from a task to the driver as JSON."""

    partition: int
    rows: int
    start: int
    """The first offset."""
    end: int
    """Behind the last offset."""
    min_timestamp_ms: int
    max_timestamp_ms: int
    size: int
    footer_crc: int
    """Of what ends the file: a reader looks at nothing that does not match it."""


class ParquetFile:
    """One file that is being written into `sink`."""

    def __init__(self, sink: io.IOBase, partition: int) -> None:
        self._sink = _Remembering(sink)
        self._partition = partition
        self._writer = pq.ParquetWriter(
            self._sink, SCHEMA, compression="zstd", compression_level=ZSTD_LEVEL, version="2.6",
            use_dictionary=_DICTIONARIES,
            column_encoding=_ENCODINGS, write_statistics=_WITH_STATISTICS, write_page_index=True,
            write_page_checksum=True, store_schema=False,
            sorting_columns=[pq.SortingColumn(SCHEMA.get_field_index("offset"))],
        )  # fmt: skip
        self._waiting: list[pa.RecordBatch] = []
        self._held = 0
        self._rows = 0
        self._start = self._end = 0
        self._times = (0, 0)

    def write(self, found: pa.RecordBatch, *, append_time: bool) -> None:
        """Add rows whose offsets are behind all before; `append_time`: the log gave them their time.

        Raises:
            Invalid: they are not behind those before.
        """
        self._add(found, _repeated(APPEND_TIME if append_time else 0, found.num_rows))

    def copy(self, found: pa.RecordBatch) -> None:
        """Add rows of another file, as `dray.parquet.read` gives them: with their `attributes`.

        Raises:
            Invalid: they are not behind those before.
        """
        self._add(found, found.column("attributes"))

    def _add(self, found: pa.RecordBatch, attributes: pa.Array) -> None:
        if not found.num_rows:
            return
        self._count(found)
        batch = _in_columns(found, self._partition, attributes)
        most = max(1, batch.num_rows * GROUP_BYTES // max(1, batch.nbytes))
        for at in range(0, batch.num_rows, most):
            part = batch.slice(at, most)
            if self._held + part.nbytes > MOST_GROUP_BYTES:
                self._end_group()
            self._waiting.append(part)
            self._held += part.nbytes
            if self._held >= GROUP_BYTES:
                self._end_group()

    def finish(self) -> FileFacts:
        """Write the rest and the footer, and tell what was written; the sink is left open.

        Raises:
            Invalid: there were no rows.
        """
        self._end_group()
        self.close()
        if not self._rows:
            raise Invalid("a file without rows is none", partition=self._partition)
        least, most = self._times
        return FileFacts(
            partition=self._partition, rows=self._rows, start=self._start, end=self._end, min_timestamp_ms=least,
            max_timestamp_ms=most, size=self._sink.tell(), footer_crc=footer_crc(self._sink.tail()),
        )  # fmt: skip

    def close(self) -> None:
        """End it, whole or not: whoever does not come to `finish` does this while the sink is open."""
        self._writer.close()

    def _count(self, found: pa.RecordBatch) -> None:
        offsets, times = found.column("offset"), found.column("timestamp")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if self._rows and first < self._end:
            raise Invalid("rows come in the order of their offsets", offset=first, behind=self._end)  # PQ2
        bounds = pc.min_max(times)
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        if self._rows:
            least, most = min(least, self._times[0]), max(most, self._times[1])
        else:
            self._start = first
        self._times = least, most
        self._end = last + 1
        self._rows += found.num_rows

    def _end_group(self) -> None:
        waiting, self._waiting, self._held = self._waiting, [], 0
        if waiting:
            table = pa.Table.from_batches(waiting, schema=SCHEMA)
            self._writer.write_table(table, row_group_size=table.num_rows)


class _Remembering:
    """A sink that can tell the last bytes that went into it: the footer is written in several parts."""

    def __init__(self, sink: io.IOBase) -> None:
        self._sink = sink
        self._last: deque[bytes] = deque()
        self._held = 0

    @property
    def closed(self) -> bool:
        return self._sink.closed

    def write(self, part: bytes) -> int:
        self._last.append(part[-TAIL_BYTES:])
        self._held += len(self._last[-1])
        while self._held - len(self._last[0]) >= TAIL_BYTES:
            self._held -= len(self._last.popleft())
        return self._sink.write(part)  # type: ignore[no-any-return]  # `IOBase` does not say that it writes

    def tell(self) -> int:
        return self._sink.tell()

    def flush(self) -> None:
        self._sink.flush()

    def tail(self) -> bytes:
        return b"".join(self._last)


def _in_columns(found: pa.RecordBatch, partition: int, attributes: pa.Array) -> pa.RecordBatch:
    """The rows as the file has them."""
    rows = found.num_rows
    columns: Mapping[str, pa.Array] = {
        "partition": _repeated(partition, rows),
        "offset": found.column("offset"),
        "timestamp": _microseconds(found.column("timestamp")),
        "key": found.column("key").cast(pa.binary()),
        "value": found.column("value").cast(pa.binary()),
        "headers": found.column("headers").cast(HEADERS),
        "attributes": attributes,
    }
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)  # PQ1
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _microseconds(milliseconds: pa.Array) -> pa.Array:
    thousand = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("=q", 1000))])[0]
    return pc.multiply_checked(milliseconds, thousand).view(pa.timestamp("us", tz="UTC"))


def _repeated(number: int, rows: int) -> pa.Array:
    # From bytes: Arrow loads pandas before it takes a number from Python, half a second for each new worker.
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(struct.pack("=i", number) * rows)])
