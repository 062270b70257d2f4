"""Brokers, and which checkpoints may be used."""

from dray.machine import checkpoint
from dray.machine.brokers import SLICE, BrokerRegistered, Listener, RegisterBroker
from dray.machine.confirmations import Checkpointed
from dray.machine.sessions import Close, Expire, SessionKind
from dray.machine.verdict import Done, Refused, Why

from .scribe import HOUR, NOW, Tape


def registration(broker_id: int = -1) -> RegisterBroker:
    listener = Listener(name="PLAIN", host="h", port=9092)
    return RegisterBroker(broker_id=broker_id, zone="a", rack="r", listeners=(listener,), started_ms=NOW, build="v1")


def why(verdict) -> Why:
    assert isinstance(verdict, Refused), verdict
    return verdict.why


def test_a_broker_lives_as_long_as_its_session():
    """M8, R-055"""
    tape = Tape()
    one, two = tape.open("b1"), tape.open("b2")
    applied = one.send(registration(5))
    assert applied.verdicts == [BrokerRegistered(broker_id=5)]
    assert applied.catalog_changed
    two.send(registration(6))
    broker = tape.machine.brokers.all()[0]
    assert (broker.broker_id, broker.session, broker.zone, broker.build) == (5, one.session, "a", "v1")
    gone = two.send(Expire(session=one.session, last_n=1))
    assert gone.catalog_changed
    assert [broker.broker_id for broker in tape.machine.brokers.all()] == [6]


def test_a_broker_id_belongs_to_one_live_session():
    """M8, E-4"""
    tape = Tape()
    one, two = tape.open("b1"), tape.open("b2")
    one.send(registration(5))
    assert why(two.do(registration(5))) is Why.LIVE
    assert one.do(registration(7)) == BrokerRegistered(broker_id=7)
    assert two.do(registration(5)) == BrokerRegistered(broker_id=5)
    assert len(tape.machine.brokers.all()) == 2


def test_an_id_that_the_machine_gave_stays_with_its_name():
    """M8"""
    tape = Tape()
    one = tape.open("b1")
    assert one.do(registration()) == BrokerRegistered(broker_id=1)
    assert tape.open("b2").do(registration()) == BrokerRegistered(broker_id=2)
    one.send(Close())
    assert tape.open("b3").do(registration()) == BrokerRegistered(broker_id=3)
    assert tape.open("b1").do(registration()) == BrokerRegistered(broker_id=1)


WEEK = 7 * 24 * HOUR


def test_a_name_that_was_gone_for_a_week_is_forgotten_and_its_id_is_free():
    """M15: one that was live meanwhile is kept, and so is one that has been gone for less."""
    tape = Tape(version=2)
    writers = {name: tape.open(name) for name in ("gone", "kept", "back")}
    assert [writer.do(registration()) for writer in writers.values()] == [
        BrokerRegistered(broker_id=number) for number in (1, 2, 3)
    ]
    writers["gone"].send(Close())
    writers["back"].send(Close())
    writers["kept"].live(6 * 24 * HOUR)
    back = tape.open("back")
    assert back.do(registration()) == BrokerRegistered(broker_id=3)
    back.send(Close())
    writers["kept"].live(24 * HOUR)
    assert tape.open("new").do(registration()) == BrokerRegistered(broker_id=1), "a week is over for one of them"
    assert writers["kept"].do(registration()) == BrokerRegistered(broker_id=2)
    assert tape.open("gone").do(registration()) == BrokerRegistered(broker_id=4), "it comes as a stranger"
    copy = checkpoint.load(checkpoint.dump(tape.machine))
    assert checkpoint.fingerprint(copy) == checkpoint.fingerprint(tape.machine)


def test_names_are_forgotten_in_slices_and_never_under_version_1():
    """M15, M2"""
    for version, left in ((1, 2 * SLICE + 2), (2, 2)):
        tape = Tape(version=version)
        for number in range(2 * SLICE):
            writer = tape.open(f"b{number}")
            writer.send(registration())
            writer.send(Close())
        assert len(tape.machine.brokers._given) == 2 * SLICE
        watch = tape.open("watch", kind=SessionKind.TOOL)
        watch.live(WEEK + HOUR)
        one = tape.open("one")
        one.send(registration())
        assert len(tape.machine.brokers._given) == (2 * SLICE + 1 if version == 1 else SLICE + 1)
        tape.open("two").send(registration())
        assert len(tape.machine.brokers._given) == left


def test_no_name_is_forgotten_while_time_may_have_jumped():
    """M15, Q7"""
    tape = Tape(version=2)
    gone = tape.open("gone")
    gone.send(registration())
    gone.send(Close())
    late = tape.open("late", wall_ms=tape.machine.time_ms + 2 * WEEK, accept_clock=True)
    assert tape.machine.timeline.paused
    assert late.do(registration()) == BrokerRegistered(broker_id=2)
    late.live(2 * HOUR)
    assert tape.open("later").do(registration()) == BrokerRegistered(broker_id=1)


def mark(position: int, content: bytes = b"h", *, confirms: bool = False) -> Checkpointed:
    return Checkpointed(position=position, hash=content * 32, size=9, confirms=confirms)


def usable(tape: Tape) -> list[int]:
    return [found.position for found in tape.machine.confirmations.usable()]


def test_a_checkpoint_counts_when_another_session_found_the_same_bytes():
    """K1"""
    tape = Tape()
    maker, other = tape.open("b1"), tape.open("b2")
    assert maker.do(mark(1)) == Done()
    maker.send(mark(1), mark(1, confirms=True))
    assert usable(tape) == []
    other.send(mark(1, confirms=True))
    assert usable(tape) == [1]


def test_where_two_differ_nobody_trims():
    """K1"""
    tape = Tape()
    maker, other, third = tape.open("b1"), tape.open("b2"), tape.open("b3")
    maker.send(mark(1))
    other.send(mark(1, b"x"))
    third.send(mark(1))
    assert usable(tape) == []
    assert tape.machine.confirmations.marks[0].disputed


def test_a_broker_that_is_alone_confirms_its_own():
    """K1"""
    tape = Tape()
    maker = tape.open("b1")
    tape.open("tool", kind=SessionKind.TOOL)
    maker.send(mark(1))
    assert usable(tape) == []
    maker.send(mark(1, confirms=True))
    assert usable(tape) == [1]


def test_only_what_was_announced_can_be_confirmed_and_nothing_from_the_future():
    tape = Tape()
    maker = tape.open("b1")
    assert why(maker.do(mark(1, confirms=True))) is Why.NOT_FOUND
    assert why(maker.do(mark(100))) is Why.MALFORMED


def test_the_newest_usable_ones_are_not_forgotten():
    tape = Tape()
    maker = tape.open("b1")
    for position in range(1, 40):
        maker.send(mark(position))
        if position in (3, 4, 5):
            maker.send(mark(position, confirms=True))
    assert usable(tape) == [4, 5]
    assert len(tape.machine.confirmations.marks) == 8
    assert why(maker.do(mark(2))) is Why.STALE
