"""Classic groups of Dray and of Apache Kafka: thousands of random calls, and no difference."""

import asyncio
import os
import random

import pytest

from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest
from dray.testing import broker
from tests.golden.asking import Asker
from tests.peers.groups.playing import STEPS, TOPIC, play_all
from tools.peers.kafka import kafka_broker

pytestmark = [pytest.mark.peers, pytest.mark.slow]

CALLS = int(os.environ.get("GROUP_CALLS", "5000"))
UNKNOWN_MEMBER = 25
_KAFKA = {
    "auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "6000",
}  # fmt: skip


def test_random_calls_are_answered_as_kafka_answers_them() -> None:
    """R-222, K-070, K-072"""
    seed = int(os.environ.get("GROUP_SEED", "1309323155"))
    print(f"GROUP_SEED={seed}")
    with kafka_broker(_KAFKA, heap="512m") as kafka, broker(topics__auto_create="false") as dray:
        calls, states = asyncio.run(compare({"dray": dray.bootstrap, "kafka": kafka.address}, seed))
    print(f"{calls} calls without a difference; the groups were {dict(states)}")
    assert set(states) >= {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}


async def ready(asker: Asker) -> None:
    """Kafka makes its topic of groups when it is first asked for one, and loads it."""
    async with asyncio.timeout(60):
        while True:
            found = await asker.call(10, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=["ready"]))
            beat = await asker.call(12, 4, HeartbeatRequest(group_id="ready", generation_id=1, member_id="m"))
            if found.coordinators[0].error_code == 0 and beat.error_code == UNKNOWN_MEMBER:
                return
            await asyncio.sleep(0.3)


async def compare(addresses: dict[str, str], seed: int) -> tuple[int, dict[str, int]]:
    for address in addresses.values():
        async with Asker(address) as asker:
            await asker.create(TOPIC, 1)
            await ready(asker)
    calls, states, dice = 0, {}, random.Random(seed)
    while calls < CALLS:
        seeds = [dice.randrange(1 << 31) for _ in range(max(1, (CALLS - calls) // STEPS))]
        for outcome in await play_all(addresses, seeds):
            assert not outcome.difference, outcome.difference
            calls += outcome.calls
            for state, count in outcome.states.items():
                states[state] = states.get(state, 0) + count
    return calls, states
