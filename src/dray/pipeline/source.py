"""`spark.read.format("dray")`: a topic as a DataFrame, with the columns of Spark's Kafka source.

The driver plans (`planning`), or asks a broker to (`remote`); executors read
objects (`reading`). Nobody asks a broker for records.

Invariants
    SP2  A plan depends on the options and the schema of its frame alone: no
         filter reaches the source. Spark keeps what one scan of a relation
         pushed down for all its scans, so a source that takes filters loses
         rows (ADR-0016).
"""

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

from dray.pipeline.errors import BadOption
from dray.pipeline.options import ReadOptions, is_table, pack_options, parse_options, unpack_options
from dray.pipeline.plan import Piece
from dray.pipeline.remote import plan_for
from dray.pipeline.zips import keep_unchanged

if TYPE_CHECKING:
    import pyarrow as pa

keep_unchanged()  # planners live on for the next plan; Spark forks them from a daemon of its own

CARRIED: Final = "dray.options"

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
    """The columns; a wrong option is told here, when the DataFrame is made.

    Spark gives the options of a table to its source when it is made, and never again; but it keeps the schema. So the
    first column of a table carries them (ADR-0017).
    """
    parsed = parse_options(options)
    first, *others = [*COLUMNS, HEADERS] if parsed.include_headers else [*COLUMNS]
    if is_table(options):
        first = StructField(first.name, first.dataType, metadata={CARRIED: pack_options(options)})
    return StructType([first, *others])


def reader_of(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """What plans a read of these columns, and reads them."""
    found = dict(options) or _carried(schema)
    return TopicReader(parse_options(found), columns_of(schema), tuple(schema.fieldNames()))


def _carried(schema: StructType) -> dict[str, str]:
    """The options of a table; where others are given, what a schema carries was meant for another read."""
    for field in schema.fields:
        if CARRIED in field.metadata:
            return unpack_options(field.metadata[CARRIED])
    raise BadOption(
        "there are no options: Spark keeps those of a table only if it is made without a list of columns; for some "
        "columns use CREATE TEMPORARY VIEW name (column type, ..) USING dray OPTIONS (..)"
    )


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a user's schema names, in its order. The schema decides, whatever `includeHeaders` says.

    Raises:
        BadOption: a column is not there, or is of another type.
    """
    known = {field.name.lower(): field for field in (*COLUMNS, HEADERS)}  # in SQL a name has no case
    names = []
    for field in schema.fields:
        column = known.get(field.name.lower())
        if column is None:
            raise BadOption("no such column", column=field.name, known=", ".join(one.name for one in known.values()))
        if field.dataType != column.dataType:
            raise BadOption(
                "a column of the source has its own type: name that one, and cast in the query", column=field.name,
                type=column.dataType.simpleString(), given=field.dataType.simpleString(),
            )  # fmt: skip
        names.append(column.name)
    if not names or len(set(names)) < len(names):
        raise BadOption("a schema names each of its columns once, and one at least", given=", ".join(names))
    return tuple(names)


@dataclass(frozen=True, slots=True)
class PlannedTask(InputPartition):
    """What one Spark task reads."""

    address: str
    pieces: list[Piece]


class TopicReader(DataSourceReader):
    """Plans on the driver, reads on executors; travels between them, so it holds what was asked for and nothing else.

    It has no `pushFilters` (SP2).
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], names: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._names = names
        """The columns as the schema spells them: Spark looks for them by these."""

    def partitions(self) -> list[InputPartition]:
        plan = plan_for(self._options)
        return [PlannedTask(plan.address, pieces) for pieces in plan.tasks]

    def read(self, partition: InputPartition | None) -> Iterator["pa.RecordBatch"]:
        from dray.pipeline.reading import read_pieces

        if not isinstance(partition, PlannedTask):
            return iter(())  # Spark runs one task without a partition where a plan has none
        found = read_pieces(partition.address, partition.pieces, self._columns)
        return (batch.rename_columns(self._names) for batch in found)
