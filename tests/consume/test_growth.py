"""A topic that grows while a group reads it, on a broker that hears of it late."""

import pytest

from dray.consume.service import ConsumerWants
from dray.topics.errors import UnknownPartition
from tests.produce.broker import batch
from tests.topics.late import FEW, MANY, LateBroker, two_brokers

LAST = MANY - 1
CATALOG, DATA = (0,), (1, 2)


async def take(late: LateBroker) -> list[tuple[int, bytes]]:
    wants = ConsumerWants(group="g", most=100, max_bytes=1 << 20, wait_s=0.0)
    handed = await late.services.consume.consume(late.topic, wants)
    return sorted((one.partition, one.record.value) for one in handed)


async def publish(late: LateBroker, partition: int, value: bytes) -> None:
    await late.services.produce.submit(batch(late.topic.streams[partition], value))


@pytest.mark.parametrize("behind", [CATALOG, DATA, CATALOG + DATA], ids=["catalog", "data", "both"])
async def test_a_record_of_a_partition_that_was_just_added_is_settled_wherever_its_ack_comes(behind):
    """TS1: neither the catalog nor the data domain denies a partition from memory."""
    async with two_brokers() as (one, two):
        two.fall_behind(*behind)
        await one.grow()
        await publish(one, LAST, b"a")
        for domain in {0, 1, 2} - set(behind):
            await two.sync(domain)
        assert not all(two.knows(LAST))
        assert await two.services.consume.ack(two.topic, "g", LAST, [(0, 1)]) == 1


@pytest.mark.parametrize("behind", [CATALOG, DATA, CATALOG + DATA], ids=["catalog", "data", "both"])
async def test_an_ack_of_a_partition_that_nobody_has_is_refused(behind):
    """TS1"""
    async with two_brokers() as (one, two):
        two.fall_behind(*behind)
        await one.grow()
        with pytest.raises(UnknownPartition, match="partition=8"):
            await two.services.consume.ack(two.topic, "g", MANY, [(0, 1)])
        gone = two.topic
        await one.services.topics.delete(one.topic)
        with pytest.raises(UnknownPartition):
            await two.services.consume.ack(gone, "g", LAST, [(0, 1)])


async def test_a_group_goes_on_when_its_topic_has_grown_and_the_data_domain_is_behind():
    """TS1, CO7: the first look at a new partition comes behind a sync, too."""
    async with two_brokers() as (one, two):
        await publish(one, 0, b"old")
        assert await take(two) == [(0, b"old")]
        two.fall_behind(*DATA)
        await one.grow()
        await publish(one, LAST, b"new")
        await two.sync(*CATALOG)
        assert (two.topic.visible, two.knows(LAST)) == (MANY, (True, False))
        assert await take(two) == [(LAST, b"new")]


async def test_what_was_settled_elsewhere_of_a_new_partition_is_not_handed_out():
    """CO7"""
    async with two_brokers() as (one, two):
        assert await take(two) == []
        two.fall_behind(*DATA)
        await one.grow()
        await publish(one, FEW, b"done")
        await publish(one, LAST, b"new")
        await one.services.consume.ack(one.topic, "g", FEW, [(0, 1)])
        await two.sync(*CATALOG)
        assert await take(two) == [(LAST, b"new")]


async def test_a_topic_that_grows_during_a_first_look_is_looked_at_as_it_was():
    """CO7: what came while it asked the logs waits for the next look, which comes behind a sync of its own."""
    async with two_brokers() as (one, two):
        await publish(one, 0, b"old")
        consume = two.services.consume
        sync = consume._sync

        async def grow_meanwhile(topic, group):
            await sync(topic, group)
            two.fall_behind(*DATA)
            await one.grow()
            await publish(one, LAST, b"new")
            await two.sync(*CATALOG)
            consume._sync = sync

        consume._sync = grow_meanwhile
        assert await take(two) == [(0, b"old")]
        assert (two.topic.visible, two.knows(LAST)) == (MANY, (True, False))
        assert await take(two) == [(LAST, b"new")]
