"""What filters leave out, judged against what they mean."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from dray.machine.stream import Stream
from dray.pipeline.filters import pruning_of
from dray.pipeline.plan import Span

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SMALL = {
    "topic": st.sampled_from(("a", "b")),
    "partition": st.integers(0, 2),
    "offset": st.integers(0, 6),
    "timestamp": st.sampled_from((0, 1, 999, 1_000, 1_001, 2_000)).map(lambda us: EPOCH + timedelta(microseconds=us)),
}
MEANING = {
    EqualTo: lambda value, wanted: value == wanted,
    GreaterThan: lambda value, wanted: value > wanted,
    GreaterThanOrEqual: lambda value, wanted: value >= wanted,
    LessThan: lambda value, wanted: value < wanted,
    LessThanOrEqual: lambda value, wanted: value <= wanted,
}


@st.composite
def filters(draw) -> tuple[Filter, object]:
    """A filter, and what it says of a record."""
    column = draw(st.sampled_from(sorted(SMALL)))
    kind = draw(st.sampled_from([*MEANING, In, Not, IsNotNull]))
    if kind is IsNotNull:
        return IsNotNull((column,)), lambda record: True
    if kind is In:
        wanted = tuple(draw(st.lists(SMALL[column], max_size=3)))
        return In((column,), wanted), lambda record: record[column] in wanted
    value = draw(SMALL[column])
    if kind is Not:
        return Not(EqualTo((column,), value)), lambda record: record[column] != value
    return kind((column,), value), lambda record: MEANING[kind](record[column], value)


@settings(max_examples=1_000)
@given(chosen=st.lists(filters(), max_size=3), record=st.fixed_dictionaries(SMALL))
def test_no_record_that_all_filters_keep_is_left_out(chosen, record):
    """SP2."""
    pruning = pruning_of([found for found, _ in chosen])
    stream = Stream(1, b"t" * 16, record["partition"], 0)
    span = pruning.apply(Span(topic=record["topic"], stream=stream, start=0, end=7))
    stamp_ms = (record["timestamp"] - EPOCH) // timedelta(milliseconds=1)  # what a record has
    whole = record | {"timestamp": EPOCH + timedelta(milliseconds=stamp_ms)}
    if all(says(whole) for _, says in chosen):
        assert span is not None
        assert span.start <= record["offset"] < span.end
        assert span.since_ms is None or stamp_ms >= span.since_ms
