"""A Spark driver that has nothing of a broker: `-m tests.peers.cluster_job LOG OBJECTS TOPIC EVENTS [MASTER HOST]`.

It prints each record that it read, as Python writes it. What Spark's own page would show is written to the directory
EVENTS. With MASTER its executors are elsewhere, and find it at HOST.
"""

import sys

from dray.pipeline.session import build_session


def main(log: str, objects: str, topic: str, events: str, master: str = "local[2,4]", host: str = "127.0.0.1") -> None:
    config = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
        "spark.log.level": "INFO",
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.executor.memory": "512m",
    }
    spark = build_session("cluster job", master=master, config=config)
    options = {"subscribe": topic, "minPartitions": "4", "log": log, "objects": objects}
    frame = spark.read.format("dray").options(**options).load()
    for row in frame.select("partition", "offset", "key", "value").collect():
        print(repr((row.partition, row.offset, bytes(row.key), bytes(row.value))))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
