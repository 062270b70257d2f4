"""A topic is asked in SQL while records still come in: Spark reads its objects, no broker in between.

Run it with `make demo`, or `python examples/orders_in_sql.py [DIR]`; DIR may
be one that `examples/first_steps.py` has left. No Java is needed on the
machine: the `spark` extra brings one.
"""

import itertools
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from first_steps import TOPIC, start

from dray.pipeline.java import find_java_home
from dray.pipeline.session import build_session

RECORDS = 5_000


class Shop(threading.Thread):
    """Takes orders until it is told to stop."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.acknowledged = 0
        self._closing = threading.Event()
        self._numbers = itertools.count()
        settings = {"enable.idempotence": True, "linger.ms": 5, "log.connection.close": False}
        self._producer = Producer({"bootstrap.servers": address, **settings})

    def order(self, count: int) -> None:
        for number in itertools.islice(self._numbers, count):
            key, value = f"customer-{number % 7}", f"order {number}"
            self._producer.produce(TOPIC, key=key, value=value, on_delivery=self._delivered)
        self._producer.flush(30)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        self.acknowledged += error is None

    def run(self) -> None:
        while not self._closing.wait(0.02):
            self.order(50)

    def close(self) -> None:
        """Take no more orders, and let go of the broker before it stops."""
        self._closing.set()
        self.join()
        self._producer.close()


def held(address: str) -> int:
    """How many records the topic holds."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "demo"})
    first, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    consumer.close()
    return end - first


def ask(directory: Path, shop: Shop, before: int) -> int:
    """Count, group, and count again; returns how many there are when the shop has closed."""
    spark = build_session("orders in SQL", config={"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("ERROR")
    look = f"CREATE OR REPLACE TEMPORARY VIEW orders USING dray OPTIONS (path '{directory}', subscribe '{TOPIC}')"
    print("3. count, while orders come in")
    for _ in range(3):
        known = before + shop.acknowledged
        spark.sql(look)  # one look is one cut of the log
        (found,) = spark.sql("SELECT count(*) AS n, count(DISTINCT partition, offset) AS once FROM orders").collect()
        if not known <= found.n == found.once:
            raise SystemExit(f"lost or doubled: {known:,} were acknowledged, {found}")
        print(f"  {known:,} were acknowledged before the question; {found.n:,} are counted, each once", flush=True)
    print("4. group them")
    spark.sql(
        "SELECT CAST(key AS STRING) AS customer, count(*) AS orders, date_format(max(timestamp), 'HH:mm:ss') AS newest"
        " FROM orders GROUP BY key ORDER BY customer"
    ).show()
    shop.close()
    spark.sql(look)
    (found,) = spark.sql("SELECT count(*) AS n FROM orders").collect()
    spark.stop()
    return int(found.n)


def main(directory: Path) -> None:
    print("1. start a broker, and orders that keep coming in")
    broker, address, _ = start(directory)
    shop = Shop(address)
    shop.order(RECORDS)
    before = held(address) - shop.acknowledged
    shop.start()
    print("2. start Spark: a JVM, and Python beside it; this takes some ten seconds")
    print(f"  its Java is {find_java_home(os.environ) or 'the one of PATH'}", flush=True)  # noqa: TID251
    began = time.perf_counter()
    try:
        counted = ask(directory, shop, before)
    finally:
        shop.close()
    if counted != before + shop.acknowledged:
        raise SystemExit(f"{before + shop.acknowledged:,} were acknowledged, {counted:,} counted")
    print(f"5. the shop closed: {counted:,} acknowledged, {counted:,} counted, {time.perf_counter() - began:.0f} s")
    broker.send_signal(signal.SIGTERM)
    print(f"6. SIGTERM: exit code {broker.wait()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "dray-data")
