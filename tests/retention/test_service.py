"""Three loops by one clock; one elder works, the others stand by."""

import asyncio
from datetime import timedelta

import pytest

from dray.disk import LocalDisk
from dray.machine.names import domain_of
from dray.objects.files import FileObjects
from dray.objects.port import StoreUnavailable
from dray.offload import ThreadOffload
from dray.replica.errors import NotServing
from dray.retention.service import RetentionService
from dray.retention.settings import RetentionSettings
from dray.retention.turns import PATIENCE
from dray.tasks.watch import Troubled, Watch

from .shop import DAY, HOUR, MINUTE, Cluster, collect, pass_time
from .stores import WatchedObjects


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_the_service_looks_by_its_clock_until_nothing_is_left():
    """R-201, R-106: records, objects, orphans and producers, with nobody calling."""
    cluster = await Cluster().begin()
    async with cluster.broker() as broker:
        await broker.put()
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        await broker.produce((stream, 4))
        run = asyncio.create_task(broker.retention().run())
        for _ in range(26):
            await broker.pass_time(HOUR)
            await settle()
        assert (broker.stream(stream).start, broker.stream(stream).end) == (4, 4)
        assert await cluster.paths() == []
        assert not broker.machine.sessions.ended
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_the_bytes_of_a_real_directory_shrink(tmp_path):
    """R-201: what expired is gone from the disk; what is alive is not."""
    offload = ThreadOffload(2)
    store = FileObjects(tmp_path, LocalDisk(), offload)
    await store.open()

    def on_disk() -> int:
        return sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())

    cluster = await Cluster(store).begin()
    async with cluster.broker() as broker:
        topic = await broker.topic(partitions=2, retention_ms=str(HOUR))
        for _ in range(20):
            await broker.produce((topic.streams[0], 1))
        full = on_disk()
        await broker.pass_time(2 * HOUR)
        alive = await broker.produce((topic.streams[1], 1))
        await collect(broker.retention(), broker)
        assert await cluster.paths() == [alive]
        assert on_disk() == full // 20
    offload.close()


async def test_one_works_and_the_others_write_nothing():
    """RT1."""
    cluster = await Cluster().begin()
    async with cluster.broker() as elder, cluster.broker("broker-2") as other:
        (stream,) = (await elder.topic(retention_ms=str(HOUR))).streams
        await elder.produce((stream, 1))
        await other.catalog.open_session()
        await pass_time(2 * HOUR, elder, other)
        await elder.catalog.sync()
        before = cluster.entries()
        waiting = other.retention()
        for _ in range(2):
            await waiting.retain()
            await waiting.expire()
            await waiting.sweep()
        assert cluster.entries() == before
        await elder.retention().retain()
        assert elder.stream(stream).start == 1


async def test_where_the_elder_leaves_its_work_another_does_it():
    """A live process whose store refuses it must not fill everybody's disk."""
    cluster = await Cluster().begin()
    async with cluster.broker() as elder, cluster.broker("broker-2") as other:
        (stream,) = (await elder.topic(retention_ms=str(HOUR))).streams
        path = await elder.produce((stream, 1))
        await other.catalog.open_session()
        await pass_time(2 * HOUR, elder, other)
        store = WatchedObjects(cluster.store)
        store.refuse = {path}
        broken, healthy = elder.retention(store), other.retention()
        for _ in range(PATIENCE + 2):
            await broken.retain()
            await pass_time(10 * MINUTE, elder, other)
            await healthy.retain()
        assert await cluster.paths() == []


async def test_a_domain_that_nobody_writes_to_still_sees_time_pass():
    """Where no session is live, the catalog's elder opens one: else nothing there would ever come due."""
    cluster = await Cluster().begin(2)
    async with cluster.broker() as broker:
        topic = await broker.topic(partitions=2, retention_ms=str(HOUR))
        for stream in topic.streams:
            await broker.produce((stream, 1))
        for _, replica in broker.domains:
            await replica.close_session()
    async with cluster.broker("broker-2") as broker:
        await broker.catalog.open_session()
        service = broker.retention()
        await service.retain()
        assert all(replica.session is not None for _, replica in broker.domains)
        await broker.pass_time(2 * HOUR)
        await service.retain()
        assert [broker.stream(stream).start for stream in topic.streams] == [1, 1]


async def test_a_domain_whose_only_writer_died_is_taken_over():
    """Nobody else has a session there, so nobody else could expire it (Q5)."""
    cluster = await Cluster().begin(2)
    async with cluster.broker() as dead:
        (stream,) = (await dead.topic(retention_ms=str(HOUR))).streams
        await dead.produce((stream, 1))
    domain = domain_of(stream)
    async with cluster.broker("broker-2") as broker:
        service = broker.retention()
        for _ in range(PATIENCE + 1):
            assert broker.domains[domain].session is None
            await service.retain()
        assert broker.domains[domain].session is not None


async def test_a_bug_in_one_step_hinders_no_other_and_shows():
    """RT10, WT2, WT3."""
    cluster = await Cluster().begin()
    async with cluster.broker() as broker:
        await broker.put()  # an orphan, of a session that has ended by the time of the sweep
    async with cluster.broker() as broker:
        await broker.topic(partitions=1)
        watch = Watch(cluster.clock)
        service = RetentionService(domains=broker.domains, store=cluster.store, clock=cluster.clock, watch=watch)

        async def buggy(replica: object) -> None:
            raise ZeroDivisionError

        service._floors.run = buggy
        run = asyncio.create_task(service.run())
        for _ in range(26):
            await broker.pass_time(HOUR)
            await settle()
        assert await cluster.paths() == [], "the sweep goes on"
        with pytest.raises(Troubled, match="retention-floors-0"):
            watch.check()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_a_domain_that_fails_hinders_no_other():
    """RT10."""
    cluster = await Cluster().begin(2)
    async with cluster.broker() as broker:
        topic = await broker.topic(partitions=2, retention_ms=str(HOUR))
        for stream in topic.streams:
            await broker.produce((stream, 1))
            await broker.put(domain_of(stream))
    async with cluster.broker() as broker:
        for _, replica in broker.domains:
            await replica.open_session()
        await broker.pass_time(DAY)
        first, second = sorted(topic.streams, key=domain_of)

        async def refuse(*commands: object) -> None:
            raise NotServing("not now")

        broker.domains.of(first).propose = refuse
        broker.domains.of(first).sync = refuse
        service = broker.retention()
        await service.retain()
        await service.expire()
        await service.sweep()
        assert (broker.stream(first).start, broker.stream(second).start) == (0, 1)
        assert broker.domains.of(first).machine.sessions.ended
        assert not broker.domains.of(second).machine.sessions.ended


async def test_a_store_that_does_not_answer_costs_a_pass_and_nothing_else():
    """RT10: the floors rise while the store is away."""
    cluster = await Cluster().begin()
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        path = await broker.produce((stream, 1))
        await broker.pass_time(2 * HOUR)
        store = WatchedObjects(cluster.store)
        store.refuse, store.fail_list_after = {path}, 0
        service = broker.retention(store)
        await collect(service, broker)
        await service.sweep()
        assert broker.stream(stream).start == 1
        assert await cluster.paths() == [path]
        with pytest.raises(StoreUnavailable):
            await store.delete(path)


@pytest.mark.parametrize(("key", "value"), [("interval", 0), ("orphan_ttl", 10**10)])
def test_a_time_that_makes_no_sense_is_refused(key, value):
    with pytest.raises(ValueError, match=f"retention.{key}"):
        RetentionSettings(**{key: timedelta(seconds=value)})
