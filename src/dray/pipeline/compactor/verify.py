"""Does a table hold what the log holds? Both are read by Spark, and compared record by record.

The log is read as users read it, by `format("dray")`; of the table the very
files that its newest snapshot names are read. Compared is what lies in both:
behind the log start, before the table's end.
"""

import asyncio
import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from dray.errors import NotFound
from dray.machine.machine import Machine
from dray.parquet.footer import BadFile, footer_crc
from dray.pipeline.stores import open_for_tasks
from dray.tables.options import Compared, Difference, TableStatus

TOLD: Final = 20
COLUMNS: Final = ["partition", "offset", "timestamp", "key", "value", "headers", "attributes"]
SCHEMA: Final = (
    "partition int, offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, attributes int"
)
FILES_A_TASK: Final = 8
WHAT: Final = """
    case when in_log is null then 'surplus' when rows is null then 'missing'
         when rows > 1 then 'double' when in_log <> in_table then 'changed' end
"""


class FileSeen(NamedTuple):
    """A file that a table shows."""

    name: str
    footer_crc: int
    """As the machine keeps it; 0: it knows nothing of the file."""


class NoTable(NotFound):
    """The topic has no table yet."""

    advice = "compact it first: drayd admin table compact TOPIC"


def verify(
    spark: SparkSession, directory: str, address: str, files: Sequence[FileSeen], status: TableStatus
) -> Compared:
    """Compare; blocks. `files` are those that the table shows.

    Raises:
        NoTable: there is nothing to compare with.
    """
    if not status.snapshot_id:
        raise NoTable("the topic has no table yet", topic=status.topic)
    ends = {one.partition: one.table_end for one in status.partitions}
    starts = {one.partition: one.log_start for one in status.partitions}
    log = spark.read.format("dray").option("subscribe", status.topic).option("includeHeaders", "true")
    log = log.option("objects", address).option("failOnDataLoss", "false")
    from_log = _within(_hashed(log.load(directory), F.col("timestampType")), starts, ends)
    groups = [list(files[at : at + FILES_A_TASK]) for at in range(0, len(files), FILES_A_TASK)]
    numbers = spark.range(0, len(groups), 1, max(1, len(groups)))
    rows = numbers.mapInArrow(partial(read_files, address, groups), SCHEMA)
    from_table = _within(_hashed(rows, F.shiftright("attributes", 3).bitwiseAND(1)), starts, ends)
    return _compared(status.topic, from_log, from_table)


def files_seen(machines: Sequence[Machine], names: Sequence[str]) -> list[FileSeen]:
    """The files of these names with the checksums that the machines keep."""
    wanted, known = set(names), {}
    for machine in machines:
        for number, file in list(machine.objects.files.items()):
            owner = machine.objects.find(number)
            if owner is not None and owner.path() in wanted:
                known[owner.path()] = file.footer_crc
    return [FileSeen(name=name, footer_crc=known.get(name, 0)) for name in names]


def _hashed(frame: DataFrame, time_type: Column) -> DataFrame:
    """One number for all that must be the same. A record without headers has null in one, and none in the other."""
    headers = F.coalesce("headers", F.expr("array()"))
    whole = F.xxhash64("timestamp", time_type, F.col("key").isNull(), "key", F.col("value").isNull(), "value", headers)
    return frame.select("partition", "offset", whole.alias("hash"))


def _within(frame: DataFrame, starts: dict[int, int], ends: dict[int, int]) -> DataFrame:
    def of(numbers: dict[int, int]) -> Column:
        return F.create_map(*(F.lit(one) for pair in numbers.items() for one in pair))[F.col("partition")]

    return frame.where((F.col("offset") >= of(starts)) & (F.col("offset") < of(ends)))


def _compared(topic: str, from_log: DataFrame, from_table: DataFrame) -> Compared:
    """By counts and sums first, which need no exchange of rows; only where they differ record by record."""
    (records, in_log), (rows, in_table) = _sums(from_log), _sums(from_table)
    equal = records == rows and in_log == in_table
    return Compared(
        topic=topic, records=records, rows=rows, equal=equal,
        differences=[] if equal else _differences(from_log, from_table),
    )  # fmt: skip


def _sums(frame: DataFrame) -> tuple[int, int]:
    """How many, and the sum of their hashes, offsets included."""
    whole = F.xxhash64("partition", "offset", "hash").cast("decimal(20,0)")
    found = frame.agg(F.count("*").alias("count"), F.sum(whole).alias("sum")).first()
    assert found is not None, "an aggregate has one row"
    return int(found["count"]), int(found["sum"] or 0)


def _differences(from_log: DataFrame, from_table: DataFrame) -> list[Difference]:
    log = from_log.groupBy("partition", "offset").agg(F.max("hash").alias("in_log"))
    table = from_table.groupBy("partition", "offset").agg(F.count("*").alias("rows"), F.max("hash").alias("in_table"))
    both = log.join(table, ["partition", "offset"], "full_outer").withColumn("what", F.expr(WHAT))
    wrong = both.where("what is not null").orderBy("partition", "offset").limit(TOLD).collect()
    return [Difference(partition=one.partition, offset=one.offset, what=one.what) for one in wrong]


def read_files(
    address: str, groups: Sequence[Sequence[FileSeen]], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task of Spark: the rows of the table's files."""
    with asyncio.Runner() as runner:
        objects = runner.run(open_for_tasks(address))
        try:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for name, crc in groups[number]:
                        content = runner.run(objects.get(name))
                        if crc and footer_crc(content) != crc:  # PQ4: Arrow ends the process over some broken ones
                            raise BadFile("the footer does not match its checksum: the file was damaged", object=name)
                        yield from pq.ParquetFile(io.BytesIO(content)).iter_batches(columns=COLUMNS)
        finally:
            runner.run(objects.close())
