"""A topic is asked in SQL while records still come in: Spark reads its objects, no broker in between.

Run it with `make demo`, or `python examples/orders_in_sql.py [DIR]`.
"""

import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from confluent_kafka import Producer

from dray.pipeline.session import build_session

RECORDS = 20_000
TOPIC = "orders"


def start(directory: Path) -> tuple[subprocess.Popen[str], str]:
    """A broker on a free port; returns it and where Kafka clients connect."""
    command = [str(Path(sys.executable).parent / "drayd"), "dev", "--data", str(directory)]
    command += ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--set", "logging.level=warning"]
    command += ["--set", "topics.partitions=4"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = broker.stdout.readline() if broker.stdout else ""
    if not line.startswith("ready "):
        raise SystemExit(f"the broker did not start: exit code {broker.wait()}")
    return broker, line.split()[1].removeprefix("kafka=")


def produce(address: str, first: int, count: int) -> None:
    """Send orders and wait until each is acknowledged."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "compression.type": "zstd"})
    for number in range(first, first + count):
        producer.produce(TOPIC, key=f"customer-{number % 5}", value=str(number % 100))
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("not every record was acknowledged")


def keep_producing(address: str, stop: threading.Event) -> None:
    first = RECORDS
    while not stop.is_set():
        produce(address, first, 500)
        first += 500


def main(directory: Path) -> None:
    print("1. start a broker, produce, kill -9, start again")
    broker, address = start(directory)
    produce(address, 0, RECORDS)
    broker.send_signal(signal.SIGKILL)
    broker.wait()
    broker, address = start(directory)
    print(f"  {RECORDS:,} records were acknowledged before the kill")
    print("2. go on producing while Spark reads")
    stop = threading.Event()
    writer = threading.Thread(target=keep_producing, args=(address, stop))
    writer.start()
    try:
        spark = build_session("orders in SQL")
        first = "{" + ",".join(f'"{partition}":-2' for partition in range(4)) + "}"
        orders = (
            spark.read.format("dray").option("subscribe", TOPIC).option("startingOffsets", f'{{"{TOPIC}":{first}}}')
        )
        orders.load(str(directory)).createOrReplaceTempView("orders")
        (found,) = spark.sql("SELECT count(*) AS n, count(DISTINCT partition, offset) AS once FROM orders").collect()
        if found.n < RECORDS or found.n != found.once:
            raise SystemExit(f"lost or doubled: {found}")
        print(f"  at least {RECORDS:,} records are there, each once")
        print("3. ask")
        spark.sql(
            "SELECT CAST(key AS STRING) AS customer, count(*) AS orders, "
            "sum(CAST(CAST(value AS STRING) AS INT)) AS sum "
            "FROM orders WHERE offset < 1000 GROUP BY key ORDER BY customer"
        ).show()
        spark.stop()
    finally:
        stop.set()
        writer.join()
        broker.send_signal(signal.SIGTERM)
    print(f"4. SIGTERM: exit code {broker.wait()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "dray-data")
