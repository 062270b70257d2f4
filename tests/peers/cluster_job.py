"""A Spark driver on a machine that has nothing of a broker: `-m tests.peers.cluster_job LOG OBJECTS TOPIC EVENTS`.

It prints each record that it read, as Python writes it. What Spark's own page would show is written to the directory
EVENTS.
"""

import sys

from dray.pipeline.session import build_session


def main(log: str, objects: str, topic: str, events: str) -> None:
    config = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
        "spark.log.level": "INFO",
    }
    spark = build_session("cluster job", master="local[2,4]", config=config)
    options = {"subscribe": topic, "minPartitions": "4", "log": log, "objects": objects}
    frame = spark.read.format("dray").options(**options).load()
    for row in frame.select("partition", "offset", "key", "value").collect():
        print(repr((row.partition, row.offset, bytes(row.key), bytes(row.value))))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
