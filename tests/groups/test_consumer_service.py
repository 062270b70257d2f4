"""Members of consumer groups at brokers that hear them, that do not, and that are gone."""

import asyncio

import pytest

from dray.errors import Unavailable, Unknown
from dray.groups.consumer import Heartbeat, Told, claim_of
from dray.groups.errors import BadPattern, UnknownAssignor
from dray.machine.command import NotActive
from dray.machine.groups.codes import GroupCode
from dray.machine.groups.masks import size_of
from dray.machine.groups.reconcile import MemberState
from dray.replica.errors import CommitUnknown
from dray.servers.kafka.apis.consumer_group_heartbeat import refuse
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.groups.crew import Crew, Member
from tests.groups.party import GROUP
from tests.retention.shop import Cluster

SESSION_MS = 45_000


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


def waits_for(event, work):
    """The same, once something has happened."""

    async def waits(*arguments):
        await event.wait()
        return await work(*arguments)

    return waits


async def test_a_first_join_is_answered_with_its_partitions(cluster):
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        crew, one = await Crew.at(broker), Member("1")
        told = await crew.enter(one)
        assert isinstance(told, Told)
        assert (told.epoch, one.partitions, told.interval_ms) == (2, [0, 1, 2, 3], 5_000)


async def test_a_join_that_no_keeper_sees_is_answered_with_nothing_yet(cluster):
    """Nobody waits for a keeper that is gone: the next one has the target a step later."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        crew, one = await Crew.at(broker, rank=1, consumer_join_wait="10ms"), Member("1")
        told = await crew.enter(one, keeps=False)
        assert isinstance(told, Told)
        assert (told.epoch, told.assigned, told.interval_ms) == (1, {}, 1_000)
        await crew.settle()
        assert crew.consumers.is_behind, "the broker before this one may still do it"
        await crew.live(1_100)
        assert not crew.consumers.is_behind
        await crew.says(one)
        assert one.partitions == [0, 1, 2, 3]


async def test_a_member_that_missed_an_answer_is_told_what_it_owns_by_the_log(cluster):
    """GS8: an older call of its own, which says that it owns less, may still wait at another broker."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        crew, one = await Crew.at(broker), Member("1")
        await crew.enter(one)
        heard = crew.consumers.members["1"].heard
        told = await crew.says(one, owned={}, names=["orders"], rebalance_ms=60_000)
        assert isinstance(told, Told)
        assert one.partitions == [0, 1, 2, 3]
        assert crew.consumers.members["1"].heard > heard


async def test_a_call_that_waited_counts_as_old_as_it_is(cluster):
    """GS8, G10: its client went on through another connection meanwhile."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        crew, one = await Crew.at(broker), Member("1")
        await crew.enter(one)
        late = Heartbeat(group=GROUP, member="1", epoch=one.epoch, owned={}, rebalance_ms=70_000, names=["later"])
        held = asyncio.Event()
        crew.service.consumers._views.of = waits_for(held, crew.service.consumers._views.of)
        waiting = asyncio.create_task(crew.service.consumers.beat(late))
        await asyncio.sleep(0)
        assert isinstance(await crew.says(one), Told), "by the log, because a call of its own is under way"
        held.set()
        assert await waiting is GroupCode.MOVED
        assert crew.consumers.members["1"].names == ("orders",)


async def test_a_settled_member_beats_without_writing(cluster):
    """GS2, R-166: also one that says everything, and one that waits for what another still owns."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        crew, one, two = await Crew.at(broker), Member("1"), Member("2")
        await crew.enter(one)
        await crew.enter(two)
        await crew.live(1_000)
        await crew.says(two)
        await crew.says(two)
        assert crew.consumers.members["2"].state is MemberState.UNRELEASED
        before = cluster.entries()
        for _ in range(5):
            await crew.live(1_000)
            assert isinstance(await crew.says(two), Told)
        assert cluster.entries() == before, "who waits for others writes nothing"

        await crew.agree(one, two)
        assert sorted(one.partitions + two.partitions) == [0, 1, 2, 3]
        before = cluster.entries()
        for _ in range(12):
            await crew.live(5_000)
            for member in (one, two):
                told = await crew.says(member, names=["orders"], rebalance_ms=60_000)
                assert isinstance(told, Told)
                assert told.assigned == member.owned, "a full request is told all"
                assert told.interval_ms == 5_000
        assert cluster.entries() == before
        assert set(crew.consumers.members) == {"1", "2"}


async def test_a_beat_at_another_broker_is_answered_when_its_home_has_moved(cluster):
    """GS1, G4, G5: so the old home cannot call the member silent any more."""
    async with cluster.broker("a") as first, cluster.broker("b") as second:
        await first.topic(partitions=2)
        await second.catalog.sync()
        here, there = await Crew.at(first), await Crew.at(second, rank=1)
        one = Member("1")
        await here.enter(one)
        for _ in range(12):
            await second.catalog.sync()
            assert isinstance(await there.says(one), Told)
            home = there.consumers.members["1"].home
            assert home == second.catalog.session.id
            await here.live(5_000, there)
        await first.catalog.sync()
        assert list(here.consumers.members) == ["1"]


