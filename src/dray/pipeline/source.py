"""`spark.read.format("dray")`: a topic as a DataFrame, with the columns of Spark's Kafka source.

The driver plans (`planning`), executors read objects (`reading`); neither
asks a broker for records.

Invariants
    SP2  A plan depends on the options and the schema of its frame alone: no
         filter reaches the source. Spark keeps what one scan of a relation
         pushed down for all its scans, so a source that takes filters loses
         rows (ADR-0016).
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dray.pipeline.options import ReadOptions, parse_options
from dray.pipeline.plan import Piece
from dray.pipeline.planning import plan_read
from dray.pipeline.zips import keep_unchanged

if TYPE_CHECKING:
    import pyarrow as pa

keep_unchanged()  # planners live on for the next plan; Spark forks them from a daemon of its own

# Every column is nullable, as in the Kafka source, and the Arrow batches say
# the same: newer Sparks compare the two exactly.
COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
HEADERS: Final = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


def schema_of(options: Mapping[str, str]) -> StructType:
    """The columns; a wrong option is told here, when the DataFrame is made."""
    parsed = parse_options(options)
    return StructType([*COLUMNS, HEADERS] if parsed.include_headers else [*COLUMNS])


def reader_of(options: Mapping[str, str]) -> DataSourceReader:
    """What plans and reads."""
    return TopicReader(parse_options(options))


@dataclass(frozen=True, slots=True)
class Task(InputPartition):
    """What one Spark task reads."""

    address: str
    pieces: list[Piece]


class TopicReader(DataSourceReader):
    """Plans on the driver, reads on executors; travels between them, so it holds the options and nothing else.

    It has no `pushFilters` (SP2).
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        plan = asyncio.run(plan_read(self._options))
        return [Task(plan.address, pieces) for pieces in plan.tasks]

    def read(self, partition: InputPartition | None) -> Iterator["pa.RecordBatch"]:
        from dray.pipeline.reading import read_pieces

        if not isinstance(partition, Task):
            return iter(())  # Spark runs one task without a partition where a plan has none
        return read_pieces(partition.address, partition.pieces, include_headers=self._options.include_headers)
