"""What a user does with `dray`, on a broker of Apache Kafka."""

from collections.abc import Callable, Iterator

import pytest

from tests.cli.command_story import STORIES, Shop
from tools.peers.kafka import kafka_broker

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with kafka_broker({"auto.create.topics.enable": "false"}, heap="512m") as running:
        yield Shop(running.address)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_user_can(shop: Shop, story: Callable[[Shop], None]) -> None:
    story(shop)
