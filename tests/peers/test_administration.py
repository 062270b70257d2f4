"""Kafka's own admin client and command-line tools against Dray."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.testing import broker
from tests.golden.asking import Asker, batch
from tests.peers.compat_page import ADMIN, PAGE, admin_table
from tools.pages import section_of
from tools.peers.java import java_program
from tools.peers.kafka import java_command
from tools.peers.process import PeerError, run

pytestmark = pytest.mark.peers

JAVA = Path(__file__).parent / "java"
GIVES_UP_MS = 30_000
"""Far above what a refusal takes on a busy machine, and half of the 60 s after which the client stops trying."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(topics__partitions=1) as running:
        yield running.bootstrap


def tool(name: str, bootstrap: str, *arguments: str) -> str:
    command = java_command("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return run([*command, name, "--bootstrap-server", bootstrap, *arguments], seconds=120.0).decode()


def test_the_java_admin_client_administers_a_topic(bootstrap: str) -> None:
    """K-062, R-194, R-196, R-198, E-7, E-9."""
    told = json.loads(java_program(JAVA / "Administer.java", bootstrap, "administered"))
    assert told == {
        "partitions": 3,
        "lowWatermark": 4,
        "earliest": 4,
        "configs": {"retention.ms": "7000 DYNAMIC_TOPIC_CONFIG LONG"},
        "nodes": 1,
        "controller": True,
        "places": 1,
        "hasBytes": True,
        "producers": 1,
        "lastSequence": 9,
    }


def test_the_java_admin_client_is_told_what_the_page_says(bootstrap: str) -> None:
    """K-062, E-9: all that it can ask. `python -m tests.peers.compat_page` writes the page again."""
    assert admin_table(bootstrap) == section_of(PAGE, ADMIN)


def test_a_transactional_java_producer_is_refused_at_once_and_told_why(bootstrap: str) -> None:
    """R-007, E-1: no retry until max.block.ms."""
    told = json.loads(java_program(JAVA / "Transact.java", bootstrap))
    print(told)
    assert "there are no transactions" in told["error"]
    assert told["millis"] < GIVES_UP_MS


async def test_the_stock_tools_work_word_for_word(bootstrap: str, tmp_path: Path) -> None:
    """K-062, E-9."""
    topics, configs = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
    assert "Created topic tools." in tool(topics, bootstrap, "--create", "--topic", "tools", "--partitions", "2")
    tool(topics, bootstrap, "--alter", "--topic", "tools", "--partitions", "4")
    async with Asker(bootstrap) as ask:
        for _ in range(5):
            await ask.produce("tools", batch(b"1", b"2"))
    changed = tool(configs, bootstrap, "--alter", "--topic", "tools", "--add-config", "retention.ms=700000000")
    assert "Completed updating config for topic tools." in changed
    told = tool(configs, bootstrap, "--describe", "--topic", "tools")
    assert "retention.ms=700000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=700000000}" in told
    described = tool(topics, bootstrap, "--describe", "--topic", "tools")
    assert "PartitionCount: 4" in described
    assert "Configs: retention.ms=700000000" in described
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": "tools", "partition": 0, "offset": 3}], "version": 1}))
    gone = tool("org.apache.kafka.tools.DeleteRecordsCommand", bootstrap, "--offset-json-file", str(wanted))
    assert "partition: tools-0\tlow_watermark: 3" in gone
    offsets = tool("org.apache.kafka.tools.GetOffsetShell", bootstrap, "--topic", "tools", "--time", "earliest")
    assert offsets.split() == ["tools:0:3", "tools:1:0", "tools:2:0", "tools:3:0"]
    places = tool("org.apache.kafka.tools.LogDirsCommand", bootstrap, "--describe", "--topic-list", "tools")
    [one] = json.loads(places.splitlines()[-1])["brokers"]
    assert {part["partition"]: part["size"] > 0 for part in one["logDirs"][0]["partitions"]} == {
        "tools-0": True, "tools-1": False, "tools-2": False, "tools-3": False,
    }  # fmt: skip


def test_brokers_and_groups_have_configs_for_the_stock_tools(bootstrap: str) -> None:
    """R-196, K-062."""
    configs = "kafka.admin.ConfigCommand"
    brokers = ("--entity-type", "brokers", "--entity-name", "1")
    assert "node.id=1 sensitive=false" in tool(configs, bootstrap, "--describe", *brokers, "--all")
    with pytest.raises(PeerError, match="a broker is set up by its file"):
        tool(configs, bootstrap, "--alter", *brokers, "--add-config", "num.io.threads=9")
    tool(configs, bootstrap, "--alter", "--group", "g", "--add-config", "consumer.session.timeout.ms=50000")
    told = tool(configs, bootstrap, "--describe", "--group", "g")
    assert "consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG" in told
