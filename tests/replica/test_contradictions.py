"""What a replica does when the log shows what cannot be: it stops, and nobody waits for ever."""

import asyncio
import copy

import pytest

from dray.clock import ManualClock, SystemClock
from dray.ids import SeededEntropy
from dray.log.port import Position
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.machine.sessions import KeepAlive
from dray.machine.verdict import Done
from dray.replica.digests import Digests
from dray.replica.errors import CommitUnknown, Diverged, NotServing, Superseded
from dray.replica.proposals import Proposals
from dray.replica.replica import Replica
from dray.replica.writer import Timing

from .domain import MoodyLog, identity, new_log, replica_on, running

SLOW = Timing(ttl_ms=60_000, keepalive_ms=20_000, settle_ms=5_000)


def copy_of(original: Replica) -> Replica:
    """The same process on another machine: its memory, its session, its name."""
    twin = Replica(
        log=original.log.handle(),
        machine=checkpoint.load(checkpoint.dump(original.machine)),
        identity=identity("broker-1"),
        clock=SystemClock(),
        entropy=SeededEntropy("twin"),
        timing=SLOW,
    )
    twin._writer._session = copy.copy(original.session)
    return twin


async def test_a_copy_whose_n_was_used_by_the_other_stops_instead_of_waiting():
    """R-050, Q2: an executed entry of its own session that it did not send can only be a copy's."""
    log = await new_log()
    original = replica_on(log, timing=SLOW)
    async with running(original):
        await original.propose(KeepAlive())
        twin = copy_of(original)
        for _ in range(3):
            await original.propose(KeepAlive())
        with pytest.raises(Superseded):
            async with running(twin):
                await twin.propose(KeepAlive())
        assert isinstance(await twin.failed, Superseded)


async def test_two_copies_at_the_same_n_are_both_stopped_and_get_no_verdict():
    """Q2, Q3: the bytes that came second were not executed, and their caller is told so."""
    log = await new_log()
    original = replica_on(log, timing=SLOW)
    async with running(original):
        await original.propose(KeepAlive())
        twin = copy_of(original)
        async with running(twin):
            answers = await asyncio.gather(
                original.propose(KeepAlive()), twin.propose(KeepAlive(), KeepAlive()), return_exceptions=True
            )
            assert all(answer != [] for answer in answers), "no caller gets an empty verdict"
            assert sum(isinstance(answer, list) for answer in answers) <= 1
            stopped = await asyncio.gather(original.failed, twin.failed)
            assert all(isinstance(error, Superseded) for error in stopped)


async def test_who_contradicts_the_log_takes_nobody_along():
    """RP4, Q6: whoever read of its state would stop, too, though there is nothing wrong with it."""
    log = MoodyLog(await new_log())
    wrong, right = replica_on(log, "broker-1", timing=SLOW), replica_on(log.inner, "broker-2", timing=SLOW)
    async with running(wrong, right):
        await wrong.open_session()
        await right.open_session()
        await wrong.sync()
        wrong.machine.digest ^= 1  # its memory went bad
        for _ in range(2):
            await right.propose(KeepAlive())
        assert isinstance(await wrong.failed, Diverged)
        sent = len(log.sent)
        await wrong.close_session()  # as a process does that ends
        assert len(log.sent) == sent
        assert await right.propose(KeepAlive()) == [Done()]


async def test_who_was_replaced_does_not_take_its_place_back():
    """RP4: it takes a while until its process has ended, and its session would be opened again by the next beat."""
    log, clock = MoodyLog(await new_log()), ManualClock()
    replaced = replica_on(log, timing=SLOW, clock=clock)
    successor = Replica(
        log=log.inner.handle(),
        machine=Machine(),
        identity=identity("broker-1"),
        clock=SystemClock(),
        entropy=SeededEntropy("started again"),
        timing=SLOW,
    )
    async with running(replaced, successor):
        await replaced.open_session()
        await successor.open_session()
        assert isinstance(await replaced.failed, Superseded)
        clock.advance(SLOW.keepalive_ms)
        for _ in range(20):
            await asyncio.sleep(0)
        assert await successor.propose(KeepAlive()) == [Done()]
        assert successor.session is not None
        assert not successor.failed.done()


async def test_what_was_dead_is_not_sent_again_by_a_replica_that_failed():
    """RP4, E1: it waits for a session that nobody opens."""
    proposals = Proposals(SystemClock(), wait_ms=5_000)
    answer = proposals.add((KeepAlive(),), 1)
    taken = proposals.take()
    proposals.close(Diverged("for the test"))
    proposals.put_back(taken)
    with pytest.raises(Diverged):
        await answer
    assert proposals.is_empty
    with pytest.raises(Diverged):
        proposals.add((KeepAlive(),), 1)


async def test_a_sync_that_waits_for_the_tail_while_the_replica_fails_ends():
    """RP4"""
    log = MoodyLog(await new_log())
    replica = replica_on(log, timing=SLOW)
    async with running(replica):
        release = asyncio.Event()
        real = log.inner.tail

        async def slow_tail() -> Position:
            await release.wait()
            return Position(await real() + 5)

        log.inner.tail = slow_tail
        waiting = asyncio.ensure_future(replica.sync())
        await asyncio.sleep(0)
        replica.fail(Diverged("for the test"))
        release.set()
        with pytest.raises(Diverged):
            await asyncio.wait_for(waiting, 60)


async def test_an_entry_that_the_log_puts_among_those_already_read_stops_the_replica():
    """Q6, R-050: the log was rolled back to an old copy."""
    log = await new_log()
    replica = replica_on(log, timing=SLOW)
    async with running(replica):
        for _ in range(5):
            await replica.propose(KeepAlive())
        del log.sequence.entries[-3:]
        with pytest.raises((CommitUnknown, Diverged)):
            await replica.propose(KeepAlive())
        assert isinstance(await replica.failed, Diverged)


async def test_a_session_that_was_given_up_is_opened_again_without_new_work():
    """R-049: or the others would expire a live process for being idle."""
    log = MoodyLog(await new_log())
    replica = replica_on(log)
    async with running(replica):
        first = (await replica.open_session()).id
        log.swallow = 10
        with pytest.raises((CommitUnknown, NotServing)):
            await replica.propose(KeepAlive())
        log.swallow = 0
        async with asyncio.timeout(60):
            while replica.session is None or replica.session.id == first:
                await asyncio.sleep(0.01)


async def test_callers_in_flight_are_answered_when_the_replica_stops():
    """E1: unknown, and not nothing at all."""
    log = MoodyLog(await new_log())
    replica = replica_on(log, timing=SLOW)
    async with running(replica):
        await replica.open_session()
        log.swallow = 1_000
        waiting = asyncio.ensure_future(replica.propose(KeepAlive()))
        await asyncio.sleep(0.05)
    with pytest.raises(CommitUnknown):
        await asyncio.wait_for(waiting, 60)


def test_an_entry_that_has_seen_what_was_never_shown_contradicts_at_once():
    """Q6: not only inside what is remembered, but behind its end too."""
    digests = Digests()
    digests.remember(10, 1)
    digests.remember(12, 2)
    assert digests.contradict(11, 9), "between two that were applied"
    assert digests.contradict(13, 9), "behind the last one applied"
    assert digests.contradict(12, 9)
    assert not digests.contradict(12, 2)
    assert not digests.contradict(9, 9), "older than what is remembered: not known"
