"""The two servers, set up alike."""

import asyncio
from collections.abc import Sequence

from dray.testing import broker
from tests.peers.comparison.comparing import Comparison, compare
from tests.peers.comparison.talking import Scene
from tools.peers.kafka import kafka_broker

_PARTITIONS = 4
_KAFKA = {
    "auto.create.topics.enable": "false",
    "num.partitions": str(_PARTITIONS),
    # Fifty partitions of either would only take time.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def run(scenes: Sequence[Scene]) -> Comparison:
    """Start both, let them play, stop them."""
    with (
        kafka_broker(_KAFKA, heap="512m") as kafka,
        broker(topics__auto_create="false", topics__partitions=_PARTITIONS) as dray,
    ):
        return asyncio.run(compare(kafka.address, dray.bootstrap, scenes))
