"""What `format("dray")` cannot do today, and what does it instead.

Without these Spark says NOT_IMPLEMENTED for a write, and for a stream that a
local variable has no value.
"""

from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from dray.pipeline.errors import NotYet


class NoStream(DataSourceStreamReader):
    """Says so when the stream starts: before that Spark does not tell a stream from a batch."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        raise batch_only()

    def latestOffset(self) -> NoReturn:  # noqa: N802 - the first that Spark 4.1 calls
        raise batch_only()

    def read(self, partition: InputPartition) -> NoReturn:
        raise batch_only()


def batch_only() -> NotYet:
    return NotYet(
        "format dray reads batches only today: use spark.read. For a stream of the same topics use Spark's own "
        "Kafka source on a broker: spark.readStream.format('kafka')"
    )


def read_only() -> NotYet:
    return NotYet(
        "format dray reads only today. To write to the same topics use Spark's own Kafka sink on a broker: "
        "write.format('kafka')"
    )
