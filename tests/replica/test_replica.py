"""One replica of a machine: propose, sync, and what happens when the log misbehaves."""

import asyncio

import msgspec
import pytest

from dray.log import envelope
from dray.log.port import BEFORE_ALL
from dray.machine.command import NotActive, encode
from dray.machine.groups.codes import GroupCode
from dray.machine.groups.commands import Removal, RemovalRow, RemoveMembers
from dray.machine.groups.names import UNSAID, MemberId
from dray.machine.head import Activate
from dray.machine.sessions import Close, Expire, KeepAlive, SessionKind
from dray.machine.topics import CreateTopic, TopicCreated
from dray.machine.verdict import Done
from dray.replica.errors import CommitUnknown, Diverged, NotServing, Superseded
from dray.replica.replica import Replica
from dray.replica.wakeups import CATALOG, GroupKey
from dray.replica.writer import Timing

from ..machine.groups.players import joining
from .domain import MoodyLog, new_log, replica_on, running

CALM = Timing(ttl_ms=60_000, keepalive_ms=20_000, settle_ms=1_000)
"""No beat comes between, however slow the machine is."""


async def entries_of(log) -> list[envelope.EntryHead]:
    heads = []
    tail = await log.tail()
    async for position, entry in log.follow(BEFORE_ALL):
        heads.append(envelope.decode_head(entry))
        if position == tail:
            break
    return heads


async def test_a_proposal_is_answered_with_the_verdict_of_the_fold():
    """RP1."""
    replica = replica_on(await new_log())
    async with running(replica):
        assert await replica.propose(KeepAlive()) == [Done()]
        assert replica.session is not None
        assert replica.session.id == 1


async def test_what_arrives_while_an_append_is_in_flight_shares_the_next_entry():
    log = await new_log()
    replica = replica_on(log, timing=CALM)
    async with running(replica):
        await replica.open_session()
        before = await log.tail()
        await asyncio.gather(*(replica.propose(KeepAlive()) for _ in range(50)))
        assert await log.tail() - before <= 2, "50 proposals are not 50 entries"


async def test_an_entry_is_cut_at_the_rows_that_it_may_touch():
    """Q8: 4 x 1,000 rows do not share one entry."""
    log = await new_log()
    replica = replica_on(log)
    async with running(replica):
        await replica.open_session()
        before = await log.tail()
        topics = [
            CreateTopic(topic_id=bytes([number]) * 16, name=f"t{number}", partitions=1_000) for number in range(1, 5)
        ]
        verdicts = await asyncio.gather(*(replica.propose(topic) for topic in topics))
        assert all(isinstance(verdict, TopicCreated) for (verdict,) in verdicts)
        assert await log.tail() - before >= 2


async def test_n_goes_up_by_one_with_every_entry():
    """RP2."""
    log = await new_log()
    replica = replica_on(log)
    async with running(replica):
        for _ in range(5):
            await replica.propose(KeepAlive())
    numbers = [head.n for head in await entries_of(log) if head.session]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_lost_reply_is_settled_by_sending_the_same_bytes_again():
    """R-043, R-044: the caller gets the first verdict, and the entry counts once."""
    log = MoodyLog(await new_log())
    replica = replica_on(log, timing=CALM)
    async with running(replica):
        await replica.open_session()
        log.lose_replies = 1
        assert await replica.propose(KeepAlive()) == [Done()]
        log.swallow = 2
        assert await replica.propose(KeepAlive()) == [Done()]
        assert log.sent[-1] == log.sent[-2] == log.sent[-3]
        assert await replica.propose(KeepAlive()) == [Done()]


async def test_a_refused_append_is_surely_not_applied_and_its_number_is_free():
    log = MoodyLog(await new_log())
    replica = replica_on(log, timing=CALM)
    async with running(replica):
        await replica.open_session()
        log.refuse = 1
        with pytest.raises(Exception, match="not now"):
            await replica.propose(KeepAlive())
        assert await replica.propose(KeepAlive()) == [Done()]


