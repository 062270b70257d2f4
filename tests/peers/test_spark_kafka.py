"""Spark's own Kafka source and sink against Dray: batches, streams and both sinks, each used twice."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dray.testing import broker
from tests.clients.kinds import AT_MS, CONFLUENT, Written
from tests.pipeline.parts import consumed, create, delete
from tools.peers.spark_kafka import jars

pytestmark = pytest.mark.peers


class Driver:
    """A Spark driver that does a step when it is told to."""

    def __init__(self, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "tests.peers.spark_kafka_job", ",".join(str(jar) for jar in jars())]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True,
            )  # fmt: skip

    def ask(self, step: str, **more: object) -> list:
        self._process.stdin.write(json.dumps({"step": step, **more}) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        assert said, self._log.read_text(errors="replace")[-3_000:]
        return json.loads(said)

    def close(self) -> None:
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    driver = Driver(tmp_path_factory.mktemp("spark") / "driver.log")
    yield driver
    driver.close()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(topics__partitions=1) as running:
        yield running.bootstrap


def batch(bootstrap: str, topic: str, **options: str) -> dict[str, str]:
    edges = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic} | edges | options


def test_a_batch_is_written_and_read_by_spark_and_a_filter_changes_nothing(spark: Driver, bootstrap: str) -> None:
    create(bootstrap, "written", 2)
    rows = [[f"k{n}", f"v{n}", n % 2] for n in range(200)]
    for _ in range(2):  # a second job appends
        spark.ask("write", rows=rows, options={"kafka.bootstrap.servers": bootstrap, "topic": "written"})
    found = spark.ask("read", options=batch(bootstrap, "written"))
    assert sorted((key, value, partition) for key, value, _, partition, _ in found) == sorted(map(tuple, rows * 2))
    assert sorted((partition, offset) for *_, partition, offset in found) == [
        (p, n) for p in (0, 1) for n in range(200)
    ]
    by_librdkafka = [(row.key.decode(), row.value.decode(), row.partition) for row in consumed(bootstrap, "written", 2)]
    assert sorted(by_librdkafka) == sorted(map(tuple, rows * 2))
    some = '{"written":{"0":10,"1":20}}', '{"written":{"0":15,"1":-1}}'
    found = spark.ask("read", options=batch(bootstrap, "written", startingOffsets=some[0], endingOffsets=some[1]))
    assert sorted((row[3], row[4]) for row in found) == [(0, n) for n in range(10, 15)] + [
        (1, n) for n in range(20, 200)
    ]


def test_a_batch_begins_and_ends_by_time(spark: Driver, bootstrap: str) -> None:
    CONFLUENT.write(bootstrap, "timed", tuple(Written(b"k", b"v", AT_MS + n) for n in range(100)), "none")
    times = {"startingTimestamp": str(AT_MS + 40), "endingTimestamp": str(AT_MS + 60)}
    found = spark.ask("read", options=batch(bootstrap, "timed", **times))
    assert sorted(row[4] for row in found) == list(range(40, 60))


def test_a_stream_copies_a_topic_and_goes_on_where_it_stopped(spark: Driver, bootstrap: str, tmp_path: Path) -> None:
    """readStream and the streaming sink; the second run starts from the checkpoint of the first."""
    create(bootstrap, "from", 2)
    create(bootstrap, "to", 1)
    server = {"kafka.bootstrap.servers": bootstrap}
    source = server | {"subscribe": "from", "startingOffsets": "earliest", "includeHeaders": "true"}
    sink = server | {"topic": "to", "checkpointLocation": str(tmp_path / "checkpoint")}
    written: list[list[object]] = []
    for turn in range(2):
        rows = [[f"k{turn}-{n}", f"v{n}", n % 2] for n in range(50)]
        spark.ask("write", rows=rows, options=server | {"topic": "from"})
        progress = spark.ask("stream", source=source, sink=sink)
        assert sum(one["rows"] for one in progress) == 50
        written += rows
        found = spark.ask("read", options=batch(bootstrap, "to"))
        assert sorted(row[0] for row in found) == sorted(str(row[0]) for row in written)
    assert len(consumed(bootstrap, "to", 1)) == 100


def test_a_topic_that_was_made_again_is_read_anew(spark: Driver, bootstrap: str) -> None:
    server = {"kafka.bootstrap.servers": bootstrap}
    for turn in range(2):
        create(bootstrap, "again", 1)
        spark.ask("write", rows=[[f"turn {turn}", "v", 0]] * 5, options=server | {"topic": "again"})
        found = spark.ask("read", options=batch(bootstrap, "again"))
        assert [(row[0], row[4]) for row in found] == [(f"turn {turn}", n) for n in range(5)]
        delete(bootstrap, "again")
