"""Deliveries, one at a time: what consumers are promised."""

import random

import pytest

from dray.machine import checkpoint
from dray.machine.heaps.answers import ALREADY, DIED, DONE, FULL, GONE, INLINE_FULL, LOST
from dray.machine.heaps.commands import Bury, MessageRef, Replay
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.leases import LeaseHeld, Leases
from dray.machine.heaps.packets import RELATIVE, EnqueueRow, Settlement
from dray.machine.heaps.rows import State
from dray.machine.heaps.timers import backoff_ms
from dray.machine.heaps.tombs import LANES, Tombs
from dray.machine.sessions import Close, Expire, KeepAlive

from ..scribe import HOUR, NOW, Tape
from .jobs import Jobs


@pytest.mark.parametrize("mode", list(Mode))
def test_the_best_priority_comes_first_and_equals_in_the_order_of_their_coming(mode):
    """L5, D-001, D-032, D-038"""
    jobs = Jobs(mode=mode)
    priorities = [0, -(1 << 63), 5, (1 << 63) - 1, 5, -1]
    jobs.enqueue(*map(EnqueueRow, priorities))
    wanted = sorted(range(len(priorities)), key=lambda i: (priorities[i] if mode is Mode.MIN else -priorities[i], i))
    assert [message.arrival - 1 for message in jobs.lease(10)] == wanted


def test_a_message_is_with_one_consumer_until_its_lease_is_over_and_then_with_another():
    """L1, L8, D-085, D-087, D-092"""
    jobs = Jobs(max_retries=3, backoff_base_ms=0)
    jobs.enqueue(EnqueueRow(0))
    (first,) = jobs.lease(seconds=30)
    for _ in range(29):
        jobs.after(1)
        assert jobs.lease() == []
    jobs.after(2)
    (second,) = jobs.lease()
    assert (second.arrival, second.attempts) == (first.arrival, 1)


def test_only_the_live_token_settles_and_from_its_deadline_on_nobodys_does():
    """L2, D-088, D-089, D-096"""
    jobs = Jobs()
    jobs.enqueue(EnqueueRow(0))
    (message,) = jobs.lease(seconds=10)
    mine = jobs.nonce
    assert jobs.ack(message, b"x" * 16) == LOST
    jobs.after(10)
    assert jobs.ack(message, mine) == LOST
    assert jobs.settle(Settlement.EXTEND, message, mine, 5_000) == LOST
    assert jobs.shard.messages.rows.counts[State.LEASED] == 1, "a bucket ends when it is wholly past"


def test_an_ack_is_final_and_repeating_it_is_harmless():
    """L4, L9, D-084, D-086, D-090"""
    jobs = Jobs()
    jobs.enqueue(EnqueueRow(0))
    (message,) = jobs.lease()
    mine = jobs.nonce
    assert [jobs.ack(message, mine) for _ in range(3)] == [DONE, ALREADY, ALREADY]
    assert jobs.ack(message, b"x" * 16) == LOST
    assert jobs.settle(Settlement.NACK, message, mine) == LOST
    jobs.after(2 * 3_600)
    assert jobs.lease() == []
    assert jobs.ack(message._replace(arrival=99), mine) == GONE


def test_a_nack_waits_and_counts_and_the_last_one_is_the_end():
    """L3, D-091, D-093, D-172, D-173"""
    jobs = Jobs(max_retries=1)
    jobs.enqueue(EnqueueRow(0), body=b"work")
    (message,) = jobs.lease()
    assert jobs.settle(Settlement.NACK, message, jobs.nonce, 5_000, note="no") == DONE
    assert jobs.settle(Settlement.NACK, message, jobs.nonce, 5_000) == ALREADY
    assert jobs.lease() == []
    jobs.after(5)
    (message,) = jobs.lease()
    assert message.attempts == 1
    assert jobs.settle(Settlement.NACK, message, jobs.nonce) == DIED
    assert jobs.shard.messages.rows.counts[State.DEAD] == 1
    jobs.writer.do(Replay(shard=jobs.id))
    (again,) = jobs.lease()
    assert (again.attempts, again.body) == (0, b"work")
    assert (again.number, again.begun_ms, again.seq) == (message.number, message.begun_ms, message.seq)


@pytest.mark.parametrize(("own", "deliveries"), [(-1, 3), (0, 1), (1, 2)])
def test_a_message_has_its_own_retries_or_those_of_its_heap(own, deliveries):
    """D-171, D-172: 0 says that it is tried once."""
    jobs = Jobs(max_retries=2, backoff_base_ms=0)
    jobs.enqueue(EnqueueRow(0, retries=own))
    codes = []
    for _ in range(deliveries):
        (message,) = jobs.lease()
        codes.append(jobs.settle(Settlement.NACK, message, jobs.nonce, 0))
    assert codes == [DONE] * (deliveries - 1) + [DIED]


