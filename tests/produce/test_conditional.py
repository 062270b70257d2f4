"""Appends under conditions: at the end that was expected, all or none, and once for a transaction, whatever fails.

Time is virtual and the schedule follows the seed, so a failure repeats.
"""

import asyncio
import random

import pytest

from dray.errors import Unavailable, Unknown
from dray.ids import SeededEntropy
from dray.machine.command import NotActive
from dray.objects.memory import MemoryObjects
from dray.produce.errors import StreamMissing, TransactionReused, VersionMoved
from dray.sim.loop import SimLoop
from dray.sim.objects import FaultyObjects, ObjectFaults
from dray.sim.process import SimClock
from tests.produce.broker import Broker, GatedObjects, batch, broker, objects_in, settle, stored
from tests.produce.test_faults import TIMING, DicedLog, check_objects, disturb
from tests.replica.domain import new_log

WRITES = 12
LOST_REPLIES = 0.3


async def test_an_append_is_answered_from_its_verdict_and_an_end_that_moved_writes_nothing():
    """CA1, CA2, L-32, L-51, W-18: nothing is put for what is known to fail."""
    store = GatedObjects(gated=False)
    async with broker({0: await new_log(2)}, store) as one:
        (stream,) = await one.streams()
        [placed] = await one.produce.append_if([batch(stream, b"a", records=3)], expected={stream: 0})
        assert (placed.stored.base_offset, placed.repeated) == (0, False)
        before = len(store.puts)
        with pytest.raises(VersionMoved) as moved:
            await one.produce.append_if([batch(stream, b"b")], expected={stream: 0})
        assert moved.value.version == 3
        assert len(store.puts) == before
        assert await stored(one, stream) == [(0, b"a"), (1, b"a"), (2, b"a")]


async def test_an_append_that_loses_the_race_leaves_an_object_that_is_collected():
    """L-03, L-92, CA2, X1: both looked at the same end; the machine chooses one."""
    store = GatedObjects()
    async with broker({0: await new_log(2)}, store) as one:
        (stream,) = await one.streams()
        both = [
            asyncio.create_task(one.produce.append_if([batch(stream, value)], expected={stream: 0}))
            for value in (b"a", b"b")
        ]
        await store.put_count(2)
        store.open_all()
        told = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in told) == ["VersionMoved", "list"]
        assert len(await stored(one, stream)) == 1
        assert sorted(owner.rows for owner in one.replica.machine.objects.all()) == [0, 1]


async def test_a_batch_over_streams_is_stored_whole_and_a_transaction_means_one_thing():
    """AI1, AI2, L-01, L-81"""
    async with broker({0: await new_log(2)}, MemoryObjects()) as one:
        streams = await one.streams(partitions=3)
        batches = [batch(stream, b"%d" % number) for number, stream in enumerate(reversed(streams))]
        first = await one.produce.append_if(batches, txn=b"t" * 16)
        assert [placed.stored.base_offset for placed in first] == [0, 0, 0]
        again = await one.produce.append_if(batches, txn=b"t" * 16)
        assert [placed.repeated for placed in again] == [True, True, True]
        with pytest.raises(TransactionReused):
            await one.produce.append_if([*batches[:1], batch(streams[0], records=2)], txn=b"t" * 16)
        assert [await stored(one, stream) for stream in streams] == [[(0, b"2")], [(0, b"1")], [(0, b"0")]]


async def test_under_version_1_of_the_rules_there_is_no_such_append():
    """M10, PR4: and its object does not stay."""
    store = GatedObjects(gated=False)
    async with broker({0: await new_log()}, store) as one:
        (stream,) = await one.streams()
        with pytest.raises(NotActive):
            await one.produce.append_if([batch(stream)], expected={stream: 0})
        assert await stored(one, stream) == []
        await settle()
        assert store.deleted == store.puts


