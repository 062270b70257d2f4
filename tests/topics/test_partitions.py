"""Partitions of a topic are found in one place, which denies none from memory."""

import pytest

from dray.errors import Unavailable
from dray.log.port import Position
from dray.machine.checkpoint import dump
from dray.replica.checkpoints import MemoryCheckpoints
from dray.replica.freshness import Freshness
from dray.replica.replica import Replica
from dray.topics.errors import UnknownPartition
from tests.topics.late import FEW, MANY, two_brokers


async def test_a_partition_that_is_known_needs_no_sync_and_what_is_not_one_for_the_whole_request():
    """TS1, RP20"""
    async with two_brokers() as (_, two):
        topics, topic, tails = two.services.topics, two.topic, two.logs[0].tails
        for number in range(FEW):
            assert await topics.find_partition(topic, number) is topic
        assert two.logs[0].tails == tails
        fresh = Freshness()
        for number in (-1, FEW, 1 << 31):
            with pytest.raises(UnknownPartition):
                await topics.find_partition(topic, number, fresh)
        assert two.logs[0].tails == tails + 1


async def test_a_partition_that_another_broker_has_just_added_is_found():
    """TS1"""
    async with two_brokers() as (one, two):
        two.fall_behind()
        await one.grow()
        known = await two.services.topics.find_partition(two.topic, MANY - 1)
        assert known.streams[MANY - 1] == one.topic.streams[MANY - 1]


async def test_a_partition_is_found_by_a_replica_that_jumps_to_a_checkpoint_meanwhile():
    """TS1: what was known of the topic before is not asked any more."""
    async with two_brokers() as (one, two):
        topic, store = two.topic, MemoryCheckpoints()
        two.services.plane.domains[0]._checkpoints = store
        two.fall_behind()
        await one.grow()
        machine = one.services.plane.domains[0].machine
        await store.write(machine.position, dump(machine))
        await store.confirm(machine.position)
        await one.logs[0].inner.trim(Position(machine.position))
        known = await two.services.topics.find_partition(topic, MANY - 1)
        assert (topic.visible, known.visible) == (FEW, MANY)
        with pytest.raises(UnknownPartition):
            await two.services.topics.find_partition(topic, MANY)


async def test_a_topic_that_was_deleted_has_no_partition_more():
    """TS1"""
    async with two_brokers() as (one, two):
        topic = two.topic
        two.fall_behind()
        await one.services.topics.delete(one.topic)
        with pytest.raises(UnknownPartition):
            await two.services.topics.find_partition(topic, FEW)


async def test_a_sync_that_fails_is_no_denial(monkeypatch: pytest.MonkeyPatch):
    """E1, TS1"""

    async def cut_off(self: Replica) -> None:
        raise Unavailable("the log does not answer")

    async with two_brokers() as (_, two):
        monkeypatch.setattr(Replica, "sync", cut_off)
        with pytest.raises(Unavailable):
            await two.services.topics.find_partition(two.topic, FEW)
        monkeypatch.undo()
