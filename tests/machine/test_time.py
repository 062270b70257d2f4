"""How late it is, when clocks are wrong."""

import random

import pytest

from dray.machine.append import Accepted
from dray.machine.garbage import MarkDeleting
from dray.machine.sessions import Close, Expire, KeepAlive
from dray.machine.step import Outcome
from dray.machine.streams import FloorReason, RaiseFloor
from dray.machine.timeline import HOUR_MS, JUMP_MS
from dray.machine.verdict import Refused, Why

from .scribe import HOUR, NOW, Tape
from .shop import Shop, row

TEN_YEARS = 10 * 365 * 24 * HOUR


def test_time_follows_what_a_session_saw_pass():
    """Q7"""
    tape = Tape()
    writer = tape.open()
    for _ in range(100):
        writer.pass_time(5_000)
        writer.send(KeepAlive())
    assert tape.machine.time_ms == NOW + 500_000


def test_time_never_runs_back():
    """Q7"""
    tape = Tape()
    writer = tape.open()
    writer.pass_time(60_000)
    writer.send(KeepAlive())
    writer.pass_time(-TEN_YEARS)
    assert writer.send(KeepAlive()).outcome is Outcome.EXECUTED
    assert tape.machine.time_ms == NOW + 60_000


def test_opens_without_proof_gain_an_hour_in_all_however_often_they_come():
    """Q7, R-050: a crash loop of brokers whose clocks are ten years ahead."""
    tape = Tape()
    for attempt in range(200):
        tape.open(f"b{attempt % 3}", wall_ms=NOW + TEN_YEARS)
    assert tape.machine.time_ms == NOW + HOUR_MS
    for number in range(3):
        tape.open(f"b{number}").send(Close())
    for _ in range(50):
        tape.open("b9", wall_ms=NOW + TEN_YEARS).send(Close())
    assert tape.machine.time_ms == NOW + HOUR_MS


def test_a_right_clock_among_wrong_ones_is_what_time_converges_to():
    tape = Tape()
    right = tape.open("right")
    wrong = tape.open("wrong", wall_ms=NOW + TEN_YEARS)
    assert tape.machine.time_ms == NOW + HOUR_MS
    wrong.send(Close())
    for _ in range(120):
        right.pass_time(60_000)
        right.send(KeepAlive())
    assert tape.machine.time_ms == NOW + 2 * HOUR_MS


def test_a_clock_that_is_behind_does_not_hold_time_back():
    tape = Tape()
    writer = tape.open("b1", wall_ms=0)
    assert tape.machine.time_ms == NOW
    writer.pass_time(1_000)
    writer.send(KeepAlive())
    assert tape.machine.time_ms == NOW + 1_000


def test_alone_a_clock_jumps_with_the_stores_date_or_an_operators_word():
    """Q7"""
    later = NOW + 30 * 24 * HOUR
    for proof in ({"store_date_ms": later - 299_000}, {"store_date_ms": later + 300_000}, {"accept_clock": True}):
        tape = Tape()
        tape.open(wall_ms=later, **proof)
        assert tape.machine.time_ms == later
        assert tape.machine.timeline.paused
    for no_proof in ({}, {"store_date_ms": later - 300_001}, {"store_date_ms": NOW}):
        tape = Tape()
        tape.open(wall_ms=later, **no_proof)
        assert tape.machine.time_ms == NOW + HOUR_MS


def test_not_alone_even_a_proven_clock_jumps_an_hour_beyond_the_others_at_most():
    """Q7"""
    tape = Tape()
    tape.open("b1")
    for _ in range(20):
        tape.open("b2", wall_ms=NOW + TEN_YEARS, store_date_ms=NOW + TEN_YEARS)
    assert tape.machine.time_ms <= NOW + 2 * HOUR_MS


def test_the_session_that_is_taken_over_is_not_another_one():
    tape = Tape()
    tape.open("b1")
    tape.open("b1", wall_ms=NOW + 24 * HOUR, accept_clock=True)
    assert tape.machine.time_ms == NOW + 24 * HOUR


