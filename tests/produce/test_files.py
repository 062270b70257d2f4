"""Produce on local files that are written under their final name, with the power going at every call of the disk."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from dray.clock import ManualClock
from dray.ids import SeededEntropy
from dray.machine.sessions import Expire
from dray.objects.files import FileObjects
from dray.offload import InlineOffload
from dray.retention.orphans import Orphans
from dray.retention.settings import RetentionSettings
from dray.sim.disk import FakeDisk, every_crash
from dray.wal.codec import BadWalObject, decode
from tests.produce.broker import Broker, batch, broker, objects_in, settle, stored
from tests.replica.domain import new_log

ROOT = Path("/objects")


async def opened(disk: FakeDisk, life: int) -> FileObjects:
    objects = FileObjects(ROOT, disk, InlineOffload(), SeededEntropy(life))
    await objects.open()
    return objects


async def produce(one: Broker, disk: FakeDisk, acknowledged: list[bytes]) -> None:
    """Batches one after another, until the power goes."""
    (stream,) = await one.streams()
    for number in range(4):
        value = b"%d" % number * 700
        answer = one.produce.submit(batch(stream, value))
        while not answer.done():
            if disk.crashed:
                return
            await asyncio.sleep(0)
        answer.result()
        acknowledged.append(value)


@pytest.mark.slow
async def test_a_crash_at_any_call_loses_nothing_acknowledged_and_no_torn_object_is_ever_read() -> None:
    """PR1, O10, RT7, L-71: whatever the index names is whole; what is torn nothing names, and it is swept."""
    crashes = torn = 0
    for disk in every_crash(seeds=(None, 0, 1)):
        log, clock, acknowledged = await new_log(), ManualClock(), list[bytes]()
        with disk.until_crash():
            async with broker({0: log.handle()}, await opened(disk, 1), clock=clock) as one:
                await produce(one, disk, acknowledged)
        crashes += 1
        objects = await opened(disk, 2)
        torn += await torn_objects(objects)
        async with broker({0: log.handle()}, objects, clock=clock, name="broker-2") as one:
            topic = one.topics.peek("t")
            (stream,) = topic.streams if topic is not None else await one.streams()
            found = [value for _, value in await stored(one, stream)]
            assert found[: len(acknowledged)] == acknowledged, disk
            await one.produce.submit(batch(stream, b"after"))
            assert await swept(one, clock) == [], disk
            assert [value for _, value in await stored(one, stream)] == [*found, b"after"]
            await settle()
    assert crashes > 40
    assert torn > 5, "the disk left torn objects, or this test is about nothing"


async def torn_objects(objects: FileObjects) -> int:
    torn = 0
    for path in await objects_in(objects):
        try:
            decode(await objects.get(path))
        except BadWalObject:
            torn += 1
    return torn


async def swept(one: Broker, clock: ManualClock) -> list[str]:
    """What a sweep leaves of objects that no index names."""
    for session, live in list(one.replica.machine.sessions.live.items()):
        if one.replica.session is None or session != one.replica.session.id:
            await one.replica.propose(Expire(session=session, last_n=live.last_n))
    settings = RetentionSettings(orphan_ttl=timedelta(0))
    orphans = Orphans(domains=one.domains, store=one.objects, clock=clock, settings=settings)
    await orphans.run([(0, one.replica)])
    machine = one.replica.machine
    known = {
        one.replica.machine.objects.find(row.object).wal_id.hex()
        for topic in [one.topics.peek("t")]
        if topic is not None
        for stream in topic.streams
        for row in machine.streams.find(stream).index.rows(0)
    }
    return [path for path in await objects_in(one.objects) if path.rsplit("/", 1)[1][:-3] not in known]
