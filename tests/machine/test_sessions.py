"""Who may write, and what becomes of each entry."""

import pytest

from dray.machine.sessions import WAL_WINDOW, Close, Expire, KeepAlive, Opened, Swept
from dray.machine.step import EndReason, Outcome
from dray.machine.verdict import Done, Refused, Why

from .scribe import Tape


def verdict_of(applied):
    assert applied.verdicts is not None
    return applied.verdicts[0]


def refusal(applied) -> Why:
    verdict = verdict_of(applied)
    assert isinstance(verdict, Refused), verdict
    return verdict.why


def test_session_ids_are_dense_and_never_reused():
    """Q1"""
    tape = Tape()
    for expected in range(1, 6):
        writer = tape.open("b1")
        assert writer.session == expected
        writer.send(Close())
    assert all(tape.machine.sessions.is_ended(number) for number in range(1, 6))
    assert not tape.machine.sessions.is_ended(6)
    assert not tape.machine.sessions.is_ended(0)


def test_an_entry_is_executed_once_and_in_order():
    """Q2, R-043"""
    tape = Tape()
    writer = tape.open()
    first, second, third = (writer.entry(KeepAlive(), n=n) for n in (1, 2, 3))
    outcomes = [tape.write(raw).outcome for raw in (second, first, first, third, second, second, third, first)]
    assert outcomes == [
        Outcome.HOLE, Outcome.EXECUTED, Outcome.REPEAT, Outcome.HOLE,
        Outcome.EXECUTED, Outcome.REPEAT, Outcome.EXECUTED, Outcome.REPEAT,
    ]  # fmt: skip
    assert tape.machine.sessions.live[writer.session].last_n == 3


def test_n_is_used_up_whatever_the_verdicts():
    """Q2"""
    tape = Tape()
    writer = tape.open()
    assert isinstance(writer.do(Expire(session=99, last_n=0)), Refused)
    assert writer.send(KeepAlive()).outcome is Outcome.EXECUTED


def test_the_same_number_with_other_bytes_closes_the_session():
    """Q2, R-050"""
    tape = Tape()
    writer = tape.open()
    writer.send(KeepAlive())
    clone = writer.entry(KeepAlive(), KeepAlive(), n=1)
    applied = tape.write(clone)
    assert applied.outcome is Outcome.CLONED
    assert [(one.session, one.reason) for one in applied.ended] == [(writer.session, EndReason.CLONED)]
    assert writer.send(KeepAlive()).outcome is Outcome.DEAD


def test_an_entry_of_an_ended_session_is_dead_for_ever():
    """Q3, R-044"""
    tape = Tape()
    writer, observer = tape.open("b1"), tape.open("b2")
    late = writer.entry(KeepAlive())
    assert observer.do(Expire(session=writer.session, last_n=0)) == Done()
    for _ in range(3):
        assert tape.write(late).outcome is Outcome.DEAD
        tape.open("b1")


def test_the_same_nonce_gets_the_same_id():
    """Q4"""
    tape = Tape()
    raw = tape.open_entry("b1")
    first = verdict_of(tape.write(raw))
    assert isinstance(first, Opened)
    assert verdict_of(tape.write(raw)) == first
    assert len(tape.machine.sessions.live) == 1


def test_a_nonce_whose_session_ended_opens_nothing():
    """Q4"""
    tape = Tape()
    raw = tape.open_entry("b1")
    opened = verdict_of(tape.write(raw))
    tape.open("b1")
    assert tape.machine.sessions.is_ended(opened.session)
    assert refusal(tape.write(raw)) is Why.STALE


def test_a_late_open_is_refused_by_a_newer_session_of_its_name():
    """Q4"""
    tape = Tape()
    late = tape.open_entry("b1")
    tape.open("b1")
    assert refusal(tape.write(late)) is Why.NEWER


@pytest.mark.parametrize(("fields", "taken"), [({}, True), ({"instance": b"x" * 16}, False),
                                               ({"instance": b"x" * 16, "owner": True}, True)])  # fmt: skip
def test_a_live_name_goes_only_to_the_same_instance_or_the_owner_of_the_directory(fields, taken):
    """Q4, E-4"""
    tape = Tape()
    older = tape.open("b1")
    applied = tape.write(tape.open_entry("b1", **fields))
    if taken:
        assert isinstance(verdict_of(applied), Opened)
        assert [(one.session, one.reason) for one in applied.ended] == [(older.session, EndReason.TAKEN_OVER)]
        assert older.send(KeepAlive()).outcome is Outcome.DEAD
    else:
        assert refusal(applied) is Why.LIVE
        assert older.send(KeepAlive()).outcome is Outcome.EXECUTED


def test_expiry_acts_only_on_a_session_that_has_not_moved_on():
    """Q5"""
    tape = Tape()
    writer, observer = tape.open("b1"), tape.open("b2")
    writer.send(KeepAlive())
    stale = observer.do(Expire(session=writer.session, last_n=0))
    assert isinstance(stale, Refused)
    assert stale.why is Why.STALE
    assert writer.send(KeepAlive()).outcome is Outcome.EXECUTED
    assert observer.do(Expire(session=writer.session, last_n=2)) == Done()
    assert writer.send(KeepAlive()).outcome is Outcome.DEAD


def test_a_session_does_not_expire_itself_and_commands_after_its_close_are_refused():
    tape = Tape()
    writer = tape.open()
    applied = writer.send(Expire(session=writer.session, last_n=1), Close(), KeepAlive())
    first, second, third = applied.verdicts
    assert isinstance(first, Refused)
    assert second == Done()
    assert isinstance(third, Refused)


def test_a_dead_or_repeated_entry_moves_no_time():
    tape = Tape()
    writer = tape.open()
    writer.send(KeepAlive())
    before = tape.machine.time_ms
    writer.pass_time(10_000)
    tape.write(writer.entry(KeepAlive(), n=5))
    tape.write(writer.entry(KeepAlive(), n=0))
    assert tape.machine.time_ms == before


def test_a_swept_session_is_forgotten_and_a_live_one_is_not_swept():
    tape = Tape()
    tape.open("b1")
    writer = tape.open("b1")
    assert set(tape.machine.sessions.ended) == {1}
    refused = writer.do(Swept(sessions=(1, writer.session)))
    assert isinstance(refused, Refused)
    assert set(tape.machine.sessions.ended) == {1}
    assert writer.do(Swept(sessions=(1,))) == Done()
    assert not tape.machine.sessions.ended
    assert tape.machine.sessions.is_ended(1)


def test_a_wal_counter_is_committed_at_most_once_also_out_of_order():
    """X5, against a set that remembers everything."""
    tape = Tape()
    session = tape.machine.sessions.live[tape.open().session]
    used: set[int] = set()
    for counter in [5, 3, 4, 5, 3, 2_000, 2_000 - WAL_WINDOW + 1, 2_000 - WAL_WINDOW, 1_999, 1_999, 10**6, 2_001]:
        expected = counter not in used and counter > session.newest_wal - WAL_WINDOW
        assert session.may_commit_wal(counter) == expected, counter
        if expected:
            session.commit_wal(counter)
            used.add(counter)