def test_a_release_counts_no_attempt_and_a_reject_ends_at_once():
    """L3"""
    jobs = Jobs()
    jobs.enqueue(EnqueueRow(0))
    (message,) = jobs.lease()
    assert jobs.settle(Settlement.RELEASE, message, jobs.nonce) == DONE
    (message,) = jobs.lease()
    assert message.attempts == 0
    assert jobs.settle(Settlement.REJECT, message, jobs.nonce) == DIED


def test_without_dead_letters_what_is_out_of_retries_is_dropped_and_counted():
    """D-179"""
    jobs = Jobs(max_retries=0, dead_letters=False)
    jobs.enqueue(EnqueueRow(0))
    (message,) = jobs.lease()
    assert jobs.settle(Settlement.NACK, message, jobs.nonce) == DIED
    totals = jobs.shard.messages.totals
    assert (len(jobs.shard.messages.rows), totals.died, totals.dropped) == (0, 1, 1)


def test_an_extension_is_capped_and_a_lease_never_ends_earlier():
    """L2, D-094, D-095"""
    jobs = Jobs(max_lease_ms=60_000)
    jobs.enqueue(EnqueueRow(0))
    (message,) = jobs.lease(seconds=30)
    assert jobs.settle(Settlement.RENEW, message, jobs.nonce, 1_000) == DONE
    assert jobs.left_ms == 30_000
    assert jobs.settle(Settlement.EXTEND, message, jobs.nonce, 10_000) == DONE
    assert jobs.left_ms == 40_000
    assert jobs.settle(Settlement.EXTEND, message, jobs.nonce, 10**9) == DONE
    assert jobs.left_ms == 60_000
    jobs.after(59)
    assert jobs.ack(message, jobs.nonce) == DONE


def test_nothing_is_ready_before_its_time_and_what_is_due_is_ready_then():
    """L7, D-043, D-198"""
    jobs = Jobs()
    jobs.enqueue(EnqueueRow(0, wait=5_000, flags=RELATIVE), EnqueueRow(1, wait=NOW + 8_000), EnqueueRow(2, wait=NOW))
    assert [message.priority for message in jobs.lease(5)] == [2]
    jobs.after(5)
    assert [message.priority for message in jobs.lease(5)] == [0]
    jobs.after(3)
    assert [message.priority for message in jobs.lease(5)] == [1]


def test_no_wall_clock_moves_a_lease_or_a_window_of_dedup():
    """L8, DD1, Q9, D-182, T25: a clock that is hours ahead, with proof and without."""
    jobs = Jobs(dedup_window_ms=60_000)
    key = (b"k" * 16,)
    jobs.enqueue(EnqueueRow(0, key=1, seq=0), keys=key)
    (message,) = jobs.lease(seconds=30)
    mine = jobs.nonce
    for number in range(3):
        ahead = jobs.tape.open(f"ahead{number}", wall_ms=NOW + 5 * HOUR, accept_clock=True)
        ahead.send(Close())
    assert jobs.tape.machine.time_ms >= NOW + HOUR
    jobs.after(20)
    assert jobs.lease() == []
    assert jobs.enqueue(EnqueueRow(0, key=1, seq=0), keys=key)[0].slot < 0
    assert jobs.ack(message, mine) == DONE


def test_a_lease_outlasts_running_time_that_catches_up_while_its_giver_lives():
    """L8: nobody wrote for a while, a broker opened then and gave a lease; the silent one brings the time it saw."""
    jobs = Jobs(backoff_base_ms=0)
    silent = jobs.writer
    jobs.enqueue(EnqueueRow(0))
    silent.pass_time(25_000)
    jobs.writer = jobs.tape.open("b2")
    (message,) = jobs.lease(seconds=30)
    mine = jobs.nonce
    jobs.writer.pass_time(10_000)
    silent.pass_time(10_000)
    silent.send(KeepAlive())
    jobs.tick()
    assert jobs.tape.machine.timeline.running_ms == 35_000
    assert jobs.shard.messages.rows.counts[State.LEASED] == 1
    jobs.after(19)
    assert jobs.settle(Settlement.EXTEND, message, mine, 0) == DONE
    jobs.after(2)
    assert jobs.ack(message, mine) == LOST


