"""Kafka Streams against Dray: the word count of its first page."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from dray.testing import broker
from tools.peers.java import command_of
from tools.peers.process import spawn, stop
from tools.peers.streams import streams_jars

pytestmark = pytest.mark.peers

WORD_COUNT = Path(__file__).parent / "java" / "WordCount.java"
LINES = ("all streams lead to kafka", "hello kafka streams", "join kafka summit")
COUNTS = {
    "all": "1", "streams": "2", "lead": "1", "to": "1", "kafka": "3", "hello": "1", "join": "1", "summit": "1",
}  # fmt: skip
PATIENCE_S = 120


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(topics__partitions=2) as running:
        yield running.bootstrap


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for line in LINES:
        producer.produce("lines", line)
    assert producer.flush(30) == 0


def counted(bootstrap: str, topic: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """The newest count of each word, as soon as it is what is wanted."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader", "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([topic])
    found: dict[str, str] = {}
    try:
        for _ in range(PATIENCE_S):
            for message in consumer.consume(100, 1.0):
                if message.error() is None:
                    found[message.key().decode()] = message.value().decode()
            if found == wanted:
                break
    finally:
        consumer.close()
    return found


@contextmanager
def word_count(bootstrap: str, directory: Path) -> Iterator[Path]:
    """The application on its defaults but for where it keeps its state; told to end, it commits first."""
    directory.mkdir()
    arguments = [
        bootstrap,
        "counting",
        "lines",
        "counted",
        f"state.dir={directory / 'state'}",
        "commit.interval.ms=500",
    ]
    log = directory / "log"
    with log.open("wb") as output:
        process = spawn(
            [*command_of(WORD_COUNT, libraries=[streams_jars()]), *arguments], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield log
        finally:
            stop(process)


def test_words_are_counted_and_counts_come_back_from_their_changelog(bootstrap: str, tmp_path: Path) -> None:
    """R-197, at least once: repartition topics, RocksDB, changelogs that only compact, and a second life on an empty
    disk, which has the counts of the first from the changelogs alone."""
    write(bootstrap)
    with word_count(bootstrap, tmp_path / "first") as log:
        for topic in ("counted", "counted-by-year"):
            assert counted(bootstrap, topic, COUNTS) == COUNTS, log.read_text(errors="replace")[-4000:]
    write(bootstrap)
    twice = {word: str(2 * int(count)) for word, count in COUNTS.items()}
    with word_count(bootstrap, tmp_path / "second") as log:
        for topic in ("counted", "counted-by-year"):
            assert counted(bootstrap, topic, twice) == twice, log.read_text(errors="replace")[-4000:]
