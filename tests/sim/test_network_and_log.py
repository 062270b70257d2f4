"""The way to the services, and the log at its end."""

import asyncio
from itertools import pairwise

import pytest

from dray.errors import Invalid, Unavailable
from dray.log.port import BEFORE_ALL, LostReply, NotAppended, Position, Trimmed
from dray.sim.network import FAIR, Weather
from dray.sim.world import World


@pytest.fixture
def world():
    world = World(5)
    yield world
    assert world.loop.failures == []
    world.close()


def play(world, boot, *, weather=FAIR, seconds=1_000.0, check=None):
    """Run `boot` as a process with a log under some weather."""

    async def run(process):
        log = world.connect(process, world.log())
        world.network.link(process.name, "log").weather = weather
        await boot(process, log)

    async def scenario(world):
        node = world.node("a", run)
        process = node.start()
        if check is not None:
            await check(node)
        await asyncio.sleep(seconds)
        assert not process.alive or check is not None

    world.run(scenario)


def landed(world):
    return [entry.entry for entry in world.log().entries()]


def test_an_acknowledged_append_is_in_the_truth_and_at_or_below_the_tail(world):
    """SM11, SM12"""

    async def boot(process, log):
        positions = [await log.append(bytes([number])) for number in range(50)]
        assert positions == sorted(set(positions))
        assert await log.tail() == positions[-1]
        assert any(b > a + 1 for a, b in pairwise(positions)), "holes are allowed, so they occur"

    play(world, boot)
    assert landed(world) == [bytes([number]) for number in range(50)]


def test_a_lost_request_did_not_happen_and_a_lost_reply_did_and_the_caller_cannot_tell(world):
    """SM11"""
    told = []

    async def boot(process, log):
        for weather, name in ((Weather(request_lost=1.0), b"request"), (Weather(reply_lost=1.0), b"reply")):
            world.network.link("a", "log").weather = weather
            with pytest.raises(LostReply) as caught:
                await log.append(name)
            told.append(str(caught.value))

    play(world, boot)
    assert landed(world) == [b"reply"]
    assert len(set(told)) == 1


def test_a_refused_append_never_arrives(world):
    """SM9, SM11"""

    async def boot(process, log):
        for number in range(100):
            with pytest.raises(NotAppended):
                await log.append(bytes([number]))

    play(world, boot, weather=Weather(refused=1.0, late_copy=1.0))
    assert landed(world) == []


def test_a_late_copy_lands_after_its_sender_is_dead(world):
    """SM8"""

    async def boot(process, log):
        await log.append(b"x")
        await asyncio.sleep(1_000)

    async def check(node):
        await asyncio.sleep(1)
        node.crash()
        assert landed(world) == [b"x"]

    play(world, boot, weather=Weather(late_copy=1.0, copy_within=500.0), check=check)
    assert landed(world) == [b"x", b"x"]


def test_what_has_left_a_process_lands_although_the_process_died(world):
    """SM8"""

    async def boot(process, log):
        await log.append(b"x")
        raise AssertionError("a dead process hears nothing")

    async def check(node):
        await asyncio.sleep(0.5)
        node.crash()
        assert landed(world) == []

    play(world, boot, weather=Weather(min_delay=1.0, max_delay=2.0), check=check)
    assert landed(world) == [b"x"]


def test_what_has_left_a_process_lands_although_its_caller_was_cancelled(world):
    """SM8"""

    async def boot(process, log):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await log.append(b"x")

    play(world, boot, weather=Weather(min_delay=1.0, max_delay=2.0))
    assert landed(world) == [b"x"]


def test_a_cut_link_loses_or_refuses_everything_and_a_join_mends_it(world):
    """SM9"""
    outcomes = set()

    async def boot(process, log):
        link = world.network.link("a", "log")
        link.cut()
        for _ in range(20):
            with pytest.raises((LostReply, NotAppended)) as caught:
                await log.append(b"never")
            outcomes.add(caught.type)
            with pytest.raises(Unavailable):
                await log.tail()
        link.join()
        await log.append(b"now")

    play(world, boot)
    assert outcomes == {LostReply, NotAppended}
    assert landed(world) == [b"now"]


def test_a_cut_between_arrival_and_answer_is_a_lost_reply(world):
    """SM11"""

    async def boot(process, log):
        with pytest.raises(LostReply):
            await log.append(b"x")

    async def check(node):
        await world.log().grown()
        world.network.link("a", "log").cut()

    play(world, boot, weather=Weather(min_delay=1.0, max_delay=2.0), check=check)
    assert landed(world) == [b"x"]


def test_followers_see_every_entry_in_order_through_cuts(world):
    """SM10"""
    got = []

    async def boot(process, log):
        async for position, entry in log.follow(BEFORE_ALL):
            got.append((position, entry))
            if len(got) == 100:
                return

    async def check(node):
        dice = world.dice("test")
        link = world.network.link("a", "log")
        for number in range(100):
            world.log().land(bytes([number]), "test")
            await asyncio.sleep(dice.random())
            link.cut() if dice.random() < 0.3 else link.join()
        link.join()

    play(world, boot, check=check)
    assert [entry for _, entry in got] == [bytes([number]) for number in range(100)]
    assert got == [(entry.position, entry.entry) for entry in world.log().entries()]


def test_a_follower_below_the_cut_is_told_and_the_tail_survives_a_trim_of_all(world):
    async def boot(process, log):
        positions = [await log.append(bytes([number])) for number in range(10)]
        await log.trim(positions[4])
        with pytest.raises(Trimmed):
            await anext(aiter(log.follow(positions[3])))
        assert await anext(aiter(log.follow(positions[4]))) == (positions[5], bytes([5]))
        with pytest.raises(Invalid):
            await log.trim(Position(positions[-1] + 1))
        await log.trim(positions[-1])
        assert await log.tail() == positions[-1]
        assert await log.append(b"next") > positions[-1]

    play(world, boot)


def test_a_rollback_takes_the_newest_entries_and_their_positions_are_used_again(world):
    log = world.log()
    positions = [log.land(bytes([number]), "test") for number in range(10)]
    assert log.rollback(4) == 4
    assert log.tail() == positions[5]
    assert [entry.entry for entry in log.lost] == [bytes([number]) for number in range(6, 10)]
    assert log.land(b"other", "test") <= positions[6] + 2
    assert log.rollback(1_000) == 7
    assert log.tail() == BEFORE_ALL


def test_an_entry_that_is_empty_or_too_large_is_refused(world):
    async def boot(process, log):
        with pytest.raises(NotAppended, match="too large"):
            await log.append(bytes((1 << 20) + 1))
        with pytest.raises(NotAppended, match="at least one byte"):
            await log.append(b"")

    play(world, boot)


def test_a_closed_log_takes_nothing_and_its_followers_end(world):
    seen = []

    async def boot(process, log):
        async def follow():
            async for _, entry in log.follow(BEFORE_ALL):
                seen.append(entry)
            seen.append("end")

        following = process.spawn(follow())
        await log.append(b"x")
        await asyncio.sleep(1)
        await log.close()
        await following
        with pytest.raises(NotAppended):
            await log.append(b"y")
        with pytest.raises(Unavailable):
            await log.tail()

    play(world, boot)
    assert seen == [b"x", "end"]
