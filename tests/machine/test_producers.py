"""Idempotent producers against a twin that remembers everything."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.machine import producers
from dray.machine.append import Accepted, Duplicate, Rejected, batch_verdict
from dray.machine.producer_ids import AllocateProducerId, ProducerAllocated
from dray.machine.producers import SEQUENCES
from dray.machine.streams import CloseStream, ExpireProducers, ProducersExpired
from dray.machine.topics import DeleteTopic, TopicGone

from .scribe import HOUR
from .shop import Shop, row

LAST = SEQUENCES - 1


class Twin:
    """What a stream knows of its producers, as lists."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.epochs: dict[int, int] = {}
        self.batches: dict[int, list[tuple[int, int, int]]] = {}

    def judge(self, producer: int, epoch: int, sequence: int, records: int, base: int):
        last = (sequence + records - 1) % SEQUENCES
        known = self.epochs.get(producer)
        history = self.batches.get(producer, [])
        if known is None:
            accepted = sequence == 0 or producer < self.floor
        elif epoch < known:
            return Rejected.FENCED
        elif epoch > known:
            accepted, history = sequence == 0, []
        else:
            for first, end, offset in history[-5:]:
                if (first, end) == (sequence, last):
                    return Duplicate(base=offset)
            accepted = sequence == (history[-1][1] + 1) % SEQUENCES
        if not accepted:
            return Rejected.GAP
        self.epochs[producer] = epoch
        self.batches[producer] = [*history, (sequence, last, base)]
        return Accepted(base=base)


def take(states: bytearray, floor: int, producer: int, epoch: int, sequence: int, records: int, base: int):
    return batch_verdict(producers.take(states, floor, producer, epoch, sequence, records, base, 0))


BATCH = st.tuples(
    st.integers(0, 6),
    st.integers(0, 2),
    st.sampled_from(["next", "again", "zero", "older", "gap", "end"]),
    st.integers(1, 4),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(BATCH, max_size=80), st.integers(0, 4))
def test_every_batch_gets_the_verdict_of_the_twin(batches, floor):
    """P1, P2, P3, R-100"""
    states, twin, base = bytearray(), Twin(floor), 0
    for producer, epoch, how, records in batches:
        history = twin.batches.get(producer) or [(0, LAST, 0)]
        first, last, _ = history[-1]
        sequence = {
            "next": (last + 1) % SEQUENCES, "again": first, "zero": 0, "older": history[-min(len(history), 6)][0],
            "gap": (last + 5) % SEQUENCES, "end": LAST - 2,
        }[how]  # fmt: skip
        expected = twin.judge(producer, epoch, sequence, records, base)
        assert take(states, floor, producer, epoch, sequence, records, base) == expected
        if isinstance(expected, Accepted):
            base += records
    assert producers.producer_ids(states) == sorted(twin.epochs)
    for producer, history in twin.batches.items():
        state = producers.find(states, producer)
        assert state.epoch == twin.epochs[producer]
        assert [(first, base) for first, _, base in state.batches] == [(f, b) for f, _, b in reversed(history[-5:])]


def test_a_retry_is_answered_with_its_first_offset_for_five_batches_back():
    """P1, R-014, R-100"""
    shop = Shop()
    [stream] = shop.topic("t", 1)
    sent = [row(stream, 3, producer=7, sequence=3 * k, epoch=0) for k in range(8)]
    assert shop.append_rows(*sent) == [Accepted(base=3 * k) for k in range(8)]
    expected = [Rejected.GAP] * 3 + [Duplicate(base=3 * k) for k in range(3, 8)]
    assert shop.append_rows(*sent) == expected
    assert shop.machine.streams.find(stream).end == 24


def test_a_retry_with_another_number_of_records_is_no_duplicate():
    shop = Shop()
    [stream] = shop.topic("t", 1)
    shop.append_rows(row(stream, 3, producer=7, sequence=0, epoch=0))
    assert shop.append_rows(row(stream, 2, producer=7, sequence=0, epoch=0)) == [Rejected.GAP]


def test_an_unknown_producer_begins_at_zero():
    """P2, R-100: a later batch must not overtake a first one whose put failed."""
    shop = Shop()
    [stream] = shop.topic("t", 1)
    assert shop.append_rows(row(stream, 1, producer=7, sequence=1, epoch=0)) == [Rejected.GAP]
    assert shop.append_rows(row(stream, 1, producer=7, sequence=0, epoch=3)) == [Accepted(base=0)]


def test_a_newer_epoch_begins_at_zero_and_fences_the_older():
    """P2, P3, R-100"""
    shop = Shop()
    [stream] = shop.topic("t", 1)
    rows = [
        row(stream, 1, producer=7, sequence=0, epoch=1),
        row(stream, 1, producer=7, sequence=1, epoch=2),
        row(stream, 1, producer=7, sequence=0, epoch=2),
        row(stream, 1, producer=7, sequence=1, epoch=1),
        row(stream, 1, producer=7, sequence=0, epoch=1),
        row(stream, 1, producer=7, sequence=1, epoch=2),
    ]
    expected = [Accepted(base=0), Rejected.GAP, Accepted(base=1), Rejected.FENCED, Rejected.FENCED, Accepted(base=2)]
    assert shop.append_rows(*rows) == expected


