"""Acknowledged offsets against a set."""

import random

import pytest

from dray.machine import checkpoint
from dray.machine.acks import MAX_RANGES, Acked, AckOffsets
from dray.machine.groups.commands import DropGroup
from dray.machine.names import TopicId
from dray.machine.offsets import CommitOffsets, ExpireOffsets, OffsetReason, OffsetRow
from dray.machine.verdict import Refused, Why

from .scribe import HOUR
from .shop import Shop

T = TopicId(b"t" * 16)


def ack(shop: Shop, *ranges: tuple[int, int], failed: tuple[int, ...] = (), start: int = 0, group: str = "g"):
    command = AckOffsets(group=group, topic_id=T, partition=0, start=start, ranges=ranges, failed=failed)
    return shop.writer.do(command)


def committed(shop: Shop) -> int | None:
    found = shop.machine.offsets.find("g", T, 0)
    return None if found is None else found.offset


def test_the_first_ack_of_offset_zero_moves_on_and_a_late_one_changes_nothing():
    """W-14, W-02, W-20, W-21, W-22, AO1"""
    shop = Shop(version=2)
    assert committed(shop) is None
    assert ack(shop, (0, 1)) == Acked(next=1, grew=True)
    at = shop.machine.offsets.find("g", T, 0).commit_position
    assert ack(shop, (0, 1)) == Acked(next=1, grew=False)
    assert shop.machine.offsets.find("g", T, 0).commit_position == at


def test_acks_out_of_order_lose_no_lower_offset():
    """W-27, AO2: the floor waits for what is missing."""
    shop = Shop(version=2)
    assert ack(shop, (5, 6)) == Acked(next=0, grew=True)
    assert ack(shop, (3, 4), (7, 9)) == Acked(next=0, grew=True)
    assert shop.machine.offsets.acks("g", T, 0).ranges == [(3, 4), (5, 6), (7, 9)]
    assert ack(shop, (0, 3)) == Acked(next=4, grew=True)
    assert ack(shop, (4, 5)) == Acked(next=6, grew=True)
    assert ack(shop, (6, 7)) == Acked(next=9, grew=True)
    assert not shop.machine.offsets.acks("g", T, 0).ranges


def test_what_the_log_start_has_passed_holds_nothing_back():
    """AO2"""
    shop = Shop(version=2)
    ack(shop, (12, 15))
    assert ack(shop, (20, 21), start=12) == Acked(next=15, grew=True)


def test_failures_are_counted_until_the_offset_is_settled():
    """B-2, W-09"""
    shop = Shop(version=2)
    assert ack(shop, failed=(4,)) == Acked(next=0, grew=False, attempts=(1,))
    assert ack(shop, (5, 6), failed=(4, 5)) == Acked(next=0, grew=True, attempts=(2, 0))
    assert shop.machine.offsets.acks("g", T, 0).failed == {4: 2}
    assert ack(shop, (0, 5)) == Acked(next=6, grew=True)
    assert not shop.machine.offsets.acks("g", T, 0).failed
    assert ack(shop, failed=(4,)) == Acked(next=6, grew=False, attempts=(0,))


def test_too_many_ranges_are_refused_and_nothing_changes():
    """AO3"""
    shop = Shop(version=2)
    for first in range(0, 2 * MAX_RANGES, 200):
        ack(shop, *((number + 1, number + 2) for number in range(first, first + 200, 2)))
    verdict = ack(shop, (5_000, 5_001))
    assert isinstance(verdict, Refused)
    assert verdict.why is Why.LIMIT
    assert len(shop.machine.offsets.acks("g", T, 0).ranges) == MAX_RANGES
    assert ack(shop, (0, 1)) == Acked(next=2, grew=True), "what makes it less is taken"
    assert ack(shop, (5_000, 5_001)).grew
    assert isinstance(ack(shop, (3, 3)), Refused)


def test_a_commit_of_the_group_says_where_it_is():
    """C5: a tool that sets an offset back gets everything again."""
    shop = Shop(version=2)
    ack(shop, (0, 4), (6, 8), failed=(5,))
    row = OffsetRow(topic_id=T, partition=0, offset=2)
    shop.writer.do(CommitOffsets(group="g", rows=(row,)))
    assert committed(shop) == 2
    assert shop.machine.offsets.acks("g", T, 0).ranges == []
    assert ack(shop, (3, 4)) == Acked(next=2, grew=True)


def test_acks_go_with_their_row():
    """C2, C3"""
    shop = Shop(version=2)
    empty = shop.machine.offsets.bytes
    ack(shop, (1, 2), failed=(0,))
    shop.writer.live(2 * HOUR)
    rows = tuple(shop.machine.offsets.due("g", HOUR))
    shop.writer.do(ExpireOffsets(group="g", reason=OffsetReason.EXPIRED, rows=rows, retention_ms=HOUR))
    assert committed(shop) is None
    assert shop.machine.offsets.bytes == empty
    ack(shop, (1, 2), failed=(0,))
    shop.writer.do(DropGroup(group="g"))
    assert not shop.machine.offsets.acks("g", T, 0).ranges


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_acks_equals_a_set(seed):
    """AO1, AO2, W-26, W-30, W-32"""
    dice = random.Random(seed)
    shop = Shop(version=2)
    settled: set[int] = set()
    failed: dict[int, int] = {}
    start = 0
    floors = []
    for _ in range(200):
        if dice.random() < 0.05:
            start += dice.randrange(10)
        settled |= set(range(start))
        ranges = [(at, at + dice.randrange(1, 4)) for at in dice.sample(range(120), dice.randrange(3))]
        failing = tuple(dice.sample(range(120), dice.randrange(2)))
        verdict = ack(shop, *ranges, failed=failing, start=start)
        settled |= {offset for low, high in ranges for offset in range(low, high)}
        for offset in failing:
            if offset not in settled:
                failed[offset] = failed.get(offset, 0) + 1
        failed = {offset: count for offset, count in failed.items() if offset not in settled}
        floor = next(offset for offset in range(10_000) if offset not in settled)
        assert verdict.next == floor, seed
        assert verdict.attempts == tuple(failed.get(offset, 0) for offset in failing), seed
        acks = shop.machine.offsets.acks("g", T, 0)
        assert {o for low, high in acks.ranges for o in range(low, high)} == {o for o in settled if o > floor}, seed
        assert acks.failed == failed, seed
        floors.append(floor)
    assert floors == sorted(floors), "W-26"
    loaded = checkpoint.load(checkpoint.dump(shop.machine))
    assert checkpoint.dump(loaded) == checkpoint.dump(shop.machine)
    assert loaded.offsets.bytes == shop.machine.offsets.bytes
