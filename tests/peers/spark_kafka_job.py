"""A Spark driver with Spark's own Kafka source and sink: `python -m tests.peers.spark_kafka_job JARS`.

A line of JSON with a step comes in, a line of JSON with what it gave goes out. It is a process of its own because jars
are given to a JVM when it starts.
"""

import json
import sys

from pyspark.sql import SparkSession

from dray.pipeline.session import build_session

COLUMNS = ("key", "value", "topic", "partition", "offset")


def read(spark: SparkSession, step: dict) -> list[list[object]]:
    """Rows of a batch; the frame is read whole, filtered, and whole again."""
    frame = spark.read.format("kafka").options(**step["options"]).load()
    first, some, again = frame.count(), frame.where("partition = 0").count(), frame.count()
    assert first == again, (first, some, again)
    return [list(row) for row in frame.selectExpr(*(as_text(name) for name in COLUMNS)).collect()]


def write(spark: SparkSession, step: dict) -> int:
    rows = [(key, value, partition) for key, value, partition in step["rows"]]
    frame = spark.createDataFrame(rows, "key string, value string, partition int")
    frame.write.format("kafka").options(**step["options"]).save()
    return len(rows)


def stream(spark: SparkSession, step: dict) -> list[dict]:
    """Copy what is there from one topic to another; what each batch says of its progress."""
    source = spark.readStream.format("kafka").options(**step["source"]).load()
    writer = source.select("key", "value", "headers").writeStream.format("kafka").options(**step["sink"])
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(300)
    return [{"rows": one["numInputRows"]} for one in query.recentProgress]


def as_text(name: str) -> str:
    return f"CAST({name} AS STRING) AS {name}" if name in ("key", "value") else name


def main(jars: str) -> None:
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.shuffle.partitions": "2"}
    spark = build_session("peers", master="local[2,4]", config=quick | {"spark.jars": jars})
    spark.sparkContext.setLogLevel("ERROR")
    steps = {"read": read, "write": write, "stream": stream}
    for line in sys.stdin:
        step = json.loads(line)
        print(json.dumps(steps[step["step"]](spark, step)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
