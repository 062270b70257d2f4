"""Dead objects leave the store by steps that anybody can go on with."""

import asyncio

import pytest

from dray.machine.garbage import Gone, MarkDeleting, Marked, Pin, Unpin
from dray.machine.holds import Hold
from dray.retention.turns import PATIENCE

from .shop import DAY, HOUR, MINUTE, Cluster, pass_time
from .stores import WatchedObjects

GRACE = 10 * MINUTE


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


async def kill_rows(broker, stream, objects: int = 3) -> list[str]:
    """Objects whose last row went just now."""
    paths = [await broker.produce((stream, 1)) for _ in range(objects)]
    await broker.pass_time(2 * HOUR)
    await broker.retention().retain()
    return paths


async def test_an_object_is_deleted_after_its_grace_and_not_before_the_oldest_pin(cluster):
    """R-111."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        await broker.catalog.propose(Pin(pin="job"))
        paths = await kill_rows(broker, stream)
        service = broker.retention()
        await broker.pass_time(5 * DAY)
        before = cluster.entries()
        await service.retain()
        assert (await cluster.paths(), cluster.entries()) == (paths, before)
        await broker.catalog.propose(Unpin(pin="job"))
        await service.retain()
        assert await cluster.paths() == []
        assert broker.machine.objects.count == 0


async def test_a_hold_keeps_objects_until_its_time_is_over(cluster):
    """R-111, X9."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        await broker.catalog.propose(Hold(pin="plan", length_ms=5 * DAY))
        paths = await kill_rows(broker, stream)
        await broker.pass_time(4 * DAY)
        await broker.retention().retain()
        assert await cluster.paths() == paths
        await broker.pass_time(DAY)
        await broker.retention().retain()
        assert await cluster.paths() == []


async def test_a_pin_that_began_after_the_death_keeps_nothing(cluster):
    """R-111: whoever begins now cannot have planned with rows that were gone."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        await kill_rows(broker, stream)
        await broker.catalog.propose(Pin(pin="job"))
        await broker.pass_time(GRACE)
        await broker.retention().retain()
        assert await cluster.paths() == []


async def test_nothing_is_deleted_that_was_not_marked_and_nothing_gone_that_was_not_deleted(cluster):
    """RT5, RT6: looked at from inside the deletion."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        paths = await kill_rows(broker, stream, 40)

        def is_marked(path: str) -> None:
            marked = broker.machine.objects.deleting(100)
            assert path.split("/")[-1][:-3] in {broker.machine.objects.find(number).wal_id.hex() for number in marked}

        store = WatchedObjects(cluster.store, is_marked)
        store.refuse = set(paths[:7])
        await broker.pass_time(GRACE)
        service = broker.retention(store, deletes_in_flight=4)
        await service.retain()
        assert sorted(store.deleted) == sorted(paths[7:])
        assert store.most_at_once == 4
        assert len(broker.machine.objects.deleting(100)) == len(broker.machine.objects.dead) == 7
        store.refuse.clear()
        await service.retain()
        assert broker.machine.objects.count == 0
        assert await cluster.paths() == []


class Stopping:
    """Lets so many effects happen; the next one hangs, before or after it was done, as in a process that died."""

    def __init__(self, effects: int, *, done: bool) -> None:
        self.left = effects
        self.done = done
        self.stopped = asyncio.Event()

    async def around(self, effect):
        self.left -= 1
        if self.left > 0:
            return await effect()
        if self.left == 0 and self.done:
            await effect()
        self.stopped.set()
        return await asyncio.Event().wait()


async def crash_at(cluster: Cluster, effects: int, *, done: bool) -> bool:
    """One look of a broker that dies at an effect; False if it did not come so far."""
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        stopping = Stopping(effects, done=done)
        store = WatchedObjects(cluster.store)
        delete, propose = store.delete, broker.catalog.propose
        store.delete = lambda path: stopping.around(lambda: delete(path))
        broker.catalog.propose = lambda *commands: stopping.around(lambda: propose(*commands))
        service = broker.retention(store, deletes_in_flight=1)
        look = asyncio.create_task(service.retain())
        stop = asyncio.create_task(stopping.stopped.wait())
        await asyncio.wait([look, stop], return_when=asyncio.FIRST_COMPLETED)
        died = not look.done()
        look.cancel()
        stop.cancel()
        await asyncio.gather(look, stop, return_exceptions=True)
    return died


@pytest.mark.parametrize("done", [False, True])
async def test_whoever_comes_after_a_crash_at_any_step_finishes(done):
    """R-112: mark, each deletion, gone; before and after each of them."""
    for effects in range(1, 100):
        cluster = await Cluster().begin()
        async with cluster.broker() as broker:
            topic = await broker.topic(partitions=2, retention_ms=str(HOUR))
            await kill_rows(broker, topic.streams[0])
            alive = await broker.produce((topic.streams[1], 1))
            await broker.pass_time(GRACE)
        died = await crash_at(cluster, effects, done=done)
        assert alive in await cluster.paths()
        async with cluster.broker("broker-2") as broker:
            service = broker.retention()
            for _ in range(PATIENCE + 1):  # the dead one is still the elder, and silent
                await service.retain()
            assert await cluster.paths() == [alive]
            assert broker.machine.objects.count == 1
            assert not broker.machine.objects.dead
        if not died:
            assert effects == 6  # mark, three deletions, gone
            return
    raise AssertionError("a look never ended")


async def test_two_processes_that_collect_at_once_do_no_harm(cluster):
    """R-112: whatever they do twice is success."""
    async with cluster.broker() as broker, cluster.broker("broker-2") as other:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        paths = [await broker.produce((stream, 1)) for _ in range(30)]
        alive = await broker.produce((stream, 1), stamp=cluster.clock.wall_ms() + 3 * DAY)
        await other.catalog.open_session()
        await pass_time(2 * HOUR, broker, other)
        await broker.retention().retain()
        await pass_time(GRACE, broker, other)
        stores = [WatchedObjects(cluster.store) for _ in range(2)]
        await other.catalog.sync()
        collecting = [
            who.retention(store)._garbage.run(who.catalog) for who, store in zip((broker, other), stores, strict=True)
        ]
        await asyncio.gather(*collecting)
        await broker.catalog.sync()
        assert await cluster.paths() == [alive]
        assert set(stores[0].deleted) | set(stores[1].deleted) == set(paths)
        assert broker.machine.objects.count == 1


async def test_marks_of_a_process_that_died_are_deleted_by_the_next(cluster):
    """R-112: also when the store had deleted some of them."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        paths = await kill_rows(broker, stream)
        await broker.pass_time(GRACE)
        due = tuple(broker.machine.objects.due(0, 10))
        assert await broker.catalog.propose(MarkDeleting(objects=due, grace_ms=0)) == [Marked(objects=due)]
        await cluster.store.delete(paths[1])
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        await broker.retention().retain()
        assert await cluster.paths() == []
        assert broker.machine.objects.count == 0
        await broker.catalog.propose(Gone(objects=due))


async def test_a_log_that_was_rolled_back_deletes_nothing(cluster):
    """Q6, R-050: only the lost entries had marked these objects; what the log still says needs them."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(HOUR))).streams
        paths = await kill_rows(broker, stream)
        await broker.pass_time(GRACE)
        due = broker.machine.objects.due(GRACE, 100)
        (marked,) = await broker.catalog.propose(MarkDeleting(objects=tuple(due), grace_ms=GRACE))
        assert isinstance(marked, Marked)
        del cluster.logs[0].sequence.entries[-1:]
        await broker.retention().retain()
        assert await cluster.paths() == paths
        assert broker.catalog.failed.done()
