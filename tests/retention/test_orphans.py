"""Objects that were put and never committed are found by their names."""

import asyncio

import pytest

from dray.clock import ManualClock
from dray.machine.names import SessionId, wal_id
from dray.machine.sessions import Expire
from dray.machine.streams import CloseStream
from dray.objects.paths import WAL_PREFIX, WalName
from dray.retention import telemetry
from dray.retention.orphans import PAGE

from .shop import DAY, HOUR, NOW, TTL_MS, Cluster, pass_time
from .stores import WatchedObjects


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


async def end_session(broker, session: SessionId) -> None:
    """As an observer would, after the session fell silent."""
    live = broker.machine.sessions.live[session]
    await broker.catalog.propose(Expire(session=session, last_n=live.last_n))


async def test_what_a_killed_process_left_is_deleted_after_the_ttl_and_not_before(cluster):
    """R-106, R-107, RT7: and what it had committed stays."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic()).streams
        kept = await broker.produce((stream, 1))
        orphan, _, _ = await broker.put()
    async with cluster.broker() as broker:
        await broker.catalog.open_session()  # ends the session of the first life
        service = broker.retention()
        await broker.pass_time(TTL_MS - 1)
        await service.sweep()
        assert await cluster.paths() == sorted([kept, orphan])
        assert telemetry.ORPHANS._value.get() == 1
        await broker.pass_time(1)
        await service.sweep()
        assert await cluster.paths() == [kept]
        assert telemetry.ORPHANS._value.get() == 0
        assert not broker.machine.sessions.ended


async def test_a_live_process_may_take_its_time(cluster):
    """R-107: days between put and commit, and many sweeps by another one."""
    async with cluster.broker() as slow, cluster.broker("broker-2") as other:
        (stream,) = (await slow.topic()).streams
        path, name, created = await slow.put()
        await other.catalog.open_session()
        for _ in range(4):
            await pass_time(DAY, slow, other)
            await slow.retention().sweep()
            await other.retention()._orphans.run([(0, other.catalog)])
        assert await cluster.paths() == [path]
        await slow.commit(name, created, (stream, 1))


async def test_a_process_that_slept_past_its_end_cannot_commit_what_was_swept(cluster):
    """R-108: its session has ended, so its entry does nothing."""
    async with cluster.broker() as sleeper, cluster.broker("broker-2") as other:
        (stream,) = (await sleeper.topic()).streams
        path, name, created = await sleeper.put()
        await other.catalog.open_session()
        await end_session(other, sleeper.catalog.session.id)
        await other.pass_time(TTL_MS)
        await other.retention().sweep()
        assert path not in await cluster.paths()
        with pytest.raises(AssertionError, match="FOREIGN"):
            await sleeper.commit(name, created, (stream, 1))
        assert other.stream(stream).end == 0


async def test_objects_of_other_logs_are_counted_and_never_touched(cluster):
    """R-027, R-106, RT8: another cluster on the prefix, a log that is new on an old bucket, a stray file."""
    names = [
        (wal_id(b"stranger", SessionId(1), 1), 0),
        (wal_id(b"stranger", SessionId(9), 1), 0),
        (wal_id(b"log-id-0", SessionId(1), 7), 5),
    ]
    foreign = [WalName.of(zone="b", domain=domain, created_ms=NOW, wal_id=name).path() for name, domain in names]
    foreign.append(WAL_PREFIX + "readme.txt")
    for path in foreign:
        await cluster.store.put(path, [b"not ours"])
    async with cluster.broker() as broker:
        orphan, _, _ = await broker.put()
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        await broker.pass_time(30 * DAY)
        await broker.retention().sweep()
        assert telemetry.FOREIGN_OBJECTS._value.get() == 4
        assert await cluster.paths() == sorted(foreign)
        assert orphan not in await cluster.paths()


async def test_a_session_that_the_machine_never_gave_out_is_left_alone(cluster):
    """RT7: an object from the future of this log means that the log is older than the store."""
    path = WalName.of(zone="a", domain=0, created_ms=NOW, wal_id=wal_id(b"log-id-0", SessionId(99), 1)).path()
    await cluster.store.put(path, [b"from a log that was rolled back"])
    async with cluster.broker() as broker:
        await broker.put()
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        await broker.pass_time(30 * DAY)
        await broker.retention().sweep()
        assert await cluster.paths() == [path]


@pytest.mark.parametrize("trouble", ["list", "delete"])
async def test_a_sweep_that_did_not_find_or_delete_all_comes_again(cluster, trouble):
    """RT9: no session is forgotten before its orphans are gone."""
    async with cluster.broker() as broker:
        orphans = [(await broker.put())[0] for _ in range(5)]
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        await broker.pass_time(TTL_MS)
        store = WatchedObjects(cluster.store)
        service = broker.retention(store)
        if trouble == "list":
            store.fail_list_after = 3
        else:
            store.refuse = {orphans[2]}
        await service.sweep()
        assert len(broker.machine.sessions.ended) == 1
        assert orphans[2] in await cluster.paths()
        store.fail_list_after, store.refuse = None, set()
        await service.sweep()
        assert not broker.machine.sessions.ended
        assert await cluster.paths() == []


async def test_a_jump_of_time_in_the_middle_of_a_sweep_stops_it(cluster):
    """Q7, RT7, RT9: nothing more is deleted, and the session is not called swept."""
    async with cluster.broker() as broker:
        orphan, _, _ = await broker.put()
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        await broker.pass_time(TTL_MS)
        store = WatchedObjects(cluster.store)
        timeline = broker.machine.timeline
        store.during_list = lambda: setattr(timeline, "pause_end_ms", timeline.sure_ms + HOUR)
        service = broker.retention(store)
        await service.sweep()
        assert await cluster.paths() == [orphan]
        assert broker.machine.sessions.ended
        store.during_list = lambda: None
        await broker.pass_time(HOUR)
        await service.sweep()
        assert await cluster.paths() == []


async def test_an_object_that_is_dead_but_not_gone_is_no_orphan(cluster):
    """R-113: what the machine knows is garbage's, not the sweep's."""
    async with cluster.broker() as broker:
        topic = await broker.topic()
        path = await broker.produce((topic.streams[0], 1))
        await broker.catalog.propose(CloseStream(stream=topic.streams[0]))
        assert broker.machine.objects.dead
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        await broker.pass_time(TTL_MS)
        store = WatchedObjects(cluster.store)
        await broker.retention(store).sweep()
        assert store.deleted == []
        await broker.retention(store).retain()
        assert store.deleted == [path]


async def test_the_store_is_listed_once_and_then_only_when_a_session_is_due(cluster):
    """A list of a large bucket costs: no sweep without a reason."""
    async with cluster.broker() as broker:
        await broker.put()
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        store = WatchedObjects(cluster.store)
        service = broker.retention(store)
        for _ in range(5):
            await service.sweep()
            await broker.pass_time(HOUR)
        assert store.lists == 2, "WAL objects and files"
        await broker.pass_time(TTL_MS)
        for _ in range(5):
            await service.sweep()
        assert store.lists == 4


async def test_many_objects_are_swept_page_by_page(cluster):
    """And every page waits its turn on the clock."""
    async with cluster.broker() as broker:
        for _ in range(2 * PAGE + 10):
            await broker.put()
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        await broker.pass_time(TTL_MS)
        clock = ManualClock(cluster.clock.wall_ms(), cluster.clock.boot_ns())  # on which nobody else waits
        sweep = asyncio.create_task(broker.retention(clock=clock).sweep())
        pauses = 0
        while not sweep.done():
            await asyncio.sleep(0)
            if clock._sleepers:
                clock.advance(100)
                pauses += 1
        await sweep
        assert pauses == 2
        assert await cluster.paths() == []
