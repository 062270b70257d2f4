"""A Spark driver with Apache Iceberg's jar: asks a catalog, and tells what it found as JSON.

python -m tests.peers.iceberg_job JAR URI
"""

import json
import sys

from pyspark.errors import PySparkException

from dray.pipeline.session import build_session

ROWS = "SELECT partition, offset, hex(key) AS key, hex(value) AS value FROM dray.topics.`orders.eu`"
FILES = "SELECT DISTINCT input_file_name() AS file FROM dray.topics.`orders.eu` WHERE {}"


def refused(spark, statement: str) -> bool:
    try:
        spark.sql(statement)
    except Exception as error:  # Java's own come without a class of Python's
        return isinstance(error, PySparkException) or "UnsupportedOperation" in str(error)
    return False


def main(jar: str, uri: str) -> None:
    catalog = {
        "spark.jars": jar, "spark.sql.catalog.dray": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.dray.type": "rest", "spark.sql.catalog.dray.uri": uri,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.shuffle.partitions": "2",
    }  # fmt: skip
    spark = build_session("peers", master="local[2,4]", config=catalog)
    spark.sparkContext.setLogLevel("ERROR")
    answer = {
        "tables": [row.tableName for row in spark.sql("SHOW TABLES IN dray.topics").collect()],
        "rows": [list(row) for row in spark.sql(ROWS).collect()],
        "all_files": spark.sql(FILES.format("true")).count(),
        "some_files": spark.sql(FILES.format("partition = 1 AND offset BETWEEN 60 AND 70")).count(),
        "refused": [
            refused(spark, "DELETE FROM dray.topics.`orders.eu` WHERE partition = 0"),
            refused(spark, "DROP TABLE dray.topics.`orders.eu`"),
            refused(spark, "CREATE TABLE dray.topics.mine (x int) USING iceberg"),
        ],
    }
    print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
