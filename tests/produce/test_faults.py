"""Producers that retry, brokers, a store and a log that fail by seed: every record once, in order.

Time is virtual and the schedule follows the seed, so a failure repeats.
"""

import asyncio
import random

import pytest

from dray.errors import NotFound, Unavailable, Unknown
from dray.ids import SeededEntropy
from dray.log.port import LostReply, NotAppended, Position
from dray.machine.sessions import Expire
from dray.objects.memory import MemoryObjects
from dray.produce.errors import OutOfOrder
from dray.replica.writer import Timing
from dray.sim.loop import SimLoop
from dray.sim.objects import FaultyObjects, ObjectFaults
from dray.sim.process import SimClock
from tests.produce.broker import Broker, batch, broker, objects_in, stored
from tests.replica.domain import new_log, replica_on

BATCHES = 40
IN_FLIGHT = 5
TIMING = Timing(ttl_ms=60_000, keepalive_ms=20_000, settle_ms=500)
DARK_SECONDS = 0.7
"""Longer than an outcome is pursued."""


class DicedLog:
    """Refuses, loses requests and replies, and is out of reach for a while, by seed."""

    def __init__(self, inner, dice: random.Random) -> None:
        self.inner = inner
        self.dice = dice
        self.share = 0.0
        self.dark_until = 0.0

    async def append(self, entry: bytes) -> Position:
        await asyncio.sleep(self.dice.random() * 0.02)
        now = asyncio.get_running_loop().time()
        if self.share and self.dice.random() < self.share / 10:
            self.dark_until = now + DARK_SECONDS
        if now < self.dark_until:
            raise LostReply("diced: out of reach")
        fate = self.dice.random()
        if fate < self.share:
            raise NotAppended("diced")
        if fate < 2 * self.share:
            raise LostReply("diced: the request was lost")
        position = await self.inner.append(entry)
        if fate < 3 * self.share:
            raise LostReply("diced: the reply was lost")
        return position

    def __getattr__(self, name):
        return getattr(self.inner, name)


async def produce_all(number: int, stream: int, brokers: list[Broker], dice: random.Random) -> dict[int, int]:
    """An idempotent producer as clients are: five in flight, then what failed again, in order. Returns the offsets."""
    acked: dict[int, int] = {}
    while len(acked) < BATCHES:
        window = [sequence for sequence in range(BATCHES) if sequence not in acked][:IN_FLIGHT]
        through = dice.choice(brokers)
        answers = {}
        for sequence in window:
            try:
                answers[sequence] = through.produce.submit(
                    batch(stream, b"%d/%d" % (number, sequence), producer=number, sequence=sequence)
                )
            except Unavailable:
                break
            if dice.random() < 0.5:
                await asyncio.sleep(0)
        for sequence, answer in answers.items():
            try:
                acked[sequence] = (await answer).base_offset
            except (Unavailable, Unknown):
                pass
            except OutOfOrder:
                lowest = min(window)
                assert sequence != lowest, "a gap for a batch that nothing is missing before"
                assert lowest not in acked or any(earlier not in acked for earlier in window if earlier < sequence)
        await asyncio.sleep(dice.random() * 0.003)
    return acked


async def disturb(brokers: list[Broker], log, dice: random.Random, clock: SimClock) -> None:
    """Expire somebody's session now and then, as an observer would."""
    async with replica_on(log, "observer", clock=clock, timing=TIMING).running() as observer:
        while True:
            await asyncio.sleep(0.3)
            session = dice.choice(brokers).replica.session
            if session is not None and session.id in observer.machine.sessions.live:
                last_n = observer.machine.sessions.live[session.id].last_n
                await observer.propose(Expire(session=session.id, last_n=last_n))


def simulated(seed: int) -> None:
    """One run in virtual time."""
    loop = SimLoop(f"produce {seed}")
    try:
        loop.run_until_complete(scenario(seed, SimClock(loop)))
    finally:
        loop.close()


@pytest.mark.parametrize("seed", range(8))
def test_every_record_is_stored_once_and_in_order_whatever_fails(seed):
    """R-092, R-097, R-098, R-100, R-101, PR1, PR2, PR4, PR8: acked offsets are what a reader finds."""
    print(f"seed {seed}")
    simulated(seed)


@pytest.mark.slow
def test_every_record_is_stored_once_and_in_order_over_many_seeds():
    """R-092, R-097, R-098, R-100, R-101."""
    for seed in range(100, 200):
        print(f"seed {seed}")
        simulated(seed)


async def scenario(seed: int, clock: SimClock) -> None:
    dice = random.Random(seed)
    log, inner = await new_log(), MemoryObjects(clock)
    logs = [DicedLog(log.handle(), dice) for _ in range(2)]
    faults = ObjectFaults(unavailable=0.08, lost_reply=0.05, lost_request=0.05, longest_delay_seconds=0.1)
    store = FaultyObjects(inner, clock, SeededEntropy(seed), ObjectFaults())
    policy = {"flush_batches": dice.choice([1, 3, 3000]), "flushes": dice.choice([1, 2, 4])}
    if dice.random() < 0.5:
        policy["hedge_floor_s"] = 0.04
    async with (
        asyncio.timeout(10_000),
        broker({0: logs[0]}, store, name="broker-1", clock=clock, timing=TIMING, **policy) as one,
        broker({0: logs[1]}, store, name="broker-2", clock=clock, timing=TIMING, **policy) as two,
    ):
        streams = await one.streams(partitions=2)
        await two.replica.sync()
        store.faults = faults
        logs[0].share = logs[1].share = 0.05
        disturbing = asyncio.create_task(disturb([one, two], log.handle(), dice, clock))
        work = [produce_all(number, stream, [one, two], dice) for number in range(3) for stream in streams]
        acked = await asyncio.gather(*work)
        disturbing.cancel()
        store.faults = ObjectFaults()
        logs[0].share = logs[1].share = 0.0
        await asyncio.gather(one.produce.drain(), two.produce.drain())
        await one.replica.sync()
        one.objects = inner
        for at, stream in enumerate(streams):
            found = await stored(one, stream)
            assert [offset for offset, _ in found] == list(range(3 * BATCHES))
            for number in range(3):
                mine = {int(value[2:]): offset for offset, value in found if value.startswith(b"%d/" % number)}
                assert list(mine) == list(range(BATCHES)), "each once, in the order of the producer"
                assert acked[number * 2 + at] == mine
        await check_objects(one, inner)


async def check_objects(one: Broker, objects: MemoryObjects) -> None:
    """PR4: every object that the machine knows is in the store."""
    there = {path[-35:-3] for path in await objects_in(objects)}
    known = {owner.wal_id.hex() for owner in one.replica.machine.objects.all()}
    assert known <= there


async def test_a_stream_that_is_closed_while_batches_fly_answers_each_of_them():
    """PR8, R-086."""
    async with broker({0: await new_log()}, MemoryObjects(), flush_batches=2) as one:
        (stream,) = await one.streams("t", 1)
        answers = [one.produce.submit(batch(stream)) for _ in range(50)]
        deletion = asyncio.create_task(one.topics.delete(await one.topics.find("t")))
        told = await asyncio.gather(*answers, return_exceptions=True)
        await deletion
        bases = [answer.base_offset for answer in told if not isinstance(answer, Exception)]
        assert bases == list(range(len(bases)))
        assert all(isinstance(answer, NotFound) for answer in told[len(bases) :])
        with pytest.raises(NotFound):
            await one.produce.submit(batch(stream))
