"""The peers work: a Kafka broker starts, and kcat and the Java client write to it and read from it."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.group_story import tell_a_group, write_orders
from tools.peers.java import java_program
from tools.peers.kafka import KafkaBroker, kafka_broker
from tools.peers.kcat import kcat
from tools.peers.process import PeerError

pytestmark = pytest.mark.peers

JAVA = Path(__file__).parent / "java"


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with kafka_broker({"num.partitions": "3"}) as running:
        yield running


def lines(output: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def test_the_java_consumer_reads_what_the_java_producer_was_acknowledged(broker: KafkaBroker) -> None:
    sent = [
        {"topic": "java", "partition": n % 3, "timestamp": 1_700_000_000_000 + n, "key": f"k{n}", "value": f"v{n} Ä"}
        for n in range(50)
    ]
    sent.append({"topic": "java", "partition": 0, "timestamp": 5, "key": None, "value": None, "headers": [["h", None]]})
    acked = lines(java_program(JAVA / "Produce.java", broker.address, stdin=b"\n".join(_encoded(sent))))
    read = lines(java_program(JAVA / "Consume.java", broker.address, "java"))

    assert [(ack["topic"], ack["partition"]) for ack in acked] == [(one["topic"], one["partition"]) for one in sent]
    expected = {
        (ack["partition"], ack["offset"]): (one["timestamp"], one["key"], one["value"], one.get("headers", []))
        for ack, one in zip(acked, sent, strict=True)
    }
    assert len(expected) == len(sent)
    got = {(r["partition"], r["offset"]): (r["timestamp"], r["key"], r["value"], r["headers"]) for r in read}
    assert got == expected


def test_kcat_and_java_read_each_other(broker: KafkaBroker) -> None:
    kcat(broker.address, "-P", "-t", "mixed", "-p", "0", "-K", ":", stdin=b"a:1\nb:2\n")
    record = {"topic": "mixed", "partition": 0, "key": "c", "value": "3"}
    [ack] = lines(java_program(JAVA / "Produce.java", broker.address, stdin=b"".join(_encoded([record]))))

    assert ack["offset"] == 2
    assert kcat(broker.address, "-C", "-t", "mixed", "-p", "0", "-e", "-q", "-f", "%o %k=%s\\n") == (
        b"0 a=1\n1 b=2\n2 c=3\n"
    )
    read = lines(java_program(JAVA / "Consume.java", broker.address, "mixed"))
    assert [(line["key"], line["value"]) for line in read] == [("a", "1"), ("b", "2"), ("c", "3")]


def test_a_record_the_broker_refuses_is_reported_and_fails_the_program(broker: KafkaBroker) -> None:
    record = {"topic": "not a name", "value": "x"}
    with pytest.raises(PeerError, match="InvalidTopicException"):
        java_program(JAVA / "Produce.java", broker.address, stdin=b"".join(_encoded([record])))


def test_a_broker_with_a_bad_setting_says_why_and_leaves_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(PeerError, match=r"log\.retention\.ms"), kafka_broker({"log.retention.ms": "soon"}):
        pytest.fail("it started")
    assert [left.name for left in tmp_path.glob("dray-kafka-*/*")] == ["server.properties"]


def test_a_broker_is_gone_with_its_directory_after_the_block() -> None:
    with kafka_broker(heap="512m") as running:
        assert psutil.pid_exists(running.pid)
        assert (running.directory / "data").exists()
    assert not psutil.pid_exists(running.pid)
    assert not running.directory.exists()


def _encoded(records: list[dict[str, object]]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


def test_dray_tells_of_the_groups_of_apache_kafka(broker: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Its command line is for any cluster."""
    write_orders(broker.address)
    for protocol in ("classic", "consumer"):
        tell_a_group(broker.address, capsys, protocol)
