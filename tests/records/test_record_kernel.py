"""The kernel and its twin: one behaviour, written twice."""

import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.records import NewRecord, kernel, pure, pure_write
from dray.records.columns import Fault, Part, RawColumns
from tests.records.batch_samples import damaged, record_lists, records_bytes, seeded_records

_kernel = pytest.importorskip("dray.records._kernel", reason="built without a compiler")

HEADER = Path(kernel.__file__).with_name("kernel.h")


def outcome(function: Callable[..., object], *args: object) -> object:
    """The result, or the fault as plain numbers."""
    try:
        return function(*args)
    except ValueError as error:
        return ("fault", *(int(number) for number in error.args))


def test_the_extension_is_what_serves():
    assert kernel.EXTENSION_LOADED
    assert kernel.scan is _kernel.scan


def test_faults_have_the_numbers_of_the_header_file():
    found = dict(re.findall(r"DRAY_(\w+) = (\d+)", HEADER.read_text()))
    assert {name: int(number) for name, number in found.items() if name != "OK"} == {
        fault.name: fault.value for fault in Fault
    }


@given(records=record_lists, base=st.integers(-(2**63), 2**63 - 1), count=st.integers(-1, 14))
def test_both_scan_alike(records: list[NewRecord], base: int, count: int):
    """B3, K-022"""
    data = records_bytes(records)
    for told in (len(records), count):
        assert outcome(_kernel.scan, data, told, base) == outcome(pure.scan, data, told, base)


@given(data=st.binary(max_size=60), count=st.integers(0, 4))
def test_both_find_the_same_fault_in_any_bytes(data: bytes, count: int):
    """B3"""
    assert outcome(_kernel.scan, data, count, 0) == outcome(pure.scan, data, count, 0)


@pytest.mark.slow
def test_both_judge_damaged_records_alike_and_every_fault_occurs():
    """B3: verdict, fault, position and record."""
    seed = 7341
    print("seed", seed)
    dice = random.Random(seed)
    seen = set()
    for _ in range(6_000):
        records = seeded_records(dice, 5)
        data = damaged(dice, records_bytes(records))
        base = dice.choice((0, 1_700_000_000_000, 2**63 - 5, -(2**63)))
        ours, twins = (outcome(side.scan, data, len(records), base) for side in (_kernel, pure))
        assert ours == twins, data.hex()
        assert isinstance(ours, tuple)
        seen.add(ours[1] if ours[0] == "fault" else 0)
        parts: list[Part] = [(data, len(records), 5, base, False)]
        assert outcome(_kernel.to_columns, parts) == outcome(pure.to_columns, parts), data.hex()
    assert seen == {0, *Fault} - {Fault.COLUMN}


@pytest.mark.slow
@given(
    lists=st.lists(st.tuples(record_lists, st.integers(0, 2**62), st.booleans()), max_size=4),
    narrow_limit=st.sampled_from((2**31 - 1, 0, 5, 100)),
)
def test_both_make_the_same_columns(lists: list[tuple[list[NewRecord], int, bool]], narrow_limit: int):
    """B3, K-022: buffers byte for byte, narrow and wide."""
    parts: list[Part] = [
        (memoryview(records_bytes(records)), len(records), base, 1_000, stamped) for records, base, stamped in lists
    ]
    assert _kernel.to_columns(parts, narrow_limit) == pure.to_columns(parts, narrow_limit)


def test_a_fault_names_its_part():
    good: Part = (records_bytes([NewRecord(b"k", b"v")]), 1, 0, 0, False)
    bad: Part = (b"\x00", 1, 0, 0, False)
    for side in (_kernel, pure):
        assert outcome(side.to_columns, [good, bad, good]) == ("fault", Fault.CUT, 1, 0, 1)


def written(side: Callable[..., object], columns: RawColumns, room: int, *args: object) -> object:
    out = bytearray(b"\xaa" * room)
    return outcome(side, out, 3, columns, *args), bytes(out)


@pytest.mark.slow
@settings(max_examples=150)
@given(
    records=record_lists,
    bounds=st.tuples(st.integers(-1, 4), st.integers(-1, 15)),
    room=st.sampled_from((3, 10, 60, 300, 5_000)),
    limit=st.sampled_from((-(2**63), 0, 50, 200, 2**63 - 1)),
    one_time=st.booleans(),
    wide=st.booleans(),
    second_base=st.sampled_from((-(2**63), 40, 41, 43, 2**63 - 1)),
)
def test_both_write_the_same_records(
    records: list[NewRecord],
    bounds: tuple[int, int],
    room: int,
    limit: int,
    one_time: bool,
    wide: bool,
    second_base: int,
):
    """B3: what was asked for, what did not fit, where offsets leave a gap, and not a byte outside."""
    parts: list[Part] = [
        (records_bytes(records[:2]), len(records[:2]), 40, records[0].timestamp, False),
        (records_bytes(records), len(records), second_base, records[0].timestamp, False),
    ]
    columns = pure.to_columns(parts, 0 if wide else 2**31 - 1)
    args = (*bounds, limit, one_time)
    assert written(_kernel.write_records, columns, room, *args) == written(
        pure_write.write_records, columns, room, *args
    )


