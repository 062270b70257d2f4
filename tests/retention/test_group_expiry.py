"""Committed offsets of groups with members: kept for those who need them."""

import pytest

from dray.groups.offsets import Committer, OffsetService, OffsetToCommit, Partition
from dray.machine.sessions import KeepAlive
from tests.groups.party import Party, caller
from tests.retention.shop import DAY, HOUR, Broker, Cluster

READ, OTHER = Partition(topic="orders", number=0), Partition(topic="bills", number=0)
WEEK = 7 * DAY


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


async def live(broker: Broker, ms: int) -> None:
    """Let machine time pass, without a jump."""
    while ms > 0:
        broker.cluster.clock.advance(HOUR // 2)
        await broker.catalog.propose(KeepAlive())
        ms -= HOUR // 2


async def left(broker: Broker) -> list[str]:
    """The topics of the offsets that a pass of expiry leaves."""
    await broker.retention().expire()
    topics = broker.catalog.machine.topics
    return [topics.find(topic_id).name for topic_id, _, _ in broker.catalog.machine.offsets.of_group("g")]


async def test_members_keep_what_they_read_and_an_empty_group_keeps_all_for_a_while(cluster):
    """RT22, R-189, C2, C3: at last the group itself is forgotten."""
    async with cluster.broker() as broker:
        await broker.topic("orders")
        await broker.topic("bills")
        party = await Party.at(broker)
        joined = await party.alone()
        service = OffsetService(domains=broker.domains, topics=broker.topics)
        member = Committer(group="g", generation=joined.generation, member=joined.member)
        await service.commit(member, {READ: OffsetToCommit(offset=5), OTHER: OffsetToCommit(offset=6)})
        await live(broker, WEEK + HOUR)
        assert await left(broker) == ["orders"]
        await party.service.classic.leave("g", [caller(joined.member)])
        await live(broker, WEEK - HOUR)
        assert await left(broker) == ["orders"]
        assert party.group.is_empty
        await live(broker, 2 * HOUR)
        assert await left(broker) == []
        assert broker.catalog.machine.groups.find("g") is None
