"""Members of consumer groups are told by Dray what Kafka tells them, call by call."""

import os
from collections import Counter

import pytest

from dray.testing import broker
from tests.golden.asking import Asker
from tests.peers.groups.consumer_calls import CALLS, Game, Side, targets_at_once
from tools.peers.kafka import kafka_broker

pytestmark = pytest.mark.peers
GROUPS = 200
KAFKA = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.migration.policy": "disabled",
    "offsets.topic.num.partitions": "1",
}


async def test_six_thousand_random_calls_are_answered_alike() -> None:
    """R-179, R-182, R-185, R-222: epochs, assignments, errors and descriptions of random groups."""
    first = int(os.environ.get("GROUP_SEED", "317962666"))
    print(f"seeds={first}..{first + GROUPS - 1}")
    counts: Counter[str] = Counter()
    with (
        kafka_broker(KAFKA, heap="512m") as kafka,
        targets_at_once(),
        broker(groups__consumer_unsettled_heartbeat="0s") as dray,
    ):
        async with Asker(kafka.address) as one, Asker(dray.bootstrap) as other:
            sides = Side(one), Side(other)
            for side in sides:
                await side.begin()
            for seed in range(first, first + GROUPS):
                game = Game(seed, *sides)
                assert await game.play() is None
                counts.update(game.counts)
    print(dict(sorted(counts.items())))
    assert counts.total() >= GROUPS * CALLS
