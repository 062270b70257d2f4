"""Parquet files: their columns, what they keep of a record, and what is told of them."""

import io
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.errors import Invalid
from dray.parquet.schema import SCHEMA
from dray.parquet.write import GROUP_BYTES, MOST_GROUP_BYTES, FileFacts, ParquetFile
from dray.records import MAX_TIMESTAMP, NewRecord, build_batch, one_batch
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


def written(*batches: tuple[list[NewRecord], int, bool], partition: int = 3) -> tuple[FileFacts, bytes]:
    """A file of batches: their records, first offsets, and whether the log gave them their time."""
    sink = io.BytesIO()
    file = ParquetFile(sink, partition)
    for records, base, append_time in batches:
        view = one_batch(memoryview(build_batch(records, append_time=append_time)))
        file.write(to_arrow([(view, base)]), append_time=append_time)
    return file.finish(), sink.getvalue()


def rows_of(raw: bytes) -> list[dict[str, object]]:
    table = pq.read_table(io.BytesIO(raw))
    micros = table.column("timestamp").cast(pa.int64())
    return table.set_column(table.schema.get_field_index("timestamp"), "timestamp", micros).to_pylist()


def test_columns_have_the_ids_types_and_nullability_of_the_format():
    """R-136"""
    _, raw = written(([NewRecord(b"k", b"v", 1)], 0, False))
    found = str(pq.ParquetFile(io.BytesIO(raw)).schema)
    lines = [line.strip() for line in found.splitlines() if "field_id" in line][1:]
    assert [line.partition(" (")[0].rstrip(";") for line in lines] == [
        "required int32 field_id=1 partition",
        "required int64 field_id=2 offset",
        "required int64 field_id=3 timestamp",
        "optional binary field_id=4 key",
        "optional binary field_id=5 value",
        "required group field_id=6 headers",
        "repeated group field_id=-1 list {",
        "required group field_id=12 element {",
        "required binary field_id=13 key",
        "optional binary field_id=14 value",
        "optional int64 field_id=7 producer_id",
        "optional int32 field_id=8 producer_epoch",
        "optional int32 field_id=9 base_sequence",
        "required int32 field_id=10 attributes",
        "optional int32 field_id=11 record_crc",
    ]
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in found
    assert pq.read_schema(io.BytesIO(raw)).equals(SCHEMA)


@pytest.mark.slow
@given(RECORDS, RECORDS)
@settings(max_examples=50)
def test_a_file_holds_each_record_as_it_was(first, second):
    """R-136, R-137, E-15, PQ1: null is not empty, headers keep order and doubles, a record without time has none."""
    facts, raw = written((first, 10, False), (second, 10 + len(first), True))
    shown = max(record.timestamp for record in second)  # append time is one for the batch
    expected = [
        {
            "partition": 3, "offset": 10 + at, "timestamp": 1000 * (shown if at >= len(first) else record.timestamp),
            "key": record.key, "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
            "producer_id": None, "producer_epoch": None, "base_sequence": None,
            "attributes": 8 if at >= len(first) else 0, "record_crc": None,
        }
        for at, record in enumerate(first + second)
    ]  # fmt: skip
    assert rows_of(raw) == expected
    times = [row["timestamp"] // 1000 for row in expected]
    assert (facts.rows, facts.start, facts.end) == (len(expected), 10, 10 + len(expected)), "PQ2"
    assert (facts.min_timestamp_ms, facts.max_timestamp_ms) == (min(times), max(times)), "PQ2"
    assert facts.size == len(raw)


@pytest.mark.slow
def test_groups_are_small_sorted_and_found_by_statistics():
    """R-140"""
    records = [NewRecord(b"k%d" % at, b"%d" % at * 200, at) for at in range(30_000)]
    facts, raw = written((records, 0, False), (records, 40_000, False))
    metadata = pq.ParquetFile(io.BytesIO(raw)).metadata
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    assert len(groups) >= 4
    assert all(group.total_byte_size <= MOST_GROUP_BYTES + (1 << 20) for group in groups)
    assert sum(group.total_byte_size >= GROUP_BYTES // 2 for group in groups) >= len(groups) - 2
    assert all(group.column(0).compression == "ZSTD" for group in groups)
    offsets = [group.column(1) for group in groups]
    assert all(column.has_offset_index and column.has_column_index for column in offsets), "a page index"
    bounds = [(column.statistics.min, column.statistics.max) for column in offsets]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == facts.end - 1 == 69_999
    assert all(before[1] < after[0] for before, after in pairwise(bounds))
    assert not groups[0].column(4).is_stats_set, "values are not worth their statistics"
    assert [group.sorting_columns[0].column_index for group in groups] == [1] * len(groups)
    table = pq.read_table(io.BytesIO(raw), columns=["offset"])
    assert pc.all(pc.greater(table["offset"].combine_chunks()[1:], table["offset"].combine_chunks()[:-1])).as_py()


def test_rows_out_of_order_and_a_file_without_rows_are_refused():
    """PQ2"""
    one = [NewRecord(b"k", b"v", 1)]
    with pytest.raises(Invalid, match="order of their offsets"):
        written((one, 5, False), (one, 5, False))
    with pytest.raises(Invalid, match="without rows"):
        written()
