"""Members at brokers that hear them, that do not, and that are gone."""

import asyncio

import pytest

from dray.clock import ManualClock
from dray.groups.deadlines import Timetable
from dray.groups.errors import AssignmentTooLarge, BadGroupId, BadSessionTimeout, GroupSaysNo
from dray.machine.groups.codes import GroupCode, Joined, PendingJoin
from dray.machine.groups.names import MemberId
from dray.machine.groups.roster import Preparing, Stable
from dray.machine.offsets import CommitOffsets
from dray.machine.sessions import Expire, KeepAlive
from tests.groups.party import GROUP, SESSION_MS, Party, caller
from tests.retention.shop import Cluster


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


async def test_a_settled_member_beats_without_writing(cluster):
    """GS2, R-175"""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        joined = await party.alone()
        before = cluster.entries()
        for _ in range(5):
            await party.live(SESSION_MS // 2)
            assert await party.beat(joined.member, joined.generation) is GroupCode.ACCEPTED
        assert cluster.entries() == before
        assert list(party.group.members) == [joined.member]


async def test_nothing_is_written_about_an_id_that_was_used(cluster):
    """GS2: its time may run on when the member has joined (seed groups-cooperative/510341)."""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        given = await party.join(must_know=True)
        assert isinstance(given, PendingJoin)
        joining = asyncio.create_task(party.join(given.member))
        await party.settle()
        joined = await joining
        await party.sync(joined, {joined.member: b"all"})
        before = cluster.entries()
        for _ in range(4):
            await party.live(SESSION_MS // 2)
            assert await party.beat(joined.member, joined.generation) is GroupCode.ACCEPTED
        assert cluster.entries() == before


async def test_two_members_of_two_brokers_are_told_of_one_generation(cluster):
    """GS4, G2, R-168, K-074: the same answers, wherever a call is parked."""
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        here, there = await Party.at(one), await Party.at(two, rank=1)
        first = asyncio.create_task(here.join())
        second = asyncio.create_task(there.join())
        for _ in range(3):
            await here.settle()
            await there.settle()
        leader, follower = sorted([await first, await second], key=lambda joined: not joined.members)
        assert leader.generation == follower.generation
        assert {one.member for one in leader.members} == {leader.member, follower.member}
        at_leader, at_follower = (here, there) if leader is first.result() else (there, here)
        parked = asyncio.create_task(at_follower.sync(follower))
        await at_follower.settle()
        assert not parked.done()
        given = {leader.member: b"1", follower.member: b"2"}
        assert await at_leader.sync(leader, given) == b"1"
        assert await parked == b"2"
        assert await at_leader.sync(follower) == b"2", "any broker would say the same"


async def test_a_beat_at_another_broker_is_answered_when_the_move_is_known(cluster):
    """GS1, G4, G5: so the old home cannot call the member silent any more."""
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        here, there = await Party.at(one), await Party.at(two, rank=1)
        joined = await here.alone()
        assert await there.beat(joined.member, joined.generation) is GroupCode.ACCEPTED
        await one.catalog.sync()
        assert here.group.members[joined.member].home == two.catalog.session.id
        for _ in range(4):
            await here.live(SESSION_MS // 2, there)
            assert await there.beat(joined.member, joined.generation) is GroupCode.ACCEPTED
        assert list(here.group.members) == [joined.member]


async def test_nobody_is_unknown_to_a_broker_that_only_lags(cluster):
    """GS5"""
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        here, there = await Party.at(one), await Party.at(two, rank=1)
        await two.catalog.propose(KeepAlive())
        joined = await here.alone()
        lagging = two.catalog.machine.groups.find("g") is None
        assert await there.beat(joined.member, joined.generation) is GroupCode.ACCEPTED
        assert await there.beat("stranger", joined.generation) is GroupCode.UNKNOWN_MEMBER
        assert await there.beat(joined.member, joined.generation + 1) is GroupCode.OTHER_GENERATION
        assert lagging in (True, False)


async def test_who_is_silent_for_its_session_is_removed_and_who_beats_is_not(cluster):
    """G4, R-175"""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        joined = await party.alone()
        await party.live(SESSION_MS - 1)
        assert list(party.group.members) == [joined.member]
        await party.live(10)
        assert party.group.is_empty
        assert await party.beat(joined.member, joined.generation) is GroupCode.UNKNOWN_MEMBER


async def test_a_broker_that_slept_blames_nobody(cluster):
    """GS3, R-169: whoever slept heard nothing."""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        joined = await party.alone()
        party.keeper.plan()
        cluster.clock.advance(60 * SESSION_MS)
        await party.settle()
        assert list(party.group.members) == [joined.member]
        await party.live(SESSION_MS + 10)
        assert party.group.is_empty


def test_deadlines_move_by_the_time_that_their_loop_slept():
    """GS3"""
    clock = ManualClock()
    deadlines: Timetable[str] = Timetable(clock)
    deadlines.set("a", 400)
    assert deadlines.plan() == 0.4
    clock.advance(700)
    assert deadlines.take() == ["a"], "a little late is not asleep"
    deadlines.set("b", 500)
    deadlines.set("c", 5_000)
    assert deadlines.plan() == 0.5
    clock.advance(30_500)
    assert deadlines.take() == ["b"]
    clock.advance(4_499)
    assert deadlines.take() == []
    clock.advance(1)
    assert deadlines.take() == ["c"]


def test_a_loop_that_sleeps_in_the_middle_of_its_work_moves_its_deadlines_too():
    """GS3: a step waits for the log, and a process may sleep then as well as between two steps."""
    clock = ManualClock()
    deadlines: Timetable[str] = Timetable(clock)
    deadlines.set("a", 5_000)
    deadlines.plan()
    deadlines.tick()
    assert deadlines.take() == []
    for _ in range(6):  # a log that is slow is no sleep
        clock.advance(500)
        deadlines.tick()
    clock.advance(20_000)
    deadlines.plan()
    assert deadlines.take() == []
    clock.advance(2_000)
    assert deadlines.take() == ["a"]


def test_a_loop_that_had_nothing_timed_is_woken_for_the_first_deadline():
    """GS3: else it sleeps on, and the sleep of its process passes unseen within its own."""
    clock = ManualClock()
    table: Timetable[str] = Timetable(clock)
    assert table.take() == []
    assert table.plan() == 10.0
    clock.advance(300)
    assert table.set("member", 10_000), "its end is behind the end of the sleep, and still the loop must wake"
    assert table.take() == []
    assert table.plan() == 0.5
    assert not table.set("another", 10_000), "this one is in time"
    clock.advance(9_000)  # the process sleeps: 8.5 s of it were not lived
    assert table.take() == []
    clock.advance(9_499)
    assert table.take() == []
    clock.advance(1)
    assert table.take() == ["member", "another"]


async def test_a_home_forgets_what_it_timed_before_its_member_went_elsewhere(cluster):
    """GS6: a commit that comes back takes the home, and finds no old deadline there."""
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        here, there = await Party.at(one), await Party.at(two, rank=1)
        joined = await here.alone()
        await here.live(SESSION_MS - 2_000, there)
        assert await there.beat(joined.member, joined.generation) is GroupCode.ACCEPTED
        commit = CommitOffsets(group=GROUP, rows=(), member=joined.member, generation=joined.generation)
        await one.catalog.propose(commit)
        assert here.group.members[joined.member].home == one.catalog.session.id
        await here.settle()
        await here.live(SESSION_MS - 1_000, there)
        assert list(here.group.members) == [joined.member]
        await here.live(2_000, there)
        assert here.group.is_empty, "a commit is no member for ever"


async def test_who_synced_elsewhere_is_not_missed_by_the_broker_that_answered_its_join(cluster):
    """GS6: that broker has not seen it sync."""
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        here, there = await Party.at(one), await Party.at(two, rank=1)
        joining = asyncio.create_task(here.join())
        await here.settle()
        joined = await joining
        await there.sync(joined, {joined.member: b"all"})
        for _ in range(14):
            assert await here.beat(joined.member, joined.generation) is GroupCode.ACCEPTED
            await here.live(5_000, there)
        assert list(here.group.members) == [joined.member]


async def test_a_member_is_answered_by_the_log_while_its_removal_is_under_way(cluster):
    """GS7: from memory it would be told that all is well."""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        joined = await party.alone()
        party.keeper.plan()
        await party.live(SESSION_MS - 400)
        party.keeper.plan()
        cluster.clock.advance(450)
        removing = asyncio.create_task(party.keeper.step())
        await asyncio.sleep(0)
        assert list(party.group.members) == [joined.member]
        with pytest.raises(GroupSaysNo) as no:
            await party.beat(joined.member, joined.generation)
        assert no.value.code is GroupCode.UNKNOWN_MEMBER
        await removing


async def test_who_waited_at_a_broker_that_lost_its_session_is_at_home_there_again(cluster):
    """GS1: or whoever keeps the group would miss it, though it was answered."""
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        here, there = await Party.at(one), await Party.at(two, rank=1)
        joined = await here.alone()
        waiting = asyncio.create_task(there.join())
        await there.settle()
        home = there.broker.catalog.session.id
        await here.broker.catalog.sync()
        session = here.broker.catalog.machine.sessions.live[home]
        await here.broker.catalog.propose(Expire(session=home, last_n=session.last_n))
        await there.broker.catalog.propose(KeepAlive())
        again = asyncio.create_task(here.join(joined.member))
        await here.settle(again)
        told = await waiting
        assert here.group.members[told.member].home == there.broker.catalog.session.id != home
        await again


async def test_a_call_that_is_under_way_is_no_silence(cluster):
    """GS7: whoever is about to be told that all is well is not removed right after it."""
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        here, there = await Party.at(one), await Party.at(two, rank=1)
        joined = await here.alone()
        homes = here.service.homes[0]
        with homes.asks(GROUP, joined.member):
            await here.live(SESSION_MS + 1_000, there)
            assert list(here.group.members) == [joined.member]
        await here.live(2 * SESSION_MS, there)
        assert here.group.is_empty


async def test_members_of_a_broker_that_is_gone_go_on_at_another_or_are_missed(cluster):
    """G4, R-169: the end of a broker is nobody's end."""
    async with cluster.broker("a") as one:
        here = await Party.at(one)
        async with cluster.broker("b") as two:
            there = await Party.at(two)
            joined = await there.alone()
        await here.expire(joined.member)
        await here.settle()
        await here.live(SESSION_MS - 10)
        assert list(here.group.members) == [joined.member]
        assert await here.beat(joined.member, joined.generation) is GroupCode.ACCEPTED
        await here.live(SESSION_MS - 10)
        assert list(here.group.members) == [joined.member], "it is at home here now"
        await here.live(20)
        assert here.group.is_empty


async def test_a_given_id_of_a_broker_that_is_gone_holds_up_nobody(cluster):
    """R-169"""
    async with cluster.broker("a") as one:
        here = await Party.at(one)
        joined = await here.alone()
        async with cluster.broker("b") as two:
            given = await (await Party.at(two, rank=1)).join(must_know=True)
            assert isinstance(given, PendingJoin)
        await here.expire(given.member)
        again = asyncio.create_task(here.join(joined.member, metadata=b"new"))
        await here.settle(again)
        await here.settle(again)
        assert (await again).generation == joined.generation + 1


async def test_the_next_broker_ends_a_phase_that_the_first_left(cluster):
    """R-169: one step later, and both at once do no harm."""
    async with cluster.broker() as broker:
        second = await Party.at(broker, rank=1)
        joining = asyncio.create_task(second.join())
        await second.settle()
        assert second.group.state == Preparing(initial=True, left_ms=60_000)
        await second.live(999)
        assert not joining.done()
        await second.live(2)
        assert (await joining).generation == 1


async def test_a_member_that_waits_is_not_silent_and_one_that_went_away_is(cluster):
    """G4, R-169"""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        first = await party.alone()
        waiting = asyncio.create_task(party.join())
        await party.settle()
        for _ in range(4):
            await party.live(SESSION_MS // 2)
            assert await party.beat(first.member, first.generation) is GroupCode.REBALANCING
        assert len(party.group.members) == 2
        waiting.cancel()
        again = asyncio.create_task(party.join(first.member))
        await party.settle(again)
        assert isinstance(await again, Joined)
        assert len(party.group.members) == 2, "who went away has joined all the same"
        await party.live(SESSION_MS + 10)
        assert list(party.group.members) in ([], [first.member])


async def test_a_follower_that_does_not_sync_is_missed_in_time(cluster):
    """R-169"""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        first, second = asyncio.create_task(party.join()), asyncio.create_task(party.join())
        await party.settle(first, second)
        await party.settle(first, second)
        leader, follower = sorted([await first, await second], key=lambda joined: not joined.members)
        await party.sync(leader)
        for _ in range(13):
            await party.live(5_000)
            await party.beat(leader.member, leader.generation)
            if MemberId(follower.member) in party.group.members:
                await party.beat(follower.member, follower.generation)
        assert list(party.group.members) == [leader.member]


async def test_a_stopping_broker_sends_whoever_waits_elsewhere(cluster):
    """R-169"""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        await party.alone()
        waiting = asyncio.create_task(party.join())
        await party.settle()
        party.service.stop()
        with pytest.raises(Exception, match="stopping"):
            await waiting


async def test_what_cannot_be_is_refused_before_it_is_written(cluster):
    """R-173"""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        before = cluster.entries()
        for session_ms in (5_999, 1_800_001):
            with pytest.raises(BadSessionTimeout):
                await party.join(session_ms=session_ms)
        with pytest.raises(BadGroupId):
            await party.service.classic.leave("", [caller("m")])
        assert cluster.entries() == before
        joined = await party.alone()
        with pytest.raises(AssignmentTooLarge):
            await party.sync(joined, {joined.member: bytes(1 << 20)})
        with pytest.raises(GroupSaysNo) as denied:
            await party.join("ghost")
        assert denied.value.code is GroupCode.UNKNOWN_MEMBER
        assert party.group.state == Stable()


async def test_whoever_leaves_is_forgotten_at_once(cluster):
    """R-176"""
    async with cluster.broker() as broker:
        party = await Party.at(broker)
        joined = await party.alone()
        left = await party.service.classic.leave("g", [caller(joined.member), caller("stranger")])
        assert left == [GroupCode.ACCEPTED, GroupCode.UNKNOWN_MEMBER]
        assert party.group.is_empty
