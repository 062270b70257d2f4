"""Messages in their order: a list that is built anew goes on like the one that grew."""

import random

import pytest

from dray.machine.heaps import order
from dray.machine.heaps.order import MessageOrder, entry_of

SORTS = {
    "ascending": lambda dice, at: at,
    "descending": lambda dice, at: 10_000 - at,
    "few keys": lambda dice, at: dice.randrange(3),
    "any": lambda dice, at: dice.randrange(1 << 60),
}


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 500])
def test_whatever_a_list_is_built_from_the_least_comes_first(monkeypatch, sort, count):
    """L5: also where it is longer than what is put in order at once."""
    monkeypatch.setattr(order, "PIECE", 8)
    dice = random.Random(count)
    entries = [entry_of(SORTS[sort](dice, at), at + 1, at) for at in range(count)]
    made = MessageOrder(lambda entry: True)
    made.push(entry_of(0, 0, 0))
    made.rebuild(list(entries))
    assert len(made) == count
    made.push(entry_of(5, count + 1, count))
    assert [made.pop() for _ in range(count + 1)] == sorted([*entries, entry_of(5, count + 1, count)])
