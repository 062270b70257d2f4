"""What tests of the pipeline share: a broker process, an oracle, a read without Spark."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dray.pipeline.filters import Pruning
from dray.pipeline.options import parse_options
from dray.pipeline.planning import Plan, plan_read
from dray.pipeline.reading import read_pieces


class Broker:
    """`drayd dev` as a process that may be killed."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self._settings = settings
        self.start()

    def start(self) -> None:
        command = [str(Path(sys.executable).parent / "drayd"), "dev", "--data", str(self.directory)]
        command += ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--set", "logging.level=error"]
        for setting in self._settings:
            command += ["--set", setting]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline()
        assert line.startswith("ready "), f"the broker did not start: {self._process.wait()}"
        self.bootstrap = line.split()[1].removeprefix("kafka=")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
        self._process.stdout.close()


@contextmanager
def broker_process(directory: Path, *settings: str) -> Iterator[Broker]:
    broker = Broker(directory, *settings)
    try:
        yield broker
    finally:
        broker.stop()


@contextmanager
def driver_process() -> Iterator[int]:
    """Something whose end is a driver's end."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def create(bootstrap: str, topic: str, partitions: int = 1, **config: object) -> None:
    made = NewTopic(topic, partitions, 1, config={key.replace("_", "."): str(value) for key, value in config.items()})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([made])[topic].result(30)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def start_of(bootstrap: str, topic: str) -> int:
    """Where a topic's first partition begins."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looker"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[0]
    finally:
        consumer.close()


def wait_until(condition, limit_s: float = 240) -> None:
    """Poll for what another process does."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        threading.Event().wait(0.05)


def produce(bootstrap: str, topic: str, records, **config: object) -> None:
    """Send records (key, value, headers, partition) and wait until each is acknowledged."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap} | {key.replace("_", "."): v for key, v in config.items()})
    for key, value, headers, partition in records:
        while True:
            try:
                producer.produce(
                    topic, key=key, value=value, headers=headers, partition=partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    assert not failed


class Row(NamedTuple):
    """A record, column by column, as Spark's Kafka source shows it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None


def consumed(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    """The oracle: what librdkafka reads by assignment."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "oracle", "enable.auto.commit": False})
    rows = []
    try:
        for partition in range(partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                for message in consumer.consume(min(high - low, 5_000), timeout=10):
                    assert message.error() is None, message.error()
                    kind, stamp = message.timestamp()
                    headers = message.headers()
                    rows.append(
                        Row(
                            topic,
                            partition,
                            message.offset(),
                            message.key(),
                            message.value(),
                            stamp,
                            kind - 1,
                            None if not headers else tuple((name, value) for name, value in headers),
                        )
                    )
                    low = message.offset() + 1
    finally:
        consumer.close()
    return sorted(rows[:])


def make_plan(directory: Path, driver: int, pruning: Pruning | None = None, **options: object) -> Plan:
    given = {key: str(value) for key, value in options.items()} | {"path": str(directory)}
    return asyncio.run(plan_read(parse_options(given), pruning or Pruning(), driver=driver))


def read(plan: Plan, *, headers: bool = True) -> list[Row]:
    """What the tasks of a plan give, one after another."""
    rows = []
    for pieces in plan.tasks:
        for batch in read_pieces(plan.address, pieces, include_headers=headers):
            rows += [row_of(found, int(found["timestamp"].timestamp() * 1000 + 0.5)) for found in batch.to_pylist()]
    return sorted(rows)


def row_of(found, timestamp_ms: int) -> Row:
    """A row of Arrow or of Spark."""
    headers = found.get("headers")
    return Row(
        found["topic"], found["partition"], found["offset"], found["key"], found["value"], timestamp_ms,
        found["timestampType"],
        None if headers is None else tuple((header["key"], header["value"]) for header in headers),
    )  # fmt: skip


def objects_of(directory: Path) -> set[Path]:
    return set((directory / "objects" / "wal").rglob("*.wo"))