async def test_a_silent_member_goes_and_its_partitions_are_given_to_others(cluster):
    """R-181, R-182."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=4)
        crew, one, two = await Crew.at(broker), Member("1"), Member("2")
        await crew.enter(one)
        await crew.enter(two)
        await crew.agree(one, two)
        for _ in range(9):
            await crew.live(5_000)
            await crew.says(one)
        assert list(crew.consumers.members) == ["1"]
        await crew.agree(one)
        assert one.partitions == [0, 1, 2, 3]
        assert await crew.says(two) is GroupCode.UNKNOWN_MEMBER


async def test_who_does_not_let_go_in_its_time_goes(cluster):
    """R-182."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=2)
        crew, one, two = await Crew.at(broker), Member("1"), Member("2")
        await crew.enter(one)
        had = one.owned
        await crew.enter(two)
        for _ in range(13):
            await crew.live(5_000)
            one.owned = had
            if await crew.says(one) is GroupCode.UNKNOWN_MEMBER:
                break
            await crew.says(two)
        assert "1" not in crew.consumers.members
        await crew.agree(two)
        assert two.partitions == [0, 1]


async def test_members_of_a_dead_broker_are_given_their_full_time(cluster):
    """R-169, G4."""
    async with cluster.broker("b") as second:
        async with cluster.broker("a") as first:
            await first.topic(partitions=2)
            here = await Crew.at(first)
            there = await Crew.at(second, rank=1)
            one, two = Member("1"), Member("2")
            await here.enter(one)
            await here.enter(two)
        await second.catalog.sync()
        home = there.consumers.members["1"].home
        await there.end(home)
        await there.settle()
        await there.live(SESSION_MS // 2)
        assert isinstance(await there.says(one), Told)
        await there.live(SESSION_MS // 2 + 2_000)
        assert list(there.consumers.members) == ["1"], "it was heard again; the other was not"


async def test_new_topics_and_partitions_reach_a_group_by_themselves(cluster):
    """R-183."""
    async with cluster.broker() as broker:
        crew, one = await Crew.at(broker), Member("1")
        keeper = asyncio.create_task(crew.service.consumer_keepers[0].run())
        try:
            assert isinstance(await crew.enter(one), Told)
            assert one.partitions == []
            topic = await broker.topic(partitions=2)
            await crew.agree(one)
            assert one.partitions == [0, 1]
            await broker.topics.add_partitions(topic, 5)
            await crew.agree(one)
            assert one.partitions == [0, 1, 2, 3, 4]
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)


async def test_a_pattern_is_resolved_and_looked_at_again(cluster):
    """R-183."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=2)
        crew, one = await Crew.at(broker), Member("1")
        call = Heartbeat(group=GROUP, member="1", epoch=0, rebalance_ms=1, regex="ord.*", owned={})
        one.hears(await crew.service.consumers.beat(call))
        assert one.epoch == 1
        await crew.agree(one)
        assert one.partitions == [0, 1]
        await broker.topic("ordinary", partitions=1)
        crew.service.consumer_keepers[0].catalog_changed()
        await crew.agree(one, one)
        await crew.live(10_000)
        await crew.agree(one)
        assert size_of(one.owned) == 3
        with pytest.raises(BadPattern):
            await crew.says(one, regex="(")
        with pytest.raises(UnknownAssignor):
            await crew.says(one, assignor="best")


async def test_whoever_stops_or_may_not_serve_says_so_and_nothing_else(cluster):
    """E1: an outcome that nobody knows is neither a success nor a failure."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=2)
        crew, one = await Crew.at(broker), Member("1")
        await crew.enter(one)

        async def lost(*_: object) -> None:
            raise CommitUnknown("the answer was lost")

        whole, broker.catalog.propose = broker.catalog.propose, lost
        with pytest.raises(Unknown):
            await crew.says(one, assignor="range")
        broker.catalog.propose = whole
        crew.service.stop()
        with pytest.raises(Unavailable):
            await crew.says(one)


async def test_a_partition_from_outside_makes_no_long_mask(cluster):
    async with cluster.broker() as broker:
        await broker.topic(partitions=2)
        crew, one = await Crew.at(broker), Member("1")
        await crew.enter(one)
        group = crew.consumers
        member = group.members["1"]
        [topic] = one.owned
        claim = claim_of(group, member, {topic: (0, 1, (1 << 31) - 1, -5), bytes(16): (7,)})
        assert claim is not None
        assert (claim.masks, claim.alien) == ({topic: 0b11}, True)


async def test_what_nobody_subscribes_any_more_counts_as_owned_until_it_is_let_go(cluster):
    """G6, G7: the group knows nothing of the topic any more, and yet it is in the member's hands."""
    async with cluster.broker() as broker:
        await broker.topic(partitions=2)
        await broker.topic("other", partitions=1)
        crew, one, two = await Crew.at(broker), Member("1"), Member("2")
        await crew.enter(one)
        had = one.owned
        await crew.says(one, names=["other"])
        await crew.settle()
        one.owned = had
        assert isinstance(await crew.says(one), Told)
        one.owned = had
        await crew.enter(two)
        for _ in range(3):
            await crew.live(1_000)
            await crew.says(two)
            one.owned = had
            await crew.says(one)
        assert two.partitions == [], "the first has not let go of it"
        one.owned = {}
        await crew.says(one)
        await crew.agree(one, two)
        assert size_of(two.owned) == 2


def test_a_fault_of_ours_is_told_as_an_outage():
    """What a client takes as final is never said by accident."""
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    assert refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refuse(request, ErrorCode.INVALID_REQUEST).error_code == ErrorCode.INVALID_REQUEST


async def test_an_old_directory_has_no_consumer_groups_until_it_is_activated(cluster, monkeypatch):
    """M10: no outage, which a member would wait for to end."""
    async with cluster.broker() as broker:
        crew, one = await Crew.at(broker), Member("1")
        with monkeypatch.context() as old:
            old.setattr(broker.catalog.machine.head, "version", 1)
            for epoch in (0, 1, -1):
                with pytest.raises(NotActive, match="drayd admin meta activate"):
                    await crew.says(one, epoch=epoch)
        await crew.says(one, epoch=0)
