"""The Java client in groups of the new protocol (KIP-848)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from dray.testing import broker
from tools.peers.java import java_program

pytestmark = pytest.mark.peers
SHARE = Path(__file__).parents[1] / "java" / "Share.java"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(
        topics__partitions=6, groups__consumer_heartbeat="300ms", groups__consumer_unsettled_heartbeat="100ms",
        groups__consumer_session="6s", groups__consumer_assignment_interval="50ms", groups__regex_refresh="100ms",
    ) as running:  # fmt: skip
        yield running.bootstrap


def produce(bootstrap: str, topic: str, records: int) -> list[str]:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(records):
        producer.produce(topic, str(number), partition=number % 6)
    assert producer.flush(30) == 0
    return sorted(f"{topic}-{number % 6}@{number // 6}" for number in range(records))


@pytest.mark.parametrize("assignor", ["uniform", "range", None])
def test_java_members_come_share_read_and_go(bootstrap: str, assignor: str | None) -> None:
    """R-179, R-180, R-184: no record is read twice, since each commits before it lets go."""
    topic = f"java-{assignor}"
    sent = produce(bootstrap, topic, 60)
    properties = {"group.protocol": "consumer"} | ({} if assignor is None else {"group.remote.assignor": assignor})
    told = java_program(SHARE, bootstrap, topic, topic, "6", "60", "3", properties=properties).splitlines()
    *shared, last = (json.loads(line) for line in told)
    assert [line["members"] for line in shared] == [1, 2, 3, 2, 1]
    assert sorted(last["read"]) == sent


def test_java_members_subscribe_by_a_pattern(bootstrap: str) -> None:
    """R-183."""
    sent = produce(bootstrap, "pattern.a", 12) + produce(bootstrap, "pattern.b", 12)
    told = java_program(
        SHARE, bootstrap, "by-pattern", "~pattern[.].+", "12", "24", "2", properties={"group.protocol": "consumer"}
    ).splitlines()
    *shared, last = (json.loads(line) for line in told)
    assert [line["members"] for line in shared] == [1, 2, 1]
    assert sorted(last["read"]) == sorted(sent)
