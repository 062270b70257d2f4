"""The columns of a Parquet file, and with them those of every table.

    1 partition int | 2 offset long | 3 timestamp timestamptz | 4 key binary? | 5 value binary?
    6 headers list<12 struct<13 key string, 14 value binary?>>
    7 producer_id long? | 8 producer_epoch int? | 9 base_sequence int? | 10 attributes int | 11 record_crc int?

Ids are Iceberg's: they say which column is which, whatever it is called later,
so they stand on every node, list elements too. Timestamps are microseconds; a
record without one has -1 ms, as in Kafka. `attributes` holds the bits of the
batch that a reader must see again: whether its time is the log's. Producer and
CRC columns are always null: a rebuilt batch has no producer (ADR-0077).

Invariants
    PQ1  Headers are a list, in order, doubles kept; null and empty are told
         apart in keys, values and values of headers.
"""

from typing import Final

import pyarrow as pa

APPEND_TIME: Final = 8
"""The bit of `attributes` for a time that the log gave; the place it has in a batch."""

_ID: Final = b"PARQUET:field_id"


def _field(number: int, name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={_ID: str(number).encode()})


HEADERS: Final = pa.list_(
    _field(
        12,
        "element",
        pa.struct([_field(13, "key", pa.string()), _field(14, "value", pa.binary(), nullable=True)]),
    )
)
SCHEMA: Final = pa.schema(
    [
        _field(1, "partition", pa.int32()),
        _field(2, "offset", pa.int64()),
        _field(3, "timestamp", pa.timestamp("us", tz="UTC")),
        _field(4, "key", pa.binary(), nullable=True),
        _field(5, "value", pa.binary(), nullable=True),
        _field(6, "headers", HEADERS),
        _field(7, "producer_id", pa.int64(), nullable=True),
        _field(8, "producer_epoch", pa.int32(), nullable=True),
        _field(9, "base_sequence", pa.int32(), nullable=True),
        _field(10, "attributes", pa.int32()),
        _field(11, "record_crc", pa.int32(), nullable=True),
    ]
)
ALWAYS_NULL: Final = ("producer_id", "producer_epoch", "base_sequence", "record_crc")