def test_one_runaway_clock_is_held_at_an_hour_beyond_the_others():
    """Q7: also within its session."""
    tape = Tape()
    sane, mad = tape.open("sane"), tape.open("mad")
    for step in range(1, 400):
        sane.pass_time(5_000)
        sane.send(KeepAlive())
        mad.pass_time(TEN_YEARS // 400)
        mad.send(KeepAlive())
        assert tape.machine.time_ms <= NOW + step * 5_000 + HOUR_MS


def test_a_session_that_is_alone_may_have_slept():
    tape = Tape()
    writer = tape.open()
    writer.pass_time(60 * HOUR)
    writer.send(KeepAlive())
    assert tape.machine.time_ms == NOW + 60 * HOUR
    assert tape.machine.timeline.paused


def test_two_sessions_that_both_slept_catch_up_together():
    tape = Tape()
    writers = [tape.open("b1"), tape.open("b2")]
    for writer in writers:
        writer.pass_time(60 * HOUR)
    for _ in range(40):
        for writer in writers:
            writer.send(KeepAlive())
    assert tape.machine.time_ms == NOW + 60 * HOUR


def test_a_claim_beyond_all_calendars_is_bounded():
    tape = Tape()
    writer = tape.open()
    writer.time_ms = (1 << 63) - 1
    writer.send(KeepAlive())
    assert tape.machine.time_ms < 1 << 48


def test_a_producer_can_be_used_until_the_end_of_the_calendar():
    shop = Shop()
    [stream] = shop.topic("t", 1)
    shop.writer.time_ms = (1 << 63) - 1
    assert shop.append_rows(row(stream, 1, producer=1, sequence=0, epoch=0)) == [Accepted(base=0)]


def test_after_a_jump_retention_and_garbage_wait_for_an_hour_that_really_passes():
    """Q7, X2, R-050: one broker ten years ahead deletes nothing."""
    shop = Shop(min_grace_ms=0)
    [stream] = shop.topic("t", 1)
    [shop.append((stream, 1)) for _ in range(3)]
    shop.writer.send(Close())
    shop.reopen(wall_ms=shop.tape.machine.time_ms + TEN_YEARS, accept_clock=True)
    commands = [
        RaiseFloor(stream=stream, reason=FloorReason.TIME, bound=1),
        MarkDeleting(objects=(0, 1, 2), grace_ms=0),
    ]
    jumped_to = shop.machine.time_ms
    for _ in range(60):
        # A second broker with another opinion, again and again, shortens nothing.
        shop.tape.open("ahead", wall_ms=shop.machine.time_ms + JUMP_MS).send(Close())
    assert shop.machine.time_ms == jumped_to + 60 * JUMP_MS
    for _ in range(59):
        shop.writer.pass_time(60_000)
        for command in commands:
            refused = shop.writer.do(command)
            assert isinstance(refused, Refused)
            assert refused.why is Why.PAUSED
    assert len(shop.machine.streams.find(stream).index) == 3
    shop.writer.pass_time(60_000)
    assert not isinstance(shop.writer.do(commands[0]), Refused)
    assert len(shop.machine.streams.find(stream).index) == 0


@pytest.mark.slow
def test_time_stays_within_its_bounds_in_random_histories():
    """Q7: sane sessions, mad ones, restarts and expiries; nobody proves a clock."""
    for seed in range(30):
        print(f"seed={seed}")
        dice = random.Random(seed)
        tape = Tape()
        anchor = tape.open("sane")
        real = NOW
        others = []
        for _ in range(300):
            passed = dice.randrange(0, 20_000)
            real += passed
            anchor.pass_time(passed)
            before = tape.machine.time_ms
            roll = dice.random()
            if roll < 0.3:
                others.append(tape.open(f"m{dice.randrange(4)}", wall_ms=dice.randrange(0, 2 * NOW)))
            elif roll < 0.6 and others:
                mad = dice.choice(others)
                mad.time_ms = dice.choice([0, real, real + TEN_YEARS, (1 << 63) - 1])
                mad.send(KeepAlive())
            elif roll < 0.7 and tape.machine.sessions.live.get(anchor.session):
                live = [s for s in tape.machine.sessions.live.values() if s.id != anchor.session]
                if live:
                    anchor.do(Expire(session=live[0].id, last_n=live[0].last_n))
            anchor.send(KeepAlive())
            assert before <= tape.machine.time_ms
            assert tape.machine.timeline.sure_ms <= tape.machine.time_ms
            assert tape.machine.time_ms <= tape.machine.timeline.sure_ms + HOUR_MS
            assert real <= tape.machine.time_ms <= real + 2 * HOUR_MS