async def test_a_stream_that_is_gone_is_told():
    async with broker({0: await new_log(2)}, MemoryObjects()) as one:
        (stream,) = await one.streams("t", 1)
        await one.topics.delete(await one.topics.find("t"))
        with pytest.raises(StreamMissing):
            await one.produce.append_if([batch(stream)], expected={stream: 0})
        with pytest.raises(StreamMissing):
            await one.produce.append_if([batch(stream)], txn=b"t" * 16)


async def test_a_caller_who_leaves_cuts_nothing_short():
    """PR8: what was begun is finished, and counted as long as it is under way."""
    store = GatedObjects()
    async with broker({0: await new_log(2)}, store) as one:
        (stream,) = await one.streams()
        work = asyncio.create_task(one.produce.append_if([batch(stream, b"a")], txn=b"t" * 16))
        await store.put_count(1)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert one.produce.pressure.unacked > 0
        store.open_all()
        await one.produce.drain()
        assert await stored(one, stream) == [(0, b"a")]


async def write_all(number: int, stream: int, brokers: list[Broker], dice: random.Random) -> dict[int, int]:
    """A writer that reads the end, writes there, and repeats after every answer that is none. Returns the offsets."""
    acked: dict[int, int] = {}
    for step in range(WRITES):
        txn = bytes([number + 1, step]) * 8
        expected = 0
        while step not in acked:
            through = dice.choice(brokers)
            try:
                [placed] = await through.produce.append_if(
                    [batch(stream, b"%d/%d" % (number, step))], expected={stream: expected}, txn=txn
                )
                if dice.random() < LOST_REPLIES:
                    continue  # its client never heard of it, and asks again
                acked[step] = placed.stored.base_offset
            except VersionMoved as moved:
                expected = moved.version
            except (Unavailable, Unknown):
                pass
            await asyncio.sleep(dice.random() * 0.01)
    return acked


async def scenario(seed: int, clock: SimClock) -> None:
    dice = random.Random(seed)
    log, inner = await new_log(2), MemoryObjects(clock)
    logs = [DicedLog(log.handle(), dice) for _ in range(2)]
    store = FaultyObjects(inner, clock, SeededEntropy(seed), ObjectFaults())
    async with (
        asyncio.timeout(10_000),
        broker({0: logs[0]}, store, name="broker-1", clock=clock, timing=TIMING) as one,
        broker({0: logs[1]}, store, name="broker-2", clock=clock, timing=TIMING) as two,
    ):
        (stream,) = await one.streams()
        await two.replica.sync()
        store.faults = ObjectFaults(unavailable=0.05, lost_reply=0.05, lost_request=0.05, longest_delay_seconds=0.05)
        logs[0].share = logs[1].share = 0.06
        disturbing = asyncio.create_task(disturb([one, two], log.handle(), dice, clock))
        acked = await asyncio.gather(*(write_all(number, stream, [one, two], dice) for number in range(3)))
        disturbing.cancel()
        store.faults = ObjectFaults()
        logs[0].share = logs[1].share = 0.0
        await asyncio.gather(one.produce.drain(), two.produce.drain())
        await one.replica.sync()
        one.objects = inner
        found = await stored(one, stream)
        assert [offset for offset, _ in found] == list(range(3 * WRITES)), "each once, without a gap"
        for number in range(3):
            mine = {int(value[2:]): offset for offset, value in found if value.startswith(b"%d/" % number)}
            assert mine == acked[number], "as it was told"
        await check_objects(one, inner)
    assert await objects_in(inner)


def simulated(seed: int) -> None:
    loop = SimLoop(f"conditional {seed}")
    try:
        loop.run_until_complete(scenario(seed, SimClock(loop)))
    finally:
        loop.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_transaction_is_stored_exactly_once_whatever_replies_are_lost(seed):
    """AI2, CA1, CA3, L-81, L-93, W-35"""
    print(f"seed {seed}")
    simulated(seed)


@pytest.mark.slow
def test_a_transaction_is_stored_exactly_once_over_many_seeds():
    """AI2, CA1, CA3"""
    for seed in range(100, 160):
        print(f"seed {seed}")
        simulated(seed)
