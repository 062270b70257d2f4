"""The packed index against a list of rows."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dray.machine.index import BLOCK, Index, IndexRow
from dray.machine.packing import Reader, Writer


class Twin:
    """The same index as a plain list."""

    def __init__(self) -> None:
        self.rows: list[IndexRow] = []
        self.shed: list[int] = []
        self.end = 0
        self.size = 0

    def append(self, records: int, size: int, owner: int, position: int, stamp: int) -> None:
        total = self.size + size + 4
        self.rows.append(IndexRow(self.end, self.end + records, total, owner, position, size, stamp))
        self.end += records
        self.size = total

    def replace(self, first: int, end: int, owner: int, position: int) -> None:
        gone = self.rows[first:end]
        one = IndexRow(
            gone[0].start, gone[-1].end, gone[-1].cumulative_size, owner, position,
            sum(row.size + 4 for row in gone) - 4, max(row.max_timestamp_ms for row in gone),
        )  # fmt: skip
        self.rows[first:end] = [one]
        self.shed += [row.object for row in gone]

    def find(self, offset: int) -> int | None:
        return next((number for number, row in enumerate(self.rows) if row.end > offset), None)

    def find_time(self, timestamp: int) -> int | None:
        return next((number for number, row in enumerate(self.rows) if row.max_timestamp_ms >= timestamp), None)


def append(index: Index, twin: Twin, records: int, size: int, owner: int, position: int, stamp: int) -> None:
    index.append(index.end + records, index.size + size + 4, owner, position, stamp)
    twin.append(records, size, owner, position, stamp)


def reload(index: Index, version: int = 2) -> Index:
    out = Writer()
    index.dump(out, version)
    source = Reader(memoryview(out.body()))
    loaded = Index.load(source, version)
    source.finish()
    return loaded


def equal(index: Index, twin: Twin) -> None:
    assert (index.end, index.size, len(index)) == (twin.end, twin.size, len(twin.rows))
    assert [index.row(number) for number in range(len(index))] == twin.rows


class OneStream(RuleBasedStateMachine):
    """Rows come at the end and go at the front, in any order; checkpoints in between."""

    def __init__(self) -> None:
        super().__init__()
        self.index, self.twin = Index(), Twin()

    @rule(
        count=st.sampled_from([1, 2, 7, BLOCK - 1, BLOCK, 3 * BLOCK]),
        records=st.integers(1, 2**31 - 1), size=st.integers(62, 2**32 - 1), stamp=st.integers(-1, 10_000),
    )  # fmt: skip
    def batches_come(self, count: int, records: int, size: int, stamp: int) -> None:
        for step in range(count):
            append(self.index, self.twin, records, size, step, step, (stamp + step * 7919) % 10_000 - 1)

    @rule(share=st.floats(0, 1))
    def rows_go(self, share: float) -> None:
        count = int(share * len(self.index))
        assert list(self.index.drop(count)) == [row.object for row in self.twin.rows[:count]]
        del self.twin.rows[:count]

    @rule(first=st.one_of(st.integers(0, 3), st.integers(0, 4 * BLOCK)), count=st.integers(1, 5 * BLOCK))
    def a_file_takes_the_place_of_rows(self, first: int, count: int) -> None:
        end = min(first + count, len(self.index))
        if first < end:
            self.index.replace(first, end, 1_000_000 + count, first)
            self.twin.replace(first, end, 1_000_000 + count, first)

    @rule(count=st.integers(0, 2 * BLOCK))
    def a_slice_is_let_go(self, count: int) -> None:
        assert self.index.shed(count) == self.twin.shed[:count]
        del self.twin.shed[:count]

    @rule()
    def the_process_restarts(self) -> None:
        self.index = reload(self.index)

    @rule(at=st.integers(-5, 10_005))
    def somebody_asks_for_a_time(self, at: int) -> None:
        assert self.index.find_time(at) == self.twin.find_time(at)
        greatest = max((row.max_timestamp_ms for row in self.twin.rows), default=None)
        assert self.index.find_latest_time() == (None if greatest is None else self.twin.find_time(greatest))

    @rule(data=st.data())
    def somebody_asks_for_an_offset(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.twin.end + 2))
        assert self.index.find(offset) == self.twin.find(offset)  # H3

    @invariant()
    def both_hold_the_same(self) -> None:
        assert (self.index.end, self.index.size, len(self.index)) == (
            self.twin.end,
            self.twin.size,
            len(self.twin.rows),
        )
        assert self.index.first_start == (self.twin.rows[0].start if self.twin.rows else self.twin.end)
        assert self.index.shed_rows == len(self.twin.shed)

    @rule()
    def every_row_is_compared(self) -> None:
        equal(self.index, self.twin)


TestOneStream = OneStream.TestCase
TestOneStream.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_every_offset_of_a_log_is_found_in_the_row_that_holds_it():
    """H2, H3, R-019, R-046, R-061, R-062"""
    dice = random.Random(7)
    index, twin = Index(), Twin()
    for number in range(1_000):
        append(index, twin, dice.randint(1, 9), dice.randint(62, 999), number, 4 * number, number)
    equal(index, twin)
    for offset in range(index.end):
        row = index.row(index.find(offset))
        assert row.start <= offset < row.end
    assert index.find(index.end) is None
    assert [row.start for row in index.rows(0)][1:] == [row.end for row in index.rows(0)][:-1]
    index.drop(990)
    twin.rows = twin.rows[990:]
    equal(index, twin)


def test_the_end_survives_the_expiry_of_all_rows():
    """H1, R-063, R-200"""
    index, twin = Index(), Twin()
    for round_ in range(5):
        for _ in range(700):
            append(index, twin, 3, 100, 1, 4, 0)
        index.drop(len(index))
        twin.rows.clear()
        index = reload(index)
        assert index.end == (round_ + 1) * 2_100
        assert index.find(0) is None
        equal(index, twin)


def test_one_row_stands_for_the_rows_that_it_replaced():
    """H7: offsets, sizes and the greatest timestamp are found as before; each object is let go once for each row."""
    index, twin = Index(), Twin()
    dice = random.Random(5)
    for number in range(5_000):
        append(index, twin, dice.randint(1, 9), dice.randint(62, 999), number // 3, 4 * number, dice.randrange(9_000))
    end, size, owners = index.end, index.size, index.objects(5_000)
    for first, upto in ((0, 1_700), (1, 2_000), (2, 3), (0, 3)):  # as compaction goes on, and then rewrites its files
        index.replace(first, upto, 10_000 + upto)
        twin.replace(first, upto, 10_000 + upto, 0)
        equal(index, twin)
        index = reload(index)
        equal(index, twin)
    assert (index.end, index.size, len(index)) == (end, size, 5_000 - 1_699 - 1_998 - 2)
    for offset in range(0, index.end, 7):
        assert index.find(offset) == twin.find(offset)
    for at in range(0, 9_001, 100):
        assert index.find_time(at) == twin.find_time(at)
    assert index.count_within(index.row(0).cumulative_size) == 1
    assert index.columns(0, len(index)).owners[0] == 10_003
    replaced = [*owners[:3_700], 11_700, 12_000, 10_003]
    let_go = []
    while index.shed_rows:
        let_go += index.shed(700)
        index = reload(index)
    assert let_go == replaced
    assert index.shed(700) == []


def test_the_time_of_a_replaced_row_is_found_in_the_one_that_stands_for_it():
    """H7: also where the rows in front of it fill blocks whose times were looked at before."""
    for first in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 3):
        index, twin = Index(), Twin()
        for number in range(6 * BLOCK):
            append(index, twin, 1, 100, 1, 4, 9_000 if number == first + 2 else 5)
        assert index.find_time(9_000) == first + 2
        for one in (index, twin):
            one.replace(first, 5 * BLOCK + 100, 7, 0)
        assert index.find_time(9_000) == twin.find_time(9_000) == first
        assert index.find_latest_time() == first


def test_only_rows_that_are_there_are_replaced():
    index = Index()
    index.append(3, 100, 7, 4, 0)
    for first, end in ((0, 0), (0, 2), (1, 1), (-1, 1)):
        with pytest.raises(ValueError, match="not there"):
            index.replace(first, end, 9)
    assert index.row(0).object == 7


def test_a_checkpoint_of_version_1_has_no_word_of_what_is_let_go():
    """K2: its bytes are those that version 1 wrote."""
    index, twin = Index(), Twin()
    for number in range(10):
        append(index, twin, 1, 100, number, 4, 0)
    first, second = Writer(), Writer()
    index.dump(first, 1)
    index.dump(second, 2)
    assert second.body() == first.body() + bytes(8)
    equal(reload(index, 1), twin)


def test_memory_comes_back_when_rows_are_replaced():
    index = Index()
    for number in range(100_000):
        index.append(number + 1, (number + 1) * 100, number, 4, 0)
    for _ in range(4):
        index.replace(0, 24_000, 5)
        index.shed(24_000)
    assert len(index._ends) <= 2 * len(index) + 2 * BLOCK


def test_memory_comes_back_when_rows_go():
    index = Index()
    for number in range(100_000):
        index.append(number + 1, (number + 1) * 100, number, 4, 0)
        if number % 3 == 0:
            index.drop(min(5, len(index) - 10)) if len(index) > 10 else None
    assert len(index._ends) <= 2 * len(index) + 2 * BLOCK


def test_times_are_found_also_after_rows_went_that_were_asked_about():
    index, twin = Index(), Twin()
    dice = random.Random(4)
    for round_ in range(6):
        for _ in range(3 * BLOCK):
            append(index, twin, 1, 100, 1, 4, round_ * 1_000 + dice.randrange(2_000))
        for at in range(0, 9_000, 250):
            assert index.find_time(at) == twin.find_time(at)
        count = dice.randrange(2 * BLOCK, len(index))
        index.drop(count)
        del twin.rows[:count]
        for at in range(0, 9_000, 250):
            assert index.find_time(at) == twin.find_time(at)


def test_nobody_who_asks_for_a_time_has_many_blocks_to_raise() -> None:
    """The greatest timestamps of blocks are kept up while rows come, and when rows are loaded."""
    index = Index()
    for number in range(3 * BLOCK + 1):
        index.append(number + 1, number, 0, 0, number)
    for one in (index, reload(index)):
        assert len(one._peaks) == 3
        assert one.find_time(2 * BLOCK + 5) == 2 * BLOCK + 5
