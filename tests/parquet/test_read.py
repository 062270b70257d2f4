"""GroupRows of a file back to batches: a consumer cannot tell them from those that were produced."""

import io
import random

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.parquet.footer import BadFile, footer_bytes, footer_crc
from dray.parquet.read import Footer, GroupRows, columns_of, footer_of, ranges_of, rows_of, tables_of
from dray.parquet.write import FileFacts, ParquetFile
from dray.records import MAX_TIMESTAMP, Codec, NewRecord, build_batch, one_batch, records_of
from dray.records.arrow import to_arrow

BINARY = st.none() | st.binary(max_size=20)
RECORDS = st.lists(
    st.builds(
        NewRecord,
        key=BINARY,
        value=BINARY,
        timestamp=st.integers(-1, MAX_TIMESTAMP),
        headers=st.lists(st.tuples(st.sampled_from(("a", "", "ä")), BINARY), max_size=4),
    ),
    min_size=1,
    max_size=8,
)


def made(*batches: tuple[int, bytes]) -> tuple[FileFacts, bytes]:
    """A file of batches, each with its first offset."""
    sink = io.BytesIO()
    file = ParquetFile(sink, 3)
    for base, data in batches:
        view = one_batch(memoryview(data))
        file.write(to_arrow([(view, base)]), append_time=view.has_append_time)
    return file.finish(), sink.getvalue()


def written(*batches: tuple[int, bytes]) -> bytes:
    return made(*batches)[1]


def opened(raw: bytes, crc: int = 0) -> Footer:
    return footer_of(memoryview(raw)[max(0, len(raw) - footer_bytes(raw)) :], len(raw), crc)


def read(raw: bytes, crc: int = 0) -> list[GroupRows]:
    footer = opened(raw, crc)
    return [
        rows
        for group in footer.groups
        for rows in rows_of(footer, group.number, memoryview(raw)[group.position : group.position + group.size])
    ]


def records(batches) -> list:
    return [
        (record, one_batch(one.batch).has_append_time) for one in batches for record in records_of(one_batch(one.batch))
    ]


@pytest.mark.slow
@given(st.lists(st.tuples(RECORDS, st.booleans(), st.sampled_from(Codec)), min_size=1, max_size=5), st.data())
@settings(max_examples=80, deadline=None)
def test_records_come_back_as_they_were_produced_from_any_offset_and_within_any_room(produced, data):
    """PQ3, R-123, R-124, E-14: null and empty, headers, times and their type; a batch has one type of time."""
    base, batches, expected = 1_000, [], []
    for rows, append_time, codec in produced:
        batch = build_batch(rows, append_time=append_time, codec=codec)
        batches.append((base, batch))
        expected += [(record, append_time) for record in records_of(one_batch(batch), base)]
        base += len(rows)
    (rows,) = read(written(*batches))
    start, room = data.draw(st.integers(990, base)), data.draw(st.integers(0, 400))
    assert records(rows.batches(0, 1 << 30, oversize=False)) == expected
    wanted = [one for one in expected if one[0].offset >= start]
    for oversize in (True, False):
        found = rows.batches(start, room, oversize=oversize)
        assert sum(len(one.batch) for one in found) <= room or (oversize and len(found) == 1)
        assert records(found) == wanted[: len(records(found))]
        assert found or not wanted or not oversize
        for one in found:
            view = one_batch(one.batch)
            assert view.crc_is_right
            assert (view.codec, view.producer_id, view.base_sequence) == (Codec.NONE, -1, -1)
            inside = [record for record, _ in wanted if one.start <= record.offset < one.end]
            assert (one.end - one.start, one.greatest_ms) == (len(inside), max(record.timestamp for record in inside))


