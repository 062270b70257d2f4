"""The checker of heaps finds what it is there for, and nothing else: each anomaly, and a history that comes near it."""

import asyncio

import pytest

from dray.heaps.bodies import Body
from dray.heaps.consumers import Delivery
from dray.heaps.ids import LeaseToken, MessageId
from dray.machine.heaps.answers import GrantedMessage
from dray.sim.jobs import JobLedger
from dray.sim.world import Violation, World

ID = MessageId(1, 0, 1, 1)
OTHER = MessageId(1, 0, 1, 2)
LEASE_S = 8.0


@pytest.fixture
def world():
    world = World(1)
    yield world
    world.close()


@pytest.fixture
def ledger(world):
    ledger = JobLedger(world, retries=3)
    ledger.asks("a", b"a:work")
    ledger.asks("b", b"b:work")
    return ledger


def pass_time(world: World, seconds: float) -> None:
    async def wait(_world: World) -> None:
        await asyncio.sleep(seconds)

    world.run(wait)


def delivery(token: int = 1, payload: bytes = b"a:work", identity: MessageId = ID, attempts: int = 0) -> Delivery:
    message = GrantedMessage(0, token, 0, attempts, 0, 0, 1, 1, 1, 1, 3, 0, 0, 0, None)
    lease = LeaseToken(0, token, bytes([token]) * 16)
    return Delivery(id=identity, token=lease, message=message, body=Body(payload=payload), lease_ms=8_000, until_ns=0)


def pop(ledger: JobLedger, *found: Delivery, asked: float, credits: int = 5) -> None:
    ledger.popped(list(found), credits=credits, asked=asked, lease_s=LEASE_S)


def test_a_message_that_nobody_sent_and_one_with_another_body_are_found(ledger):
    """phantom-pop, wrong-body"""
    with pytest.raises(Violation, match="phantom-pop"):
        pop(ledger, delivery(payload=b"c:work"), asked=0)
    with pytest.raises(Violation, match="wrong-body"):
        pop(ledger, delivery(payload=b"a:other"), asked=0)
    pop(ledger, delivery(), asked=0)


def test_two_ids_of_one_key_and_two_keys_of_one_id_are_found(ledger):
    """dedup-two-ids"""
    ledger.took("a", ID)
    ledger.took("a", ID)
    with pytest.raises(Violation, match="dedup-two-ids"):
        ledger.took("a", OTHER)
    with pytest.raises(Violation, match="dedup-two-ids"):
        ledger.took("b", ID)


def test_two_leases_at_once_are_found_and_one_after_the_other_are_not(world, ledger):
    """double-lease"""
    pop(ledger, delivery(1), asked=0.0)
    pass_time(world, 5.0)
    ledger.settles(delivery(1), ack=False)
    pop(ledger, delivery(2), asked=5.0)
    pass_time(world, LEASE_S + 0.1)
    pop(ledger, delivery(3, attempts=1), asked=13.0)
    pass_time(world, 1.0)
    with pytest.raises(Violation, match="double-lease"):
        pop(ledger, delivery(4), asked=13.5)


def test_a_pop_that_began_after_an_ack_was_answered_is_found_and_one_before_it_is_not(world, ledger):
    """delivered-after-ack"""
    pop(ledger, delivery(1), asked=0.0)
    pass_time(world, 1.0)
    ledger.settles(delivery(1), ack=True)
    ledger.acked(delivery(1), asked=1.0)
    pop(ledger, delivery(2), asked=0.5)
    with pytest.raises(Violation, match="delivered-after-ack"):
        pop(ledger, delivery(3), asked=1.5)


def test_an_old_token_that_is_taken_is_found_unless_it_repeats_itself(world, ledger):
    """stale-token-accepted"""
    pop(ledger, delivery(1), asked=0.0)
    pass_time(world, LEASE_S + 1)
    pop(ledger, delivery(2), asked=LEASE_S + 0.5)
    pass_time(world, 1.0)
    with pytest.raises(Violation, match="stale-token-accepted"):
        ledger.acked(delivery(1), asked=LEASE_S + 2)
    ledger.tried(delivery(1))
    ledger.acked(delivery(1), asked=LEASE_S + 2)


def test_more_than_the_credits_and_more_attempts_than_retries_are_found(ledger):
    """credit-overrun, over-retry"""
    pop(ledger, delivery(1), asked=0.0, credits=1)
    with pytest.raises(Violation, match="credit-overrun"):
        pop(ledger, delivery(1), delivery(1, b"b:work", OTHER), asked=0.0, credits=1)
    pop(ledger, delivery(5, b"b:work", OTHER, attempts=3), asked=0.0)
    ledger.settles(delivery(5, b"b:work", OTHER), ack=False)
    with pytest.raises(Violation, match="over-retry"):
        pop(ledger, delivery(6, b"b:work", OTHER, attempts=4), asked=0.0)


def test_attempts_that_fall_or_do_not_count_a_failure_are_found(world, ledger):
    """attempt-jump"""
    pop(ledger, delivery(1, attempts=1), asked=0.0)
    pass_time(world, 1.0)
    ledger.settles(delivery(1), ack=False)
    ledger.failed(delivery(1))
    pop(ledger, delivery(2, attempts=2), asked=1.0)
    ledger.settles(delivery(2), ack=False)  # given back: no attempt is counted
    pass_time(world, 1.0)
    pop(ledger, delivery(3, attempts=2), asked=2.0)
    ledger.settles(delivery(3), ack=False)
    pop(ledger, delivery(4, attempts=1), asked=0.5)  # its answer was long under way
    ledger.settles(delivery(4), ack=False)
    pass_time(world, 1.0)
    with pytest.raises(Violation, match="attempt-jump"):
        pop(ledger, delivery(5, attempts=1), asked=3.0)


def test_a_failure_that_was_not_counted_is_found(world, ledger):
    """attempt-jump"""
    pop(ledger, delivery(1, attempts=0), asked=0.0)
    pass_time(world, 1.0)
    ledger.settles(delivery(1), ack=False)
    ledger.failed(delivery(1))
    with pytest.raises(Violation, match="attempt-jump"):
        pop(ledger, delivery(2, attempts=0), asked=1.5)


def test_what_was_taken_and_never_acked_is_told(ledger):
    """lost-enqueue"""
    ledger.took("a", ID)
    ledger.took("b", OTHER)
    pop(ledger, delivery(1), asked=0.0)
    assert ledger.unaccounted() == ["a", "b"]
    ledger.settles(delivery(1), ack=True)  # its answer was lost: it may have been acked
    assert ledger.unaccounted() == ["b"]
