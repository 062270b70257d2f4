"""What a user does with `dray`, on a broker of Apache Kafka."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command_story import STORIES, Shop
from tests.docs.cli_page import play
from tools.peers.java import java_program
from tools.peers.kafka import kafka_broker

pytestmark = pytest.mark.peers

PRODUCE = Path(__file__).parent / "java" / "Produce.java"


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with kafka_broker({"auto.create.topics.enable": "false"}, heap="512m") as running:
        yield Shop(running.address)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_user_can(shop: Shop, story: Callable[[Shop], None]) -> None:
    story(shop)


def test_a_key_goes_where_the_java_client_sends_it(shop: Shop) -> None:
    keys = [f"key {number}" for number in range(50)]
    shop.good("topics", "create", "keyed", "-p", 8)
    shop.good("produce", "keyed", "-K", ":", stdin="".join(f"{key}:\n" for key in keys).encode())
    ours = {one["key"]: one["partition"] for one in shop.read("keyed")}
    sent = "".join(json.dumps({"topic": "keyed", "key": key, "value": "v"}) + "\n" for key in keys)
    acked = [json.loads(line) for line in java_program(PRODUCE, shop.bootstrap, stdin=sent.encode()).splitlines()]
    assert ours == {key: ack["partition"] for key, ack in zip(keys, acked, strict=True)}


def test_the_page_tells_what_the_commands_tell(tmp_path: Path) -> None:
    """On a cluster of its own: the page lists all topics and groups."""
    with kafka_broker({"auto.create.topics.enable": "false"}, heap="512m") as running:
        play(running.address, tmp_path)
