"""Kafka Streams against Dray: the word count of its first page."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from dray.testing import broker
from tests.peers.compat_page import PAGE, STREAMS, streams_error
from tools.pages import section_of
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
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for line in LINES:
            producer.produce("lines", line)
        assert producer.flush(30) == 0
        yield running.bootstrap


def counted(bootstrap: str, topic: str) -> dict[str, str]:
    """The newest count of each word, when all are counted."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: dict[str, str] = {}
    try:
        for _ in range(PATIENCE_S):
            for message in consumer.consume(100, 1.0):
                if message.error() is None:
                    found[message.key().decode()] = message.value().decode()
            if found == COUNTS:
                break
    finally:
        consumer.close()
    return found


def test_words_are_counted_without_a_changelog_and_in_windows_with_one(bootstrap: str, tmp_path: Path) -> None:
    """At least once: with repartition topics, two partitions, counts in RocksDB, a changelog with a retention."""
    arguments = [bootstrap, "counting", "lines", "counted", "false", f"state.dir={tmp_path}", "commit.interval.ms=500"]
    command = [*command_of(WORD_COUNT, libraries=[streams_jars()]), *arguments]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = spawn(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            for topic in ("counted", "counted-by-year"):
                assert counted(bootstrap, topic) == COUNTS, log.read_text(errors="replace")[-4000:]
        finally:
            stop(process)


def test_a_changelog_is_refused_as_the_page_tells(bootstrap: str, tmp_path: Path) -> None:
    """Streams keeps its changelogs in topics that only compact. `python -m tests.peers.compat_page` writes the page."""
    assert streams_error(bootstrap, tmp_path) == section_of(PAGE, STREAMS)
