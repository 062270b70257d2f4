"""The two servers, set up alike."""

import asyncio
from collections.abc import Sequence

from dray.testing import broker
from tests.golden.comparison.comparing import Played, play
from tests.golden.comparison.talking import Scene
from tools.peers.kafka import kafka_broker

_PARTITIONS = 4
_MEMBERS = 2
"""As many as a group may have."""
_KAFKA = {
    "auto.create.topics.enable": "false",
    "num.partitions": str(_PARTITIONS),
    # Fifty partitions of either would only take time.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # Groups move on at once, and members are not moved to the other protocol while they are there.
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.migration.policy": "disabled",
    "group.max.size": str(_MEMBERS),
    "group.consumer.max.size": str(_MEMBERS),
}
_DRAY = {
    "topics__auto_create": "false",
    "topics__partitions": _PARTITIONS,
    "groups__max_size": _MEMBERS,
    "groups__consumer_assignment_interval": "0s",
    # A slow machine must not show: Kafka computes a target within the call.
    "groups__consumer_join_wait": "20s",
}


def kafka_plays(scenes: Sequence[Scene]) -> Played:
    """Start Apache Kafka, let it play, stop it."""
    with kafka_broker(_KAFKA, heap="512m") as kafka:
        return asyncio.run(play(kafka.address, scenes))


def dray_plays(scenes: Sequence[Scene], domains: int = 1) -> Played:
    """Likewise Dray, with so many data domains."""
    with broker(**_DRAY, cluster__domains=domains) as dray:
        return asyncio.run(play(dray.bootstrap, scenes))
