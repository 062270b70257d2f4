"""A proposal has an age, and each kind of work has its turn (RP7, RP8, RP9)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dray.clock import ManualClock
from dray.errors import Unavailable
from dray.log import envelope
from dray.log.port import BEFORE_ALL
from dray.machine.append import Append, pack_rows
from dray.machine.names import TopicId
from dray.machine.offsets import CommitOffsets, OffsetRow, OffsetsCommitted
from dray.machine.sessions import Expire, KeepAlive
from dray.machine.topics import CreateTopic, TopicCreated
from dray.machine.verdict import Done
from dray.replica.errors import Busy, NotServing, TooLate
from dray.replica.proposals import MAX_WAITING, Proposals
from dray.replica.replica import Replica
from dray.replica.writer import Timing
from tests.replica.domain import new_log, replica_on
from tests.replica.test_closing import SlowLog, until

TOPIC = TopicId(b"topic-of-a-test!")
TIMING = Timing(ttl_ms=15_000, keepalive_ms=5_000, settle_ms=10_000, wait_ms=5_000)


def commit(offset: int, rows: int = 1) -> CommitOffsets:
    return CommitOffsets(
        group="g", rows=tuple(OffsetRow(topic_id=TOPIC, partition=number, offset=offset) for number in range(rows))
    )


def append(rows: int, counter: int = 1) -> Append:
    row = (1, -1, -1, -1, -1, 1, 10, 0, -1)
    wal_id = b"log-id-1" + (1).to_bytes(4, "big") + counter.to_bytes(4, "big")
    return Append(wal_id=wal_id, size=10, created_ms=0, zone="", packed=pack_rows([row] * rows))


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def kinds_of_entries(log: SlowLog) -> list[tuple[int, list[int]]]:
    """Of every entry its position and the types of its commands."""
    found = []
    tail = await log.tail()
    async for position, entry in log.follow(BEFORE_ALL):
        head = envelope.decode_head(entry)
        found.append((position, [kind for kind, _ in envelope.decode_commands(entry, head.count)]))
        if position == tail:
            break
    return found


@asynccontextmanager
async def slow_domain() -> AsyncIterator[tuple[Replica, SlowLog, ManualClock]]:
    """A replica whose session is open, on a log whose appends wait when they are told to."""
    clock = ManualClock()
    log = SlowLog((await new_log()).handle())
    replica = replica_on(log, clock=clock, timing=TIMING)
    async with replica.running():
        await replica.open_session()
        yield replica, log, clock
        log.gate.set()


async def test_what_waited_in_a_process_that_slept_is_dropped_when_it_wakes() -> None:
    """RP8: its client has long gone on elsewhere; the entry in flight is settled as ever."""
    async with slow_domain() as (replica, log, clock):
        log.gate.clear()
        first = asyncio.ensure_future(replica.propose(KeepAlive()))
        await until(lambda: log.waiting == 1)
        queued = asyncio.ensure_future(replica.propose(commit(45)))
        await turns()
        clock.advance(6_000)  # asleep: everything happens at once when it wakes
        log.gate.set()
        assert await first == [Done()]
        with pytest.raises(TooLate) as caught:
            await queued
        assert isinstance(caught.value, Unavailable)
        await replica.sync()
        assert replica.machine.offsets.find("g", TOPIC, 0) is None


async def test_whoever_waits_behind_a_log_that_hangs_is_told_in_time() -> None:
    """RP8: while an entry is in flight and nothing else happens."""
    async with slow_domain() as (replica, log, clock):
        log.gate.clear()
        first = asyncio.ensure_future(replica.propose(KeepAlive()))
        await until(lambda: log.waiting == 1)
        queued = asyncio.ensure_future(replica.propose(commit(45)))
        await turns()
        for _ in range(5):
            clock.advance(1_250)
            await turns()
        with pytest.raises(TooLate):
            await queued
        assert not first.done()
        log.gate.set()
        assert await first == [Done()]


async def test_a_process_that_was_away_asks_whether_its_session_lives_before_it_sends_commands() -> None:
    """RP7: nothing else is in the first entry after a sleep."""
    async with slow_domain() as (replica, log, clock):
        tail = await log.tail()
        clock.advance(11_000)
        assert isinstance((await replica.propose(commit(1)))[0], OffsetsCommitted)
        new = [kinds for position, kinds in await kinds_of_entries(log) if position > tail]
        beat, sent = KeepAlive.number, commit(1).number
        assert set(new[0]) == {beat}
        assert sent in new[-1]


async def test_a_commit_whose_session_had_ended_is_left_to_its_client_to_send_again() -> None:
    """RP8: what else was dead is sent again under a new session, as before."""
    clock = ManualClock()
    log = SlowLog((await new_log()).handle())
    sleeper, other = replica_on(log, clock=clock, timing=TIMING), replica_on(log.inner, "b", clock=clock)
    async with sleeper.running(), other.running():
        old = (await sleeper.open_session()).id
        await other.sync()
        last_n = other.machine.sessions.live[old].last_n
        log.gate.clear()
        committing = asyncio.ensure_future(sleeper.propose(commit(45)))
        topic = CreateTopic(topic_id=b"t" * 16, name="t", partitions=1)
        creating = asyncio.ensure_future(sleeper.propose(topic))
        await until(lambda: log.waiting == 1)
        assert await other.propose(Expire(session=old, last_n=last_n)) == [Done()]
        log.gate.set()
        assert isinstance((await creating)[0], TopicCreated)
        with pytest.raises(NotServing):
            await committing
        assert sleeper.machine.offsets.find("g", TOPIC, 0) is None


@pytest.mark.slow
async def test_a_flood_of_commits_keeps_neither_beats_nor_appends_from_their_turn() -> None:
    """RP9: their own queues, by turns, whatever is full."""
    clock = ManualClock()
    proposals = Proposals(clock, wait_ms=5_000)
    flood = [proposals.add((commit(number, rows=100),), 1) for number in range(MAX_WAITING)]
    with pytest.raises(Busy):
        proposals.add((commit(1),), 1)
    beat, bulk = proposals.add((KeepAlive(),), 1), proposals.add((append(3_000),), 1)
    rest = proposals.add((CreateTopic(topic_id=b"t" * 16, name="t", partitions=1),), 1)
    taken = {proposal.answer for _ in range(2) for proposal in proposals.take()}
    assert {beat, bulk, rest} <= taken
    assert taken & set(flood), "and the flood has its turn, too"


async def test_two_floods_share_every_entry_by_rows() -> None:
    """RP9: neither gets less than a third of any two entries."""
    proposals = Proposals(ManualClock(), wait_ms=5_000)
    for number in range(2_000):
        proposals.add((commit(number, rows=7),), 1)
        proposals.add((append(50, number),), 1)
    for _ in range(4):
        pair = proposals.take() + proposals.take()
        commits = sum(proposal.rows for proposal in pair if proposal.once)
        total = sum(proposal.rows for proposal in pair)
        assert total // 3 <= commits <= 2 * total // 3


async def test_the_order_within_a_kind_is_the_order_of_arrival() -> None:
    proposals = Proposals(ManualClock(), wait_ms=5_000)
    answers = [proposals.add((append(1_000, number),), 1) for number in range(20)]
    for number in range(20):
        proposals.add((commit(number, rows=400),), 1)
    taken = []
    while found := proposals.take():
        proposals.put_back(found)
        taken += [proposal.answer for proposal in proposals.take()]
    assert [answer for answer in taken if answer in answers] == answers