@pytest.mark.parametrize("how", ["closed", "expired", "replaced"])
def test_a_lease_outlasts_running_time_that_catches_up_when_its_giver_has_ended(how):
    """L8: as above, and then the giver ends: the silent one's clock counts from when it has seen that."""
    jobs = Jobs(backoff_base_ms=0)
    silent = jobs.writer
    jobs.enqueue(EnqueueRow(0))
    silent.pass_time(25_000)
    giver = jobs.writer = jobs.tape.open("b2")
    (message,) = jobs.lease(seconds=30)
    mine = jobs.nonce
    giver.pass_time(10_000)
    giver.send(KeepAlive())
    silent.pass_time(10_000)
    if how == "closed":
        giver.send(Close())
    elif how == "expired":
        silent.pass_time(30_000)
        silent.do(Expire(session=giver.session, last_n=giver.n))
    else:
        jobs.tape.open("b2")
    jobs.writer = silent
    jobs.tick()
    assert jobs.tape.machine.timeline.running_ms >= 35_000, "running time alone would end it"
    assert jobs.shard.messages.rows.counts[State.LEASED] == 1
    dumped = checkpoint.dump(jobs.tape.machine)
    jobs.tape.machine = checkpoint.load(dumped)
    assert checkpoint.dump(jobs.tape.machine) == dumped
    jobs.after(19)
    jobs.tick()
    assert jobs.shard.messages.rows.counts[State.LEASED] == 1, "twenty seconds were left of it"
    jobs.after(2)
    jobs.tick()
    assert jobs.shard.messages.rows.counts[State.LEASED] == 0
    assert jobs.ack(message, mine) == LOST


def test_what_was_left_of_a_lease_is_handed_on_from_clock_to_clock():
    """L8: three brokers end one after the other, and nobody's time counts twice."""
    jobs = Jobs(backoff_base_ms=0)
    jobs.enqueue(EnqueueRow(0))
    (message,) = jobs.lease(seconds=30)
    mine = jobs.nonce
    for number in range(3):
        jobs.after(8)
        jobs.tick()
        jobs.writer.send(Close())
        jobs.writer = jobs.tape.open(f"heir-{number}")
        jobs.tick()
        assert jobs.shard.messages.rows.counts[State.LEASED] == 1
    jobs.after(5)
    assert jobs.settle(Settlement.RENEW, message, mine, 10_000) == DONE
    jobs.after(9)
    jobs.tick()
    assert jobs.shard.messages.rows.counts[State.LEASED] == 1
    jobs.after(2)
    jobs.tick()
    assert jobs.shard.messages.rows.counts[State.LEASED] == 0


def test_a_lease_that_was_renewed_lasts_by_the_clock_of_who_wrote_that():
    """D-097, L8: the silent one brings its time right after a renewal, and takes nothing of it."""
    jobs = Jobs(backoff_base_ms=0)
    silent = jobs.writer
    jobs.enqueue(EnqueueRow(0))
    silent.pass_time(25_000)
    jobs.writer = jobs.tape.open("b2")
    (message,) = jobs.lease(seconds=30)
    mine = jobs.nonce
    other = jobs.tape.open("b3")
    jobs.writer = other
    assert jobs.settle(Settlement.RENEW, message, mine, 40_000) == DONE
    silent.send(KeepAlive())
    jobs.after(39)
    jobs.tick()
    assert jobs.shard.messages.rows.counts[State.LEASED] == 1
    jobs.after(2)
    jobs.tick()
    assert jobs.shard.messages.rows.counts[State.LEASED] == 0


def test_while_no_broker_lives_no_lease_ends():
    """L8, Q9, D-160, D-161: ten hours of an outage, and the lease has what was left of it."""
    tape = Tape(version=2)
    jobs = Jobs(tape=tape)
    jobs.enqueue(EnqueueRow(0))
    (message,) = jobs.lease(seconds=30)
    mine = jobs.nonce
    jobs.after(20)
    jobs.writer.send(Close())
    jobs.writer = tape.open("b2", wall_ms=NOW + 10 * HOUR, accept_clock=True)
    assert jobs.lease() == []
    jobs.after(9)
    assert jobs.settle(Settlement.EXTEND, message, mine, 0) == DONE
    jobs.after(2)
    assert jobs.ack(message, mine) == LOST


def test_limits_are_judged_when_a_command_is_applied():
    """L11: however many brokers asked at once."""
    jobs = Jobs(max_messages=3, max_inflight=2, max_leases_per_consumer=1)
    other = jobs.tape.open("b2")
    jobs.enqueue(EnqueueRow(0), EnqueueRow(0))
    given = jobs.enqueue(EnqueueRow(0), EnqueueRow(0), writer=other)
    assert [one.slot >= 0 for one in given] == [True, False]
    assert given[1].slot == FULL
    assert len(jobs.lease(3, holder="a")) == 1
    assert jobs.lease(3, holder="a") == []
    assert len(jobs.lease(3, holder="b")) == 1
    assert jobs.lease(3, holder="c") == []


