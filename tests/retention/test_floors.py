"""What time, size and deletion take away from streams."""

import pytest

from dray.machine.streams import FloorRaised, FloorReason, RaiseFloor
from dray.machine.topics import AlterTopic
from dray.retention import telemetry

from .shop import BATCH_BYTES, DAY, HOUR, MINUTE, NOW, Cluster, collect


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


async def test_rows_older_than_retention_go_whole_and_the_end_stays(cluster):
    """R-199: by the greatest timestamp of each row; the log start rises, the end stays."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(2 * HOUR))).streams
        for records in (3, 4, 5):
            await broker.produce((stream, records))
            await broker.pass_time(HOUR)
        service = broker.retention()
        await service.retain()
        assert (broker.stream(stream).start, broker.stream(stream).end) == (3, 12)
        assert len(broker.stream(stream).index) == 2
        await broker.pass_time(HOUR)
        await service.retain()
        assert (broker.stream(stream).start, broker.stream(stream).end) == (7, 12)


async def test_a_row_behind_a_younger_one_waits_for_it(cluster):
    """R-199: only from the front; a late old record goes with its elders."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        await broker.produce((stream, 1), stamp=NOW + 3 * HOUR)
        await broker.produce((stream, 1), stamp=NOW)
        await broker.pass_time(2 * HOUR)
        await broker.retention().retain()
        assert broker.stream(stream).start == 0
        await broker.pass_time(3 * HOUR)
        await broker.retention().retain()
        assert broker.stream(stream).start == 2


async def test_a_row_without_timestamp_is_as_old_as_its_object(cluster):
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(2 * HOUR))).streams
        await broker.pass_time(HOUR)
        await broker.produce((stream, 1), stamp=-1)
        await broker.pass_time(2 * HOUR)
        before = cluster.entries()
        await broker.retention().retain()
        assert cluster.entries() == before
        await broker.pass_time(MINUTE)
        await broker.retention().retain()
        assert broker.stream(stream).start == 1


async def test_by_size_rows_go_until_the_rest_fits(cluster):
    """R-199: retention.bytes, to the row: what is kept is the least that is at least the bound."""
    row = BATCH_BYTES + 4
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_bytes=str(3 * row - 1))).streams
        for _ in range(10):
            await broker.produce((stream, 2))
        await broker.retention().retain()
        kept = broker.stream(stream)
        assert (kept.start, kept.end, kept.kept_bytes) == (14, 20, 3 * row)


async def test_after_everything_expired_the_next_record_continues(cluster):
    """R-200: earliest = latest = the old end, on a broker that starts now too."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        await broker.produce((stream, 5))
        await broker.pass_time(2 * HOUR)
        await collect(broker.retention(), broker)
        assert (broker.stream(stream).start, broker.stream(stream).end) == (5, 5)
    async with cluster.broker("broker-2") as broker:
        assert (broker.stream(stream).start, broker.stream(stream).end) == (5, 5)
        await broker.produce((stream, 2))
        assert (broker.stream(stream).start, broker.stream(stream).end) == (5, 7)


async def test_objects_vanish_only_after_the_grace_time(cluster):
    """R-201: a reader that is on its way to a record finds it."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        path = await broker.produce((stream, 5))
        await broker.pass_time(2 * HOUR)
        service = broker.retention()
        await service.retain()
        assert broker.stream(stream).start == 5
        await broker.pass_time(10 * MINUTE - 1)
        await service.retain()
        assert await cluster.paths() == [path]
        await broker.pass_time(1)
        await service.retain()
        assert await cluster.paths() == []


async def test_a_topic_that_only_compacts_or_makes_no_sense_keeps_its_records(cluster):
    """RT3."""
    async with cluster.broker() as broker:
        (compacted,) = (await broker.topic("c", cleanup_policy="compact", retention_ms="1")).streams
        odd = await broker.topic("odd")
        (both,) = (await broker.topic("b", cleanup_policy="compact,delete", retention_ms="1")).streams
        await broker.catalog.propose(AlterTopic(topic_id=odd.id, set={"retention.ms": "soon"}))
        await broker.produce((compacted, 1), (odd.streams[0], 1), (both, 1))
        await broker.pass_time(30 * DAY)
        await broker.retention().retain()
        assert [broker.stream(stream).start for stream in (compacted, odd.streams[0], both)] == [0, 0, 1]
        kept = telemetry.UNCOMPACTED.labels(str(broker.catalog.machine.domain))._value.get()
        assert kept == broker.stream(compacted).index.size > 0  # E-21