def test_sequences_wrap_and_retries_across_the_wrap_are_seen():
    """P1, P2, R-100"""
    states = bytearray()
    assert take(states, 10, 7, 0, LAST - 1, 4, 100) == Accepted(base=100)  # ..., LAST, 0, 1
    assert take(states, 10, 7, 0, 2, 1, 104) == Accepted(base=104)
    assert take(states, 10, 7, 0, LAST - 1, 4, 105) == Duplicate(base=100)
    assert take(states, 10, 7, 0, LAST, 4, 105) == Rejected.GAP
    states = bytearray()
    assert take(states, 10, 7, 0, LAST, 1, 0) == Accepted(base=0)
    assert take(states, 10, 7, 0, 0, 1, 1) == Accepted(base=1)


def test_without_an_id_epoch_and_sequence_are_ignored():
    """R-100: kafkajs and aiokafka send 0."""
    shop = Shop()
    [stream] = shop.topic("t", 1)
    rows = [row(stream, 1, producer=-1, sequence=0, epoch=0)] * 3
    assert shop.append_rows(*rows) == [Accepted(base=0), Accepted(base=1), Accepted(base=2)]


def test_the_same_batch_through_two_brokers_is_appended_once():
    """R-101"""
    shop = Shop()
    [stream] = shop.topic("t", 1)
    batch = row(stream, 5, producer=7, sequence=0, epoch=0)
    assert shop.append_rows(batch) == [Accepted(base=0)]
    shop.writer = shop.tape.open("another")
    assert shop.append_rows(batch) == [Duplicate(base=0)]


def test_an_expired_producer_and_those_below_it_may_go_on_anywhere():
    """P5"""
    shop = Shop()
    [stream] = shop.topic("t", 1)
    shop.append_rows(*(row(stream, 1, producer=pid, sequence=0, epoch=0) for pid in (3, 5, 9)))
    shop.writer.live(30 * HOUR)
    shop.append_rows(row(stream, 1, producer=9, sequence=1, epoch=0))
    assert shop.writer.do(ExpireProducers(stream=stream, idle_ms=24 * HOUR)) == ProducersExpired(
        expired=2, next_start=-1
    )
    assert shop.machine.streams.find(stream).producer_floor == 6
    expected = [Accepted(base=4), Accepted(base=5), Rejected.GAP, Rejected.GAP]
    rows = [row(stream, 1, producer=pid, sequence=77, epoch=0) for pid in (5, 4, 6, 9)]
    assert shop.append_rows(*rows) == expected


def test_expiry_goes_in_slices():
    """Q8"""
    states = bytearray()
    for pid in range(0, 200, 2):
        producers.take(states, 0, pid, 0, 0, 1, pid, pid % 10)
    seen, start = [], 0
    while start >= 0:
        gone, start = producers.expire(states, start, 7, 4)
        assert len(gone) <= 7
        seen += gone
    assert seen == [pid for pid in range(0, 200, 2) if pid % 10 < 4]
    assert producers.producer_ids(states) == [pid for pid in range(0, 200, 2) if pid % 10 >= 4]


def test_ids_older_than_a_recreated_topic_may_begin_anywhere_in_it():
    """P2: a 45 on a lone batch is fatal to librdkafka."""
    shop = Shop()
    pids = [shop.writer.do(AllocateProducerId()).producer_id for _ in range(3)]
    [first] = shop.topic("t", 1)
    topic = shop.machine.topics.named("t")
    shop.append_rows(row(first, 1, producer=pids[0], sequence=0, epoch=0))
    shop.writer.send(DeleteTopic(topic_id=topic.id), CloseStream(stream=first), TopicGone(topic_id=topic.id))
    [second] = shop.topic("t", 1)
    [other] = shop.topic("new", 1)
    young = shop.writer.do(AllocateProducerId()).producer_id
    rows = [row(stream, 1, producer=pid, sequence=5, epoch=0) for stream in (second, other) for pid in (*pids, young)]
    expected = [Accepted(base=0), Accepted(base=1), Accepted(base=2), Rejected.GAP] + [Rejected.GAP] * 4
    assert shop.append_rows(*rows) == expected


@pytest.mark.parametrize("generation", [0, 1, 7])
def test_producer_ids_are_dense_and_above_earlier_generations(generation):
    """P4, R-099"""
    shop = Shop(generation=generation)
    given = [shop.writer.do(AllocateProducerId()) for _ in range(5)]
    assert given == [ProducerAllocated(producer_id=(generation << 40) + k) for k in range(5)]


def test_many_producers_of_one_stream_are_kept_sorted_and_found():
    dice = random.Random(3)
    states, twin = bytearray(), {}
    for step in range(3_000):
        pid = dice.randrange(500)
        sequence = twin.get(pid, 0)
        assert take(states, 0, pid, 0, sequence, 2, step) == Accepted(base=step)
        twin[pid] = sequence + 2
    assert producers.producer_ids(states) == sorted(twin)
    assert len(states) == len(twin) * 78