def test_a_message_past_its_time_is_not_granted_unless_time_just_jumped():
    jobs = Jobs(message_ttl_ms=60_000)
    jobs.enqueue(EnqueueRow(0))
    jobs.after(30)
    jobs.enqueue(EnqueueRow(1))
    jobs.after(45)
    assert [message.priority for message in jobs.lease(5)] == [1]
    assert jobs.shard.messages.totals.dropped == 1


def test_a_paused_heap_takes_and_does_not_grant():
    jobs = Jobs(paused=True)
    assert jobs.enqueue(EnqueueRow(0))[0].slot >= 0
    assert jobs.lease() == []
    jobs.config = HeapConfig()
    jobs.tell(1)
    assert len(jobs.lease()) == 1


def test_bodies_in_memory_are_bounded_for_all_heaps_of_a_domain():
    """HB1"""
    jobs = Jobs()
    body = bytes(1 << 20)
    answers = [jobs.enqueue(EnqueueRow(0), body=body)[0].slot for _ in range(18)]
    assert [slot >= 0 for slot in answers] == [True] * 15 + [False] * 3
    assert answers[-1] == INLINE_FULL
    (message,) = jobs.lease()
    jobs.ack(message, jobs.nonce)
    assert jobs.enqueue(EnqueueRow(0), body=body)[0].slot >= 0


def test_a_dead_message_goes_after_its_retention_and_not_while_time_is_paused():
    """D-163, Q7, D-162"""
    jobs = Jobs(retention_ms=60_000)
    jobs.enqueue(EnqueueRow(0), EnqueueRow(1), EnqueueRow(2, wait=300 * HOUR, flags=RELATIVE))
    given = jobs.shard.messages.rows.arrival(0)
    jobs.writer.do(Bury(shard=jobs.id, messages=(MessageRef(slot=0, arrival=given),)))
    jobs.tape.open("ahead", wall_ms=NOW + HOUR // 2).send(Close())
    jobs.tick()
    assert len(jobs.shard.messages.dead) == 1
    jobs.after(2 * 3_600)
    jobs.tick()
    assert not jobs.shard.messages.dead
    assert len(jobs.shard.messages.rows) == 2, "what is ready or delayed stays, however old"


def test_delays_of_messages_that_fail_together_are_spread():
    """D-170: the distribution, not only its bounds."""
    config = HeapConfig(backoff_base_ms=1_000, backoff_cap_ms=300_000)
    for attempts in range(12):
        most = min(300_000, 1_000 << attempts)
        drawn = [backoff_ms(config, arrival, attempts) for arrival in range(4_000)]
        assert 0 <= min(drawn) < most / 100
        assert most * 0.99 < max(drawn) <= most
        tenths = [sum(most * t / 10 <= delay < most * (t + 1) / 10 for delay in drawn) for t in range(10)]
        assert all(300 < count < 500 for count in tenths), tenths
    assert backoff_ms(HeapConfig(jitter=False), 7, 3) == 8_000


def test_a_lease_that_is_given_and_ended_for_ever_costs_nothing_that_stays():
    """Buckets are emptied and filled again; their numbers are queued once."""
    leases = Leases()
    for turn in range(10_000):
        leases.grant([turn % 7], LeaseHeld(b"n" * 16, 40_000_000 + turn % 3_000, 0, "c", 1, 0))
        leases.end(turn % 7)
        if not turn:
            leases.grant([7], LeaseHeld(b"n" * 16, 39_000_000, 0, "d", 1, 0))  # an older one stays in front of them
    assert leases.next_end_ms() == (39_000_000 >> 9) + 1 << 9
    assert len(leases._numbers) <= 8
    leases.end(7)
    assert leases.next_end_ms() is None
    assert not leases.holders


def test_acks_are_remembered_ten_minutes_whatever_came_since():
    """L4"""
    tombs, dice = Tombs(), random.Random(3)
    acks = {arrival: dice.randbytes(16) for arrival in dice.sample(range(1 << 40), 40_000)}
    for turn, (arrival, nonce) in enumerate(acks.items()):
        tombs.add_all([arrival], nonce, turn)
    tombs.expire(600_000 - 1)
    assert all(tombs.knows(arrival, nonce) for arrival, nonce in acks.items())
    assert not any(tombs.knows(arrival, b"x" * 16) for arrival in list(acks)[:100])
    tombs.expire(600_000 + len(acks))
    assert all(tombs.knows(arrival, nonce) is None for arrival, nonce in acks.items())
    assert tombs.oldest_ms() is None
    assert LANES > 1
