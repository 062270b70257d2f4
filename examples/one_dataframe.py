"""Older orders are Parquet files of a table, the newest are in the log: one DataFrame has both, each record once.

Run it with `make demo`, or `python examples/one_dataframe.py [DIR]`; DIR may
be one that the examples before it have left.
"""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.compute as pc
from first_steps import TOPIC, produce, start
from pyiceberg.catalog import load_catalog

import dray
from dray.pipeline.session import build_session

RECORDS = 3_000


def compact(directory: Path) -> None:
    """What `drayd dev` does by itself with whatever is older than a minute."""
    drayd = str(Path(sys.executable).parent / "drayd")
    subprocess.run([drayd, "admin", "table", "compact", TOPIC, "--data", str(directory)], check=True)


def rows_of_table(http: str) -> int:
    """What a reader of Iceberg tables finds: the broker itself is the catalog."""
    catalog = load_catalog("dray", type="rest", uri=f"{http}iceberg")
    return int(catalog.load_table(("topics", TOPIC)).scan().count())


def in_one_frame(directory: Path) -> tuple[int, int]:
    """All records, and how many different ones, as Spark counts them."""
    spark = build_session("one DataFrame", config={"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("ERROR")
    orders = spark.read.format("dray").option("subscribe", TOPIC).load(str(directory))
    counted, different = orders.count(), orders.select("partition", "offset").distinct().count()
    spark.stop()
    return counted, different


def main(directory: Path) -> None:
    print("1. start a broker, and take orders")
    broker, address, http = start(directory)
    produce(address, 0, RECORDS)
    print("2. turn them into files of a table, with Spark", flush=True)
    compact(directory)
    print("3. take more orders")
    produce(address, RECORDS, RECORDS)
    table = rows_of_table(http)
    print(f"4. the Iceberg table, found through the broker's HTTP port: {table:,} rows", flush=True)
    counted, different = in_one_frame(directory)
    if counted != different or counted != table + RECORDS:
        raise SystemExit(f"lost or doubled: {table:,} in the table, {RECORDS:,} behind it, {counted:,}, {different:,}")
    print(f"5. spark.read.format('dray'): {counted:,} records, files and log in one cut, each once")
    orders = dray.read(TOPIC, http)
    newest = pc.max(orders["timestamp"]).as_py()
    if orders.num_rows != counted:
        raise SystemExit(f"{orders.num_rows:,} read without Spark, {counted:,} with it")
    print(f"6. dray.read('{TOPIC}'): {orders.num_rows:,} as a pyarrow.Table without Spark, newest {newest:%H:%M:%S}")
    broker.send_signal(signal.SIGTERM)
    print(f"7. SIGTERM: exit code {broker.wait()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "dray-data")