@pytest.mark.slow
async def test_an_outcome_that_stays_unknown_is_reported_so_and_costs_the_session():
    """E1, RP2: n is never given up, the session is."""
    log = MoodyLog(await new_log())
    replica = replica_on(log, timing=CALM)
    async with running(replica):
        first = await replica.open_session()
        log.swallow = 10_000
        with pytest.raises(CommitUnknown):
            await replica.propose(KeepAlive())
        log.swallow = 0
        second = await replica.open_session()
        assert second.id > first.id
        assert first.id not in replica.machine.sessions.live


async def test_everything_acknowledged_elsewhere_is_visible_after_sync():
    """R-012: read-your-writes through any replica."""
    log = await new_log()
    one, two = replica_on(log.handle(), "broker-1"), replica_on(log.handle(), "broker-2")
    async with running(one, two):
        for _ in range(20):
            session = await one.open_session()
            await one.propose(KeepAlive())
            n = one.machine.sessions.live[session.id].last_n
            await two.sync()
            assert two.machine.sessions.live[session.id].last_n >= n


class LateLog(MoodyLog):
    """What comes while it is late is shown when somebody asks for the tail."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.shown = asyncio.Event()
        self.shown.set()

    async def follow(self, after):
        async for entry in self.inner.follow(after):
            await self.shown.wait()
            yield entry

    async def tail(self):
        self.shown.set()
        return await super().tail()


async def test_that_a_version_is_not_active_is_not_said_from_memory():
    """M10: it was activated beside another broker, and this one has not heard of it."""
    log = await new_log()
    late = LateLog(log)
    one, other = replica_on(log, "broker-1", timing=CALM), replica_on(late, "broker-2", timing=CALM)
    leave = RemoveMembers(group="g", reason=Removal.LEFT, rows=(RemovalRow(member=MemberId("m"), seen=1),))
    async with running(one, other):
        await other.open_session()
        with pytest.raises(NotActive, match="drayd admin meta activate"):
            await other.propose(leave)
        late.shown.clear()
        assert await one.propose(Activate(version=2)) == [Done()]
        assert other.machine.version == 1
        (verdict,) = await other.propose(leave)
        assert verdict.codes == (GroupCode.UNKNOWN_MEMBER,)


@pytest.mark.slow
async def test_a_silent_session_is_expired_by_an_observer_and_its_late_entry_is_dead():
    """D-015, R-049, R-050: the holder dies without a word; the other replica ends its session."""
    log = await new_log()
    dead, observer = replica_on(log.handle(), "broker-1"), replica_on(log.handle(), "broker-2")
    async with running(observer):
        await observer.open_session()
        async with running(dead):
            session = await dead.open_session()
        while session.id in observer.machine.sessions.live:
            await asyncio.sleep(0.02)
        assert observer.machine.sessions.is_ended(session.id)


@pytest.mark.slow
async def test_a_tool_expires_nobody_however_long_a_broker_is_silent():
    """RP6: a broker with a long ttl lives beside a tool that knows only the default."""
    log = await new_log()
    dead, tool = replica_on(log.handle(), "broker-1"), replica_on(log.handle(), "spark", kind=SessionKind.TOOL)
    async with running(tool):
        own = await tool.open_session()
        async with running(dead):
            session = await dead.open_session()
        while tool.machine.sessions.live[own.id].last_n < 12:  # far beyond a ttl and any patience
            await asyncio.sleep(0.02)
        assert session.id in tool.machine.sessions.live


async def test_a_replica_whose_session_expired_opens_a_new_one_and_repeats_what_was_dead():
    log = await new_log()
    one, two = replica_on(log.handle(), "broker-1"), replica_on(log.handle(), "broker-2")
    async with running(one, two):
        session = await one.open_session()
        await two.sync()
        last_n = two.machine.sessions.live[session.id].last_n
        await two.propose(Expire(session=session.id, last_n=last_n))
        assert await one.propose(KeepAlive()) == [Done()]
        assert one.session is not None
        assert one.session.id > session.id


async def test_a_process_whose_name_was_taken_over_stops():
    """Q4: the owner of the directory takes a live name over; whoever held it must end."""
    log = await new_log()
    old = replica_on(log.handle(), "broker-1")
    async with running(old):
        await old.open_session()
        new = replica_on(log.handle(), "broker-1", instance=b"another-instance", owner=True)
        async with running(new):
            await new.open_session()
            assert isinstance(await asyncio.wait_for(old.failed, 60), Superseded)
            with pytest.raises(Superseded):
                await old.propose(KeepAlive())


async def test_a_cloned_process_is_found_out():
    """Q2, R-050: the same n with other bytes closes the session, and its holder stops."""
    log = await new_log()
    replica = replica_on(log.handle())
    async with running(replica):
        session = await replica.open_session()
        await replica.propose(KeepAlive())
        last = replica.machine.sessions.live[session.id].last_n
        forged = envelope.encode(
            [encode(Close(), 1)], version=1, session=session.id, n=last, time_ms=1,
            seen_position=replica.machine.position, seen_digest=replica.machine.digest,
        )  # fmt: skip
        await log.append(forged)
        assert isinstance(await asyncio.wait_for(replica.failed, 60), Superseded)


async def test_a_log_that_is_shorter_than_what_was_read_stops_the_replica():
    """Q6, RP4: somebody restored an old copy."""
    log = await new_log()
    replica = replica_on(log)
    async with running(replica):
        for _ in range(3):
            await replica.propose(KeepAlive())
        del log.sequence.entries[-2:]
        with pytest.raises(Diverged):
            await replica.sync()
        assert replica.failed.done()


async def test_a_writer_that_saw_another_history_stops_the_replica():
    """Q6, RP4: one entry missed, or another state computed."""
    log = await new_log()
    replica = replica_on(log.handle(), "broker-1")
    other = replica_on(log.handle(), "broker-2")
    async with running(replica, other):
        await replica.open_session()
        await other.open_session()
        await replica.sync()
        replica._digests.remember(replica.machine.position, 12345)
        await other.sync()
        await other.propose(KeepAlive())
        assert isinstance(await asyncio.wait_for(replica.failed, 60), Diverged)


async def test_a_replica_that_cannot_write_stops_serving():
    """RP5: after two thirds of a ttl somebody else may act in its place."""
    log = MoodyLog(await new_log())
    replica = replica_on(log)
    async with running(replica):
        await replica.open_session()
        replica.check_serving()
        log.swallow = 10_000
        while replica._writer.fresh():
            await asyncio.sleep(0.02)
        with pytest.raises(NotServing, match="too long"):
            replica.check_serving()


async def test_a_caller_that_is_gone_before_the_entry_is_built_is_not_in_it():
    log = await new_log()
    replica = replica_on(log)
    async with running(replica):
        await replica.open_session()
        before = await log.tail()
        task = asyncio.create_task(replica.propose(KeepAlive()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await replica.propose(KeepAlive())
        assert await log.tail() - before <= 2


async def test_a_waiter_is_woken_by_what_apply_touches_and_by_nothing_else():
    replica: Replica = replica_on(await new_log())
    async with running(replica):
        with replica.waiter([1, 2]) as waiter:
            assert await waiter.wait(0.01) is False
            replica._wakeups.wake([2])
            assert await waiter.wait(60) is True
            assert waiter.touched() == {2}
            replica._wakeups.wake([3])
            assert await waiter.wait(0.01) is False
            assert waiter.touched() == set()
            replica._wakeups.wake_all()
            assert await waiter.wait(60) is True
            assert waiter.touched() == {1, 2}
        assert replica._wakeups.waiters == {}


async def test_a_group_that_is_called_catalog_wakes_its_own_waiters_and_not_the_catalogs():
    replica: Replica = replica_on(await new_log(version=2))
    leaving = RemoveMembers(
        group="catalog", reason=Removal.LEFT, rows=(RemovalRow(member=MemberId("m"), seen=UNSAID),)
    )  # fmt: skip
    async with running(replica):
        with replica.waiter([GroupKey("catalog")]) as group, replica.waiter([CATALOG]) as catalog:
            await replica.propose(msgspec.structs.replace(joining("m"), group="catalog"))
            group.clear()
            await replica.propose(leaving)
            assert await group.wait(60) is True
            assert await catalog.wait(0.01) is False
            group.clear()
            await replica.propose(CreateTopic(topic_id=b"u" * 16, name="catalog", partitions=1))
            assert await catalog.wait(60) is True
            assert await group.wait(0.01) is False
