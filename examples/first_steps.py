"""A broker is started, written to, killed and started again; nothing is lost.

Run it with `make demo`, or `python examples/first_steps.py [DIR]`.
"""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

RECORDS = 10_000
TOPIC = "orders"


def start(directory: Path) -> tuple[subprocess.Popen[str], str]:
    """A broker on a free port; returns it and where Kafka clients connect."""
    command = [str(Path(sys.executable).parent / "drayd"), "dev", "--data", str(directory)]
    command += ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--set", "logging.level=warning"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = broker.stdout.readline() if broker.stdout else ""
    if not line.startswith("ready "):
        raise SystemExit(f"the broker did not start: exit code {broker.wait()}")
    print(f"  drayd dev --data {directory.name}   ->  {line.strip()}")
    return broker, line.split()[1].removeprefix("kafka=")


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


def consume(address: str, expected: int) -> int:
    """Read the topic from its start; returns how many records came, in order and each once."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    read = 0
    while read < expected:
        for message in consumer.consume(1_000, timeout=5) or sys.exit("the broker sent nothing for 5 s"):
            if message.error() or message.offset() != read or message.value() != f"order {read}".encode():
                raise SystemExit(f"expected order {read}, got {message.error() or message.value()}")
            read += 1
    consumer.close()
    return read


def main(directory: Path) -> None:
    print("1. start a broker on an empty directory")
    broker, address = start(directory)
    print("2. produce with an ordinary Kafka client")
    acknowledged = produce(address, 0, RECORDS)
    print(f"  {acknowledged:,} records acknowledged: each is in an object and in the log, both synced")
    print("3. consume them")
    print(f"  {consume(address, acknowledged):,} records read, in order, each once")
    print("4. kill -9")
    broker.send_signal(signal.SIGKILL)
    broker.wait()
    print("5. start again on the same directory")
    broker, address = start(directory)
    print(f"  {consume(address, acknowledged):,} records are there: nothing was lost")
    more = produce(address, RECORDS, 1_000)
    print(f"  and {consume(address, acknowledged + more):,} after {more:,} more")
    broker.send_signal(signal.SIGTERM)
    print(f"6. SIGTERM: exit code {broker.wait()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary) / "dray-data")
