"""Idle producers and old committed offsets are forgotten, at a slow pace."""

import pytest

from dray.machine import producers
from dray.machine.append import Append, pack_rows
from dray.machine.offsets import CommitOffsets, OffsetRow
from dray.retention.expiry import SLICE

from .shop import DAY, HOUR, Cluster


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


async def produce_as(broker, stream, ids) -> None:
    """One batch of each producer."""
    _, name, created = await broker.put()
    rows = [(stream, created, created, number, 0, 1, 100, 53 + at * 104, 0) for at, number in enumerate(ids)]
    await broker.catalog.propose(
        Append(wal_id=name, size=1 << 20, created_ms=created, zone="a", packed=pack_rows(rows))
    )


async def test_a_producer_is_forgotten_a_day_after_its_last_batch(cluster):
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic()).streams
        await produce_as(broker, stream, [1, 2, 3])
        await broker.pass_time(12 * HOUR)
        await produce_as(broker, stream, [5])
        service = broker.retention()
        await broker.pass_time(12 * HOUR)
        before = cluster.entries()
        await service.expire()
        assert cluster.entries() == before
        await broker.pass_time(HOUR)
        await service.expire()
        assert producers.producer_ids(broker.stream(stream).producers) == [5]
        before = cluster.entries()
        await service.expire()
        assert cluster.entries() == before


async def test_many_producers_go_in_slices_also_behind_busy_ones(cluster):
    """Q8."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic()).streams
        idle = range(10, 10 + 2 * SLICE + 5)
        await produce_as(broker, stream, idle)
        await broker.pass_time(23 * HOUR)
        await produce_as(broker, stream, [0, 9_999])
        await broker.pass_time(2 * HOUR)
        before = cluster.entries()
        await broker.retention().expire()
        assert producers.producer_ids(broker.stream(stream).producers) == [0, 9_999]
        assert cluster.entries() - before == 3


def offset(topic, partition=0, at=7) -> OffsetRow:
    return OffsetRow(topic_id=topic.id, partition=partition, offset=at)


async def test_an_offset_is_forgotten_a_week_after_its_commit_unless_it_moved(cluster):
    """R-189, E-24: the request's own retention counts where it has one."""
    async with cluster.broker() as broker:
        topic = await broker.topic(partitions=3)
        await broker.catalog.propose(
            CommitOffsets(group="g", rows=(offset(topic, 0), offset(topic, 1))),
            CommitOffsets(group="short", rows=(offset(topic),), retention_ms=HOUR),
        )
        service = broker.retention()
        await broker.pass_time(2 * HOUR)
        await service.expire()
        assert broker.machine.offsets.groups() == ["g"]
        await broker.pass_time(6 * DAY)
        await broker.catalog.propose(CommitOffsets(group="g", rows=(offset(topic, 1, 8),)))
        await broker.pass_time(DAY)
        await service.expire()
        assert broker.machine.offsets.find("g", topic.id, 0) is None
        assert broker.machine.offsets.find("g", topic.id, 1).offset == 8
        before = cluster.entries()
        await service.expire()
        assert cluster.entries() == before


async def test_the_offsets_of_a_deleted_topic_go(cluster):
    """R-188, E-20."""
    async with cluster.broker() as broker:
        old, kept = await broker.topic(), await broker.topic("kept")
        await broker.catalog.propose(CommitOffsets(group="g", rows=(offset(old), offset(kept))))
        await broker.topics.delete(old)
        new = await broker.topic()
        await broker.catalog.propose(CommitOffsets(group="g", rows=(offset(new),)))
        await broker.retention().expire()
        assert sorted(row[0] for row in broker.machine.offsets.of_group("g")) == sorted([new.id, kept.id])


async def test_a_process_that_has_not_heard_of_a_new_topic_takes_no_offset_away():
    """RT4: the catalog is asked after the offset was seen."""
    cluster = await Cluster().begin(2)
    async with cluster.broker() as broker, cluster.broker("broker-2") as late:
        await broker.topic("first")
        await late.catalog.sync()
        catalog = late.catalog.machine
        seen = dict(catalog.topics.all)
        topic = await broker.topic("second")
        await broker.domains[1].propose(CommitOffsets(group="g", rows=(offset(topic),)))
        await late.domains[1].sync()
        real = late.catalog.sync
        current = dict(catalog.topics.all)
        catalog.topics.all = seen  # as if the follower were behind

        async def catch_up() -> None:
            catalog.topics.all = current
            await real()

        late.catalog.sync = catch_up
        await late.retention()._expiry.run(late.domains[1])
        await broker.domains[1].sync()
        assert broker.domains[1].machine.offsets.find("g", topic.id, 0) is not None
