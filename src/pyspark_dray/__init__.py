"""What Spark finds by name: `spark.read.format("dray")`, without a jar and without a register call.

Spark imports every top-level module called `pyspark_*` when a source is first
asked for, and one that fails to import breaks all the others. So nothing of
Dray is imported here before somebody uses it.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """A topic as a DataFrame; see `dray.pipeline.source`."""

    @classmethod
    def name(cls) -> str:
        return "dray"

    def schema(self) -> "StructType":
        from dray.pipeline.source import schema_of

        return schema_of(self.options)

    def reader(self, schema: "StructType") -> DataSourceReader:
        from dray.pipeline.source import reader_of

        return reader_of(self.options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from dray.pipeline.refusals import NoStream

        return NoStream()

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from dray.pipeline.refusals import read_only

        raise read_only()

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from dray.pipeline.refusals import read_only

        raise read_only()
