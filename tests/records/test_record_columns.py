"""Batches to Arrow and back."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.errors import Invalid
from dray.records import (
    BatchRules,
    Codec,
    InvalidBatch,
    NewRecord,
    Record,
    ScratchPool,
    append_time_parts,
    build_batch,
    one_batch,
    records_of,
)
from dray.records.arrow import to_arrow, unwrap
from dray.records.writer import BatchWriter
from tests.records.batch_samples import batch_of, record_lists, validate

STORED = BatchRules(zero_base_offset=False, append_time=True)
POOL = ScratchPool(1 << 20)


def rows_of(table: pa.RecordBatch) -> list[Record]:
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ]


def rebuilt(table: pa.RecordBatch, **options: int) -> list[bytes]:
    writer, columns, at, out = BatchWriter(100), unwrap(table), 0, []
    while at < columns.rows:
        batch, rows = writer.write(columns, at, columns.rows, **options)
        assert rows > 0
        out.append(bytes(batch))
        at += rows
    return out


@pytest.mark.slow
@given(
    lists=st.lists(st.tuples(record_lists, st.sampled_from(Codec), st.integers(0, 2**60)), max_size=3),
    narrow_limit=st.sampled_from((2**31 - 1, 0)),
)
def test_arrow_rows_are_the_records(lists: list[tuple[list[NewRecord], Codec, int]], narrow_limit: int):
    """K-021: many batches in a call, every codec, narrow and wide offsets."""
    batches = [(one_batch(build_batch(records, codec=codec)), base) for records, codec, base in lists]
    table = to_arrow(batches, narrow_limit=narrow_limit)
    table.validate(full=True)
    assert rows_of(table) == [record for batch, base in batches for record in records_of(batch, base)]


@given(
    records=record_lists,
    cut=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    max_bytes=st.sampled_from((0, 150, 2**20)),
    max_rows=st.sampled_from((1, 2, 1_000)),
    narrow_limit=st.sampled_from((2**31 - 1, 0)),
)
def test_rebuilt_batches_hold_the_same_records(
    records: list[NewRecord], cut: tuple[int, int], max_bytes: int, max_rows: int, narrow_limit: int
):
    """E-14, R-123: any slice of the rows, cut into valid batches with dense offsets."""
    original = one_batch(build_batch(records))
    table = to_arrow([(original, 70)], narrow_limit=narrow_limit).slice(*cut)
    packed = rebuilt(table, max_bytes=max_bytes, max_rows=max_rows)
    found = [one_batch(batch) for batch in packed]
    assert [record for batch in found for record in records_of(batch)] == rows_of(table)
    for batch in found:
        checked = validate(batch.buffer, STORED, POOL)
        assert checked.record_count <= max_rows
        assert batch.size <= max(max_bytes, 61) or checked.record_count == 1
        assert (batch.codec, batch.leader_epoch, batch.attributes) == (Codec.NONE, 0, 0)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
        assert batch.max_timestamp == max(record.timestamp for record in records_of(batch))


def test_append_times_do_not_share_a_batch():
    """E-14: the bit gives every record of a batch the batch's time."""
    plain = one_batch(build_batch([NewRecord(value=b"v", timestamp=at) for at in (9, 2)]))
    stamped = [one_batch(b"".join(append_time_parts(plain, at))) for at in (500, 600)]
    table = to_arrow([(stamped[0], 0), (stamped[1], 2)])
    assert [record.timestamp for record in rows_of(table)] == [500, 500, 600, 600]
    back = [one_batch(batch) for batch in rebuilt(table, append_time=True)]
    assert [(batch.record_count, batch.max_timestamp, batch.has_append_time) for batch in back] == [
        (2, 500, True),
        (2, 600, True),
    ]
    assert [record for batch in back for record in records_of(batch)] == rows_of(table)


def test_a_gap_in_the_offsets_ends_a_batch():
    one = one_batch(build_batch([NewRecord(value=b"v", timestamp=5)] * 2))
    table = to_arrow([(one, 0), (one, 2), (one, 10)])
    back = [one_batch(batch) for batch in rebuilt(table)]
    assert [(batch.base_offset, batch.record_count) for batch in back] == [(0, 4), (10, 2)]


def test_null_lists_of_headers_and_string_columns_are_read():
    headers = pa.array(
        [None, [], [{"key": "a", "value": None}, {"key": "a", "value": b""}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    table = pa.RecordBatch.from_arrays(
        [
            pa.array([4, 5, 6]),
            pa.array([1, 2, 3], pa.timestamp("ms", "UTC")),
            pa.array(["k", None, ""], pa.large_string()),
            pa.array([None, b"v", b""], pa.binary()),
            headers,
        ],
        names=["offset", "timestamp", "key", "value", "headers"],
    )
    (batch,) = rebuilt(table)
    assert list(records_of(one_batch(batch))) == [
        Record(4, 1, b"k", None, ()),
        Record(5, 2, None, b"v", ()),
        Record(6, 3, b"", b"", (("a", None), ("a", b""))),
    ]


def test_columns_that_cannot_become_records_are_refused():
    table = to_arrow([(one_batch(build_batch([NewRecord(b"k", b"v", 1)])), 0)])
    micros = table.column("timestamp").cast(pa.timestamp("us"))
    with pytest.raises(Invalid, match="column=timestamp"):
        unwrap(table.set_column(1, "timestamp", micros))
    with pytest.raises(Invalid, match="missing=value"):
        unwrap(table.drop_columns(["value"]))
    with pytest.raises(Invalid, match="nulls=1"):
        unwrap(table.set_column(0, "offset", pa.array([None], pa.int64())))
    with pytest.raises(Invalid, match="column=key"):
        unwrap(table.set_column(2, "key", pa.array([1])))
    with pytest.raises(Invalid, match="list of structs"):
        unwrap(table.set_column(4, "headers", pa.array([[1]])))
    nulled = pa.array([[None]], table.column("headers").type)
    with pytest.raises(Invalid, match="a header is null"):
        unwrap(table.set_column(4, "headers", nulled))
    with pytest.raises(InvalidBatch):
        BatchWriter().write(unwrap(table), 1, 1)


def test_a_damaged_batch_is_named():
    good = one_batch(build_batch([NewRecord(b"k", b"v")]))
    bad = one_batch(batch_of(b"\x01", 1))
    with pytest.raises(InvalidBatch) as caught:
        to_arrow([(good, 0), (bad, 1)])
    assert caught.value.facts["batch"] == 1
