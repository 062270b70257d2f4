"""One produce, broken at each of its steps and calls; and the clients' side of the simulated cluster."""

import asyncio
from dataclasses import replace

import pytest

from dray.errors import DrayError
from dray.objects.port import PutUnknown, StoreUnavailable
from dray.produce.errors import StreamMissing
from dray.sim.brokers import Cluster, NoAnswer, Unreachable, surely_not
from dray.sim.network import FAIR, Link, Weather
from dray.sim.requests import make_batch
from dray.sim.workload import Fate, Workload
from dray.sim.world import Violation, World

STEPS = 40


async def no_stream(_stream):
    """What a broker answers that has not heard of a stream."""
    return -1


async def one_produce(world, *, break_it):
    """Two brokers; one produce of two batches through the first, which `break_it` disturbs; then everyone looks."""
    cluster = Cluster(world, nodes=2)
    workload = Workload(cluster)
    cluster.start()
    await cluster.create_topic(2)
    victim = world.nodes["node-0"]
    await cluster.ask(lambda broker: broker.replica.open_session(), broker=cluster.brokers["node-0"])
    await asyncio.sleep(1)
    break_it(victim)
    dice = world.dice("test")
    sent = [workload.note(workload.batch(dice, "test", stream)) for stream in cluster.streams]
    await workload.try_once(sent, broker=cluster.brokers["node-0"])
    await asyncio.sleep(30)
    if not victim.alive:
        victim.start()
    await asyncio.sleep(60)
    await workload.prove_progress()
    await workload.check()
    await cluster.compare_states()
    machine = cluster.truth.machine
    for one in sent:
        if one.fate is Fate.ACKED:
            for broker in cluster.live():
                await workload.read_acked(one, broker=broker)
    there = {len(machine.streams.find(stream).index) for stream in cluster.streams}
    assert len(there) == 1, "an object's batches are there together or not at all"
    return sent


@pytest.mark.slow
def test_a_broker_killed_at_each_step_of_a_produce_leaves_all_or_nothing():
    """T03, R-013, R-014: enumerated, not random; acked is readable, unacked is absent or complete."""
    fates = []
    for step in range(STEPS):
        world = World(step)

        def break_it(victim, step=step):
            victim.process.crash_at(victim.process.steps + step)

        sent = world.run(lambda world, break_it=break_it: one_produce(world, break_it=break_it))
        world.close()
        fates.append(sent[0].fate)
    assert fates.count(Fate.UNKNOWN) > 5, "many crashes come before the answer"
    assert fates[-10:] == [Fate.ACKED] * 10, "the steps of a produce were all covered"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["request_lost", "reply_lost", "refused"])
def test_each_call_of_a_produce_may_be_lost_or_refused_once(fault, monkeypatch):
    """T04, R-006, R-044: no lost ack, nothing twice, whichever call to the log or the store is hit."""
    real = Link.call
    for number in range(8):
        world, link_calls = World(number), []

        async def call(self, what, operation, number=number, link_calls=link_calls, **rest):
            if self.process == "node-0" and link_calls:
                counts = what in ("append", "put")
                hit = counts and len(link_calls) - 1 == number
                self.weather = replace(FAIR, timeout=1.0, **{fault: 1.0}) if hit else FAIR
                link_calls += [what] * counts
            return await real(self, what, operation, **rest)

        monkeypatch.setattr(Link, "call", call)
        sent = world.run(
            lambda world, seen=link_calls: one_produce(world, break_it=lambda victim: seen.append("begin"))
        )
        world.close()
        assert fault == "refused" or sent[0].fate is Fate.ACKED, f"call={number}: a lost call is settled"


def play(scenario, seed=1):
    world = World(seed)
    try:
        return world.run(scenario)
    finally:
        world.close()


