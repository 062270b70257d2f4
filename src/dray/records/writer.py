"""Columns to uncompressed batches, as a fetch from a table file needs them.

A rebuilt batch has no codec, no producer and leader epoch 0 (E-14). A batch
ends where the limits say, where offsets do not follow each other, and, with
append time, where the timestamp changes: such a batch has one timestamp for
all of its records. Rows whose attributes differ are the caller's to keep apart.
"""

from typing import Final

from crc32c import crc32c

from dray.records import kernel
from dray.records.columns import Columns
from dray.records.errors import InvalidBatch
from dray.records.layout import APPEND_TIME_BIT, CRC_FROM, HEADER, HEADER_SIZE, LENGTH_FROM, MAGIC

DEFAULT_BATCH_BYTES: Final = 2**20
DEFAULT_BATCH_ROWS: Final = 1_000
_NO_PRODUCER: Final = (-1, -1, -1)


class BatchWriter:
    """Writes batches into one buffer, over and over: fresh pages would cost more than the copy."""

    def __init__(self, capacity_bytes: int = DEFAULT_BATCH_BYTES) -> None:
        self._buffer = bytearray(max(capacity_bytes, HEADER_SIZE))

    def write(
        self,
        columns: Columns,
        start: int,
        end: int,
        *,
        max_bytes: int = DEFAULT_BATCH_BYTES,
        max_rows: int = DEFAULT_BATCH_ROWS,
        append_time: bool = False,
        leader_epoch: int = 0,
    ) -> tuple[memoryview, int]:
        """A batch of rows from `start`, and how many rows of [start, end) it holds: at least one.

        The bytes are gone at the next call. A row larger than `max_bytes` gets a batch of its own.

        Raises:
            InvalidBatch: there are no rows, or the buffers of the columns do not hold them.
        """
        end = min(end, start + max(max_rows, 1))
        rows, size, greatest = self._write_rows(columns, start, end, max_bytes - HEADER_SIZE, append_time)
        if rows == 0:
            self._buffer = bytearray(HEADER_SIZE + size)
            rows, size, greatest = self._write_rows(columns, start, end, max_bytes - HEADER_SIZE, append_time)
        offset = _int64_at(columns.offsets, start)
        base_timestamp = _int64_at(columns.timestamps, start)
        attributes = APPEND_TIME_BIT if append_time else 0
        batch = memoryview(self._buffer)[: HEADER_SIZE + size]
        covered = (attributes, rows - 1, base_timestamp, greatest, *_NO_PRODUCER, rows)
        HEADER.pack_into(batch, 0, offset, len(batch) - LENGTH_FROM, leader_epoch, MAGIC, 0, *covered)
        batch[CRC_FROM - 4 : CRC_FROM] = crc32c(batch[CRC_FROM:]).to_bytes(4, "big")
        return batch, rows

    def _write_rows(
        self, columns: Columns, start: int, end: int, limit_bytes: int, one_time: bool
    ) -> tuple[int, int, int]:
        if start >= end:
            raise InvalidBatch("a batch needs at least one row", start=start, end=end)
        try:
            return kernel.write_records(self._buffer, HEADER_SIZE, columns, start, end, limit_bytes, one_time)
        except ValueError as error:
            raise InvalidBatch("columns do not hold their rows", row=error.args[1]) from None


def _int64_at(column: bytes | bytearray | memoryview, row: int) -> int:
    return int.from_bytes(column[8 * row : 8 * row + 8], "little", signed=True)