@pytest.mark.parametrize("side", [_kernel.write_records, pure_write.write_records], ids=["kernel", "twin"])
@pytest.mark.parametrize(
    ("second_base", "second_time", "one_time", "rows"),
    [
        (42, 7, False, 4),
        (43, 7, False, 2),
        (41, 7, False, 2),
        (42, 8, False, 4),
        (42, 8, True, 2),
        (42, 7, True, 4),
        (42, -(2**63), False, 2),
    ],
)
def test_a_batch_ends_at_a_gap_and_with_one_time_where_the_time_changes(
    side: Callable[..., object], second_base: int, second_time: int, one_time: bool, rows: int
):
    """B3: the last case is a delta that 64 bits cannot hold."""
    data = records_bytes([NewRecord(b"k", b"v", 7)] * 2)
    columns = pure.to_columns([(data, 2, 40, 7, False), (data, 2, second_base, second_time, False)])
    written_rows, size, _ = side(bytearray(1_000), 0, columns, 0, 4, 1_000, one_time)  # type: ignore[misc]
    assert (written_rows, size) == (rows, len(data) // 2 * rows)


@given(records=record_lists)
def test_records_survive_the_way_through_columns(records: list[NewRecord]):
    data = records_bytes(records)
    columns = _kernel.to_columns([(data, len(records), 9, records[0].timestamp, False)])
    out = bytearray(len(data))
    for side in (_kernel.write_records, pure_write.write_records):
        rows, size, greatest = side(out, 0, columns, 0, len(records), 2**31, False)
        assert (rows, size, bytes(out)) == (len(records), len(data), data)
        assert greatest == max(record.timestamp for record in records)


@pytest.mark.slow
def test_both_refuse_columns_whose_buffers_do_not_hold_their_rows():
    """B3, B6: buffers cut short, offsets that lie, bits beyond the bitmap."""
    seed = 99
    print("seed", seed)
    dice = random.Random(seed)
    refused = 0
    for _ in range(3_000):
        records = seeded_records(dice, 5)
        parts: list[Part] = [(records_bytes(records), len(records), 40, records[0].timestamp, False)]
        columns = spoiled(dice, pure.to_columns(parts, dice.choice((0, 2**31 - 1))))
        args = (0, len(records) + dice.randrange(2), 2**40, False)
        ours = written(_kernel.write_records, columns, 5_000, *args)
        twins = written(pure_write.write_records, columns, 5_000, *args)
        assert isinstance(ours, tuple)
        assert isinstance(twins, tuple)
        assert ours[0] == twins[0]
        refused += ours[0][0] == "fault"
    assert 500 < refused < 2_900


def spoiled(dice: random.Random, columns: RawColumns) -> RawColumns:
    """Columns with one buffer, flag or bit position changed."""
    fields = list(columns)
    which = dice.randrange(1, 8)
    column = fields[which]
    if isinstance(column, bytes):
        fields[which] = column[: dice.randrange(len(column) + 1)]
        return tuple(fields)  # type: ignore[return-value]
    assert isinstance(column, tuple)
    inner = list(column)
    offsets = bytearray(inner[1])
    match dice.randrange(5):
        case 0:
            del offsets[dice.randrange(len(offsets)) :]
        case 1:
            at = dice.randrange(len(offsets) // 4) * 4
            offsets[at : at + 4] = struct.pack("<i", dice.choice((-1, -(2**31), 2**31 - 1, 1, 10_000)))
        case 2 if len(inner) == 6:
            inner[2] = inner[2][: dice.randrange(len(inner[2]) + 1)]
        case 3:
            inner[0] = dice.choice((b"", b"\x00", b"\x01", b"\xff" * 9))
        case _:
            inner[-1] = dice.choice((-1, -(2**63), 1, 7, 8, 2**62))
            inner[0] = b"\xff"
    inner[1] = bytes(offsets)
    fields[which] = tuple(inner)
    return tuple(fields)  # type: ignore[return-value]


def test_a_position_outside_the_buffer_is_refused():
    columns = pure.to_columns([])
    for side in (_kernel.write_records, pure_write.write_records):
        for at in (-1, 5):
            with pytest.raises(IndexError):
                side(bytearray(4), at, columns, 0, 0, 0, False)


def test_wrong_arguments_are_type_errors():
    for call in (
        lambda: _kernel.scan(b"", 1),
        lambda: _kernel.scan("text", 1, 0),
        lambda: _kernel.to_columns([(b"", 1)]),
        lambda: _kernel.to_columns(5),
        lambda: _kernel.write_records(b"read-only", 0, pure.to_columns([]), 0, 0, 0, False),
        lambda: _kernel.write_records(bytearray(9), 0, (1, 2), 0, 0, 0, False),
        lambda: _kernel.write_records(bytearray(9), 0, (0, b"", b"", 1, 2, 3, 4, 5), 0, 0, 0, False),
    ):
        with pytest.raises((TypeError, BufferError)):
            call()