def test_a_process_that_sleeps_or_dies_answers_nothing():
    """SM15"""

    async def scenario(world):
        cluster = Cluster(world, nodes=2)
        cluster.start()
        await cluster.create_topic(1)
        asleep, dead = cluster.brokers["node-0"], cluster.brokers["node-1"]
        asleep.process.pause()
        with pytest.raises(NoAnswer):
            await cluster.ask(lambda broker: broker.latest(cluster.streams[0]), broker=asleep)
        world.network.link("node-1", "log").weather = replace(FAIR, request_lost=1.0, timeout=60.0)
        question = asyncio.ensure_future(cluster.ask(lambda broker: broker.latest(cluster.streams[0]), broker=dead))
        await asyncio.sleep(0.02)
        world.nodes["node-1"].crash()
        with pytest.raises(NoAnswer):
            await question
        with pytest.raises(Unreachable):
            await cluster.ask(lambda broker: broker.latest(0), broker=dead)

    play(scenario)


def test_a_put_is_acknowledged_only_when_it_is_there_and_refused_only_when_it_never_is():
    """SM14"""

    async def scenario(world):
        node = world.node("a", lambda process: asyncio.sleep(1e6))
        process = node.start()
        store = world.reach_bucket(process)
        link = world.network.link("a", "objects")
        link.weather = Weather(request_lost=0.2, reply_lost=0.2, refused=0.2, late_copy=0.3, copy_within=5.0, timeout=1)
        fates = {}
        for number in range(200):
            name = f"wal/{number}"
            try:
                await store.put(name, [b"x", b"y"])
                fates[name] = "acked"
                assert await world.bucket().read(name) == b"xy"
            except PutUnknown:
                fates[name] = "unknown"
            except StoreUnavailable:
                fates[name] = "refused"
        await asyncio.sleep(10)
        there = set(await world.bucket().names())
        for name, fate in fates.items():
            assert fate == "unknown" or (name in there) == (fate == "acked"), name
        unknown = {name for name, fate in fates.items() if fate == "unknown"}
        assert unknown & there
        assert unknown - there

    play(scenario)


async def history(world):
    """Three batches that were acked, and the clients that know of them."""
    cluster = Cluster(world, nodes=1)
    workload = Workload(cluster)
    cluster.start()
    await cluster.create_topic(1)
    dice = world.dice("test")
    sent = [workload.note(workload.batch(dice, "test", cluster.streams[0])) for _ in range(3)]
    for one in sent:
        assert await workload.try_once([one])
        await asyncio.sleep(1)
    await workload.check()
    return workload, sent


def test_the_checker_tells_lost_doubled_and_misplaced_batches():
    """A checker that accepts everything proves nothing: each kind of lie is found."""

    async def lost(world):
        workload, sent = await history(world)
        ghost = workload.note(make_batch(sent[0].batch.stream, b"never sent", 1, 0))
        ghost.fate, ghost.base = Fate.ACKED, 0
        await workload.check()

    async def refused_but_there(world):
        workload, sent = await history(world)
        sent[1].fate = Fate.REFUSED
        await workload.check()

    async def elsewhere(world):
        workload, sent = await history(world)
        sent[1].base += 1
        await workload.check()

    async def stranger(world):
        workload, sent = await history(world)
        workload.history.sent.remove(sent[2])
        await workload.check()

    async def out_of_order(world):
        workload, sent = await history(world)
        sent[0].sent_at = 1e6
        await workload.check()

    async def stale(world):
        workload, _ = await history(world)
        workload.history.ends[workload.cluster.streams[0]] = 10_000
        await workload.read_latest(workload.cluster.streams[0])

    for lie in (lost, refused_but_there, elsewhere, stranger, out_of_order, stale):
        with pytest.raises(Violation):
            play(lie)


def test_nobody_may_deny_a_stream_that_is_there_though_others_are_deleted():
    async def to_a_reader(world):
        workload, _ = await history(world)
        workload.may_vanish = True
        (broker,) = workload.cluster.live()
        broker.latest = no_stream
        await workload.read_latest(workload.cluster.streams[0])

    async def to_a_producer(world):
        workload, sent = await history(world)
        workload.may_vanish = True
        workload.settle(workload.note(sent[0].batch), StreamMissing("no"))

    for denied in (to_a_reader, to_a_producer):
        with pytest.raises(Violation):
            play(denied)


def test_only_an_unknown_outcome_may_have_happened():
    assert surely_not(StoreUnavailable("no"))
    assert not surely_not(PutUnknown("perhaps"))
    assert surely_not(DrayError("a bug"))
