"""A broker is started, written to, killed and started again; nothing is lost, and a consumer goes on where it was.

Run it with `make demo`, or `python examples/first_steps.py [DIR]`.
"""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer

RECORDS = 10_000
TOPIC = "orders"


def start(directory: Path) -> tuple[subprocess.Popen[str], str, str]:
    """A broker on free ports; returns it, where Kafka clients connect, and its HTTP port."""
    command = [str(Path(sys.executable).parent / "drayd"), "dev", "--data", str(directory)]
    command += [
        "--kafka",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--set",
        "logging.level=warning",
    ]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = broker.stdout.readline() if broker.stdout else ""
    if not line.startswith("ready "):
        raise SystemExit(f"the broker did not start: exit code {broker.wait()}")
    print(f"  drayd dev --data {directory.name}   ->  {line.strip()}")
    kafka, http = line.split()[1:3]
    return broker, kafka.removeprefix("kafka="), http.removeprefix("http=")


def produce(address: str, first: int, count: int) -> int:
    """Send records and count those that were acknowledged."""
    acknowledged = 0

    def delivered(error: KafkaError | None, _: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(TOPIC, key=f"customer-{number % 7}", value=f"order {number}", on_delivery=delivered)
        producer.poll(0)
    producer.flush(30)
    return acknowledged


def consume(address: str, group: str, start: int, end: int) -> int:
    """Read on where a group was; returns how many records came, from `start` to `end`, in order and each once."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    following = start
    while following < end:
        for message in consumer.consume(1_000, timeout=20) or sys.exit("the broker sent nothing for 20 s"):
            if message.error() or message.offset() != following or message.value() != f"order {following}".encode():
                raise SystemExit(f"expected order {following}, got {message.error() or message.value()}")
            following += 1
    consumer.close()  # says how far it has come, and leaves the group
    return following - start


def main(directory: Path) -> None:
    print("1. start a broker on an empty directory")
    broker, address, _ = start(directory)
    print("2. produce with an ordinary Kafka client")
    acknowledged = produce(address, 0, RECORDS)
    print(f"  {acknowledged:,} records acknowledged: each is in an object and in the log, both synced")
    print("3. consume them")
    print(f"  {consume(address, 'billing', 0, acknowledged):,} records read by the group billing, each once")
    print("4. kill -9")
    broker.send_signal(signal.SIGKILL)
    broker.wait()
    print("5. start again on the same directory")
    broker, address, _ = start(directory)
    print(f"  {consume(address, 'audit', 0, acknowledged):,} records are there: nothing was lost")
    end = acknowledged + produce(address, RECORDS, 1_000)
    print(f"  billing goes on where it was: {consume(address, 'billing', acknowledged, end):,} more")
    broker.send_signal(signal.SIGTERM)
    print(f"6. SIGTERM: exit code {broker.wait()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "dray-data")
