"""What is remembered of producers, at scale: exact both ways, whatever the order of their messages."""

import random

import pytest

from dray.heaps.producing import _producer_key
from dray.machine.heaps.config import HeapConfig
from dray.machine.heaps.dedup import Dedup

SEED = 20261118
STRIDE = 64
"""How far messages of a producer overtake each other."""


@pytest.mark.parametrize(
    ("producers", "each", "distinct"),
    [
        (500, 400, 200_000),
        pytest.param(5_000, 2_000, 10_000_000, marks=[pytest.mark.long, pytest.mark.timeout(3_600)]),
    ],
)
def test_distinct_messages_are_never_duplicates_and_none_is_forgotten_in_its_window(
    producers: int, each: int, distinct: int
) -> None:
    """D-114, D-115, DD1: producer, epoch and sequence; restarts of a producer have its name and another epoch."""
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    config = HeapConfig(dedup_window_ms=1_000_000, max_dedup_keys=1 << 40)
    window_ms = config.dedup_window_ms
    keys = [_producer_key(f"producer-{number // 2}", number % 2) for number in range(producers)]
    assert len(set(keys)) == producers
    dedup, taken, numbers = Dedup(), 0, {}
    for first in range(0, each, STRIDE):
        now_ms = first * window_ms // (2 * each)  # all of it within half of the window, over several generations
        for producer, key in enumerate(keys):
            seqs = list(range(first, min(first + STRIDE, each)))
            dice.shuffle(seqs)
            for seq in seqs:
                assert dedup.find(key, seq, now_ms, window_ms) is None, (producer, seq)  # D-114
                known = dedup.take(key, seq, now_ms, now_ms, config, len(numbers))
                assert known is not None
                numbers.setdefault((producer, known.begun_ms), known.number)
                taken += 1
    assert taken == distinct
    assert len(set(numbers.values())) == len(numbers)  # no two of them share ids
    for producer, key in enumerate(keys):
        for seq in range(each):
            known = dedup.find(key, seq, window_ms, window_ms)
            assert known is not None, (producer, seq)  # D-115
            assert known.number == numbers[producer, known.begun_ms]
        assert dedup.find(key, each, window_ms, window_ms) is None
    assert all(dedup.find(key, 0, 3 * window_ms, window_ms) is None for key in keys)