async def test_an_altered_config_counts_from_the_next_look_on(cluster):
    async with cluster.broker() as broker:
        topic = await broker.topic(retention_ms="-1")
        await broker.produce((topic.streams[0], 1))
        await broker.pass_time(2 * HOUR)
        service = broker.retention()
        await service.retain()
        assert broker.stream(topic.streams[0]).start == 0
        await broker.catalog.propose(AlterTopic(topic_id=topic.id, set={"retention.ms": str(HOUR)}))
        await service.retain()
        assert broker.stream(topic.streams[0]).start == 1


async def test_many_rows_go_in_slices_in_one_look(cluster):
    """Q8: no entry takes more than a slice of each stream."""
    async with cluster.broker() as broker:
        topic = await broker.topic(partitions=2, retention_ms=str(HOUR))
        one, two = topic.streams
        for _ in range(5):
            await broker.produce(*[(one, 1)] * 500, (two, 1))
        await broker.pass_time(2 * HOUR)
        before = cluster.entries()
        await broker.retention().retain()
        assert [len(broker.stream(stream).index) for stream in (one, two)] == [0, 0]
        assert cluster.entries() - before == 3


async def test_the_rows_of_a_deleted_topic_go_until_it_is_forgotten(cluster):
    """R-193, E-20: and its objects after their grace."""
    async with cluster.broker() as broker:
        topic = await broker.topic(partitions=2)
        kept = (await broker.topic("kept")).streams[0]
        for _ in range(5):
            await broker.produce(*[(stream, 1) for stream in topic.streams] * 300)
        shared = await broker.produce((topic.streams[0], 1), (kept, 1))
        await broker.topics.delete(topic)
        assert broker.machine.streams.rows > 1
        await collect(broker.retention(), broker)
        assert broker.machine.streams.rows == 1
        assert [broker.stream(stream) for stream in topic.streams] == [None, None]
        assert await cluster.paths() == [shared]


async def test_a_deletion_of_records_that_stopped_halfway_is_finished(cluster):
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(cleanup_policy="compact")).streams
        await broker.produce(*[(stream, 1)] * 20)
        command = RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=15, limit=5)
        assert await broker.catalog.propose(command) == [FloorRaised(start=15, left=10)]
        await broker.retention().retain()
        assert (broker.stream(stream).start, len(broker.stream(stream).index)) == (15, 5)


async def test_with_nothing_due_nothing_is_written(cluster):
    """RT2: not a byte, however often somebody looks."""
    async with cluster.broker() as broker:
        topic = await broker.topic(partitions=3, retention_bytes="150")
        for stream in topic.streams:
            await broker.produce((stream, 1))
        service = broker.retention()
        before = cluster.entries()
        for _ in range(5):
            cluster.clock.advance(HOUR)
            await service.retain()
            await service.expire()
            await service.sweep()
        assert cluster.entries() == before


async def test_after_a_jump_of_time_nothing_goes_for_an_hour(cluster):
    """Q7: one broker ten years ahead deletes nothing; the pause ends by time that surely passed."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        path = await broker.produce((stream, 1))
    cluster.clock.jump_wall(3650 * DAY)
    async with cluster.broker(accept_clock=True) as broker:
        await broker.catalog.open_session()
        assert broker.machine.timeline.paused
        service = broker.retention()
        for _ in range(3):
            before = cluster.entries()
            await service.retain()
            await service.sweep()
            assert cluster.entries() == before
            assert (broker.stream(stream).start, await cluster.paths()) == (0, [path])
            await broker.pass_time(15 * MINUTE)
        await broker.pass_time(15 * MINUTE)
        await collect(service, broker)
        assert (broker.stream(stream).start, await cluster.paths()) == (1, [])
