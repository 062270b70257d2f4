"""A Spark driver as a process of its own: `python -m tests.pipeline.job read|hold MASTER DIRECTORY TOPIC [OBJECTS]`.

read    print what each task read: a line for each record, its columns and who read it, as Python writes them
hold    print the number of records, then wait to be ended
"""

import os
import sys

from dray.pipeline.session import build_session

QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
CLUSTER = QUICK_START | {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.cores.max": "2",
    # Tasks wait for both executors: else the first to come reads everything.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
}


def lines_of(rows):
    """In a task: what is compared, and the daemon of the executor that read it."""
    for row in rows:
        stamp_ms = int(row.timestamp.timestamp() * 1000 + 0.5)
        headers = None if row.headers is None else [(header.key, header.value) for header in row.headers]
        columns = (row.topic, row.partition, row.offset, row.key, row.value, stamp_ms, row.timestampType, headers)
        yield repr((columns, os.getppid()))


def main(mode: str, master: str, directory: str, topic: str, objects: str = "") -> None:
    spark = build_session("job", master=master, config=QUICK_START if master.startswith("local") else CLUSTER)
    options = {"subscribe": topic, "minPartitions": "8", "includeHeaders": "true"}
    options |= {"objects": objects} if objects else {}
    frame = spark.read.format("dray").options(**options).load(directory)
    if mode == "hold":
        print(frame.count(), flush=True)
        sys.stdin.read()
        return
    print("\n".join(frame.rdd.mapPartitions(lines_of).collect()))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