def test_only_the_groups_with_wanted_offsets_need_be_read():
    """R-123, R-133: the footer tells which, by offset and by time."""
    dice = random.Random(3)
    rows = [NewRecord(None, dice.randbytes(1_000), 5_000 + at) for at in range(1_000)]
    raw = written(*((base, build_batch(rows)) for base in range(0, 30_000, 1_000)))
    footer = opened(raw)
    assert len(footer.groups) >= 3
    assert (footer.groups[0].start, footer.groups[-1].end) == (0, 30_000)
    for before, group in zip(footer.groups, footer.groups[1:], strict=False):
        assert before.end == group.start
        assert footer.first(group.start - 1) == before.number
        assert footer.first(group.start) == group.number
    assert footer.first(30_000) == len(footer.groups)
    assert {group.greatest_ms for group in footer.groups} == {5_999}
    last = footer.groups[-1]
    (found,) = rows_of(footer, last.number, memoryview(raw)[last.position : last.position + last.size])
    assert (found.offsets[0], found.offsets[-1]) == (last.start, 29_999)
    assert found.first_since(0, 5_998) == (next(at for at in range(last.start, 30_000) if at % 1_000 >= 998), 5_998)
    assert found.greatest(29_500) == (29_999, 5_999)
    assert found.greatest(30_000) is None
    assert found.first_since(0, 6_000) is None


@pytest.mark.parametrize("names", [("offset",), ("key", "value"), ("timestamp", "attributes"), ("headers", "offset")])
def test_some_columns_of_a_group_need_only_the_bytes_that_they_lie_in(names):
    """R-123, PQ4: the same as from the whole group; and what was not fetched is not made up."""
    dice = random.Random(4)
    rows = [NewRecord(b"k%d" % at, dice.randbytes(1_000), at, (("a", b"1"), ("a", None))) for at in range(1_000)]
    raw = written((0, build_batch(rows)))
    footer = opened(raw)
    (group,) = footer.groups
    ranges = ranges_of(footer, 0, names)
    assert ranges == sorted(ranges)
    assert all(group.position <= start < end <= group.position + group.size for start, end in ranges)
    if "value" not in names:
        assert sum(end - start for start, end in ranges) < group.size // 10
    parts = [(start, raw[start:end]) for start, end in ranges]
    (found,) = columns_of(footer, 0, parts, names)
    (whole,) = tables_of(footer, 0, raw[group.position : group.position + group.size], names)
    assert found.equals(whole)
    assert found.num_rows == 1_000
    for cut in ([], [(start, content[:-1]) for start, content in parts]):
        with pytest.raises(BadFile):
            list(columns_of(footer, 0, cut, names))


def test_offsets_that_are_missing_begin_another_batch():
    """PQ3: a file need not be dense."""
    raw = written((5, build_batch([NewRecord(b"a")] * 3)), (20, build_batch([NewRecord(b"b")] * 2)))
    (rows,) = read(raw)
    assert [(one.start, one.end) for one in rows.batches(0, 1 << 20, oversize=True)] == [(5, 8), (20, 22)]
    assert [(one.start, one.end) for one in rows.batches(9, 1 << 20, oversize=True)] == [(20, 22)]


def test_a_record_larger_than_a_batch_has_one_of_its_own():
    """R-118"""
    large = build_batch([NewRecord(b"k", bytes(3 << 20)), NewRecord(b"k", b"small")])
    (rows,) = read(written((0, large)))
    assert [one.end for one in rows.batches(0, 10, oversize=True)] == [1]
    assert rows.batches(0, 10, oversize=False) == []
    assert [one.end for one in rows.batches(0, 4 << 20, oversize=False)] == [1, 2]


@pytest.mark.slow
def test_a_damaged_file_is_told_so_and_never_gives_other_records():
    """PQ4, R-125: cut, changed and strange files; nothing else is ever raised."""
    dice = random.Random(11)
    facts, raw = made(
        *((base, build_batch([NewRecord(b"k", dice.randbytes(50), base)] * 20)) for base in range(0, 200, 20))
    )
    whole = records(read(raw)[0].batches(0, 1 << 20, oversize=True))
    strange = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(raw), columns=["offset"]), strange)
    for bad in (b"", b"PAR1", raw[:-1], raw[: len(raw) // 2], b"PAR1" * 9, strange.getvalue()):
        with pytest.raises(BadFile):
            read(bad)
    crc, found = facts.footer_crc, 0
    assert crc == footer_crc(raw)
    for _ in range(200):
        spoiled = bytearray(raw)
        spoiled[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
        try:
            batches = [one for rows in read(bytes(spoiled), crc) for one in rows.batches(0, 1 << 20, oversize=True)]
        except BadFile:
            found += 1
        else:
            assert records(batches) == whole
    assert found > 100
