"""A Spark driver as a process of its own: `python -m tests.pipeline.job read|hold MASTER DIRECTORY TOPIC`.

read    print what each task read: a line `partition offset key value worker` for each record, in hex
hold    print the number of records, then wait to be ended
"""

import os
import sys

from dray.pipeline.session import build_session

CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
}


def rows_of(batches):
    """In a task: the columns that are compared, and which process read them."""
    import pyarrow as pa

    for batch in batches:
        columns = [batch.column(name) for name in ("partition", "offset", "key", "value")]
        worker = pa.array([os.getppid()] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([*columns, worker], ["partition", "offset", "key", "value", "worker"])


def main(mode: str, master: str, directory: str, topic: str) -> None:
    spark = build_session("job", master=master, config={} if master.startswith("local") else CLUSTER)
    frame = spark.read.format("dray").options(subscribe=topic, minPartitions="8").load(directory)
    if mode == "hold":
        print(frame.count(), flush=True)
        sys.stdin.read()
        return
    schema = "partition int, offset long, key binary, value binary, worker long"
    for row in frame.mapInArrow(rows_of, schema).collect():
        print(row.partition, row.offset, bytes(row.key).hex(), bytes(row.value).hex(), row.worker)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
