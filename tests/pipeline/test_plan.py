"""Plans against the rows they are made of; no broker, no Spark."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.errors import Corrupt
from dray.machine.machine import Machine
from dray.machine.names import LogId, SessionId, StreamId, TopicId
from dray.machine.stream import Stream
from dray.objects.paths import ObjectKind
from dray.pipeline import plan as planning
from dray.pipeline.errors import BadOption, BrokenObject
from dray.pipeline.plan import Span, plan_tasks
from dray.pipeline.reading import read_pieces

ROWS = st.lists(
    st.tuples(
        st.integers(1, 2**31),  # records
        st.integers(1, 2**31),  # bytes
        st.booleans(),  # whether a new object begins
        st.integers(-1, 4),  # greatest timestamp
    ),
    min_size=1,
    max_size=60,
)


def machine_of(rows, kinds=(ObjectKind.WAL,)):
    """A machine whose objects change log id, zone and session, and a stream over them."""
    machine = Machine()
    stream = Stream(StreamId(1 << 16), TopicId(b"t" * 16), 0, 0)
    position = 0
    for number, (records, size, fresh, stamp) in enumerate(rows):
        if fresh or not number:
            machine.objects.record(
                kinds[number % len(kinds)], log_id=LogId(bytes([number % 3]) * 8), session=SessionId(1 + number % 5),
                counter=number, size=1, created_ms=number * 86_400_000, zone=f"zone {number % 2}", rows=1,
            )  # fmt: skip
            position = 49
        owner = machine.objects.next - 1
        stream.index.append(stream.index.end + records, stream.index.size + size + 4, owner, position, stamp)
        position = (position + size) % 2**32
    return machine, stream


def path_of(machine, row):
    return machine.objects.find(row.object).path()


@settings(max_examples=200, deadline=None)
@given(rows=ROWS, drop=st.integers(0, 20), tasks=st.integers(1, 9), data=st.data())
@pytest.mark.slow
def test_a_plan_names_each_row_of_its_span_once_and_where_it_lies(rows, drop, tasks, data):
    """SP1."""
    machine, stream = machine_of(rows)
    stream.index.drop(min(drop, len(rows) - 1))
    known = [stream.index.row(number) for number in range(len(stream.index))]
    start = data.draw(st.integers(known[0].start, known[-1].end))
    end = data.draw(st.integers(start, known[-1].end))
    span = Span(topic="t", stream=stream, start=start, end=end)
    sliced = data.draw(st.integers(1, 80))
    before, planning.SLICE_ROWS = planning.SLICE_ROWS, sliced
    try:
        made = plan_tasks([(machine, span)], cores=1, min_tasks=tasks)
    finally:
        planning.SLICE_ROWS = before
    pieces = [piece for pieces in made for piece in pieces]
    planned = [
        (base, count, at, size, piece.path(owner))
        for piece in pieces
        for base, count, at, size, owner in zip(
            piece.bases, piece.counts, piece.positions, piece.sizes, piece.owners, strict=True
        )
    ]
    assert planned == [
        (row.start, row.end - row.start, row.position, row.size, path_of(machine, row))
        for row in known
        if row.start < end and start < row.end and start < end
    ]
    assert len(made) <= max(tasks, planning.task_count(sum(size for *_, size, _ in planned), cores=1, min_tasks=tasks))


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 2**20), st.booleans(), st.just(0)), min_size=1),
    most=st.integers(1, 100),
    tasks=st.integers(1, 9),
    data=st.data(),
)
@pytest.mark.slow
def test_no_task_has_more_records_than_it_may_and_each_record_is_in_one(rows, most, tasks, data):
    """SP1."""
    machine, stream = machine_of(rows)
    start = data.draw(st.integers(0, stream.index.end))
    end = data.draw(st.integers(start, stream.index.end))
    half = data.draw(st.integers(start, end))
    spans = [Span(topic="t", stream=stream, start=a, end=b) for a, b in ((start, half), (half, end))]
    made = plan_tasks([(machine, span) for span in spans], cores=1, min_tasks=tasks, max_records=most)
    planned = []
    for pieces in made:
        offsets = [
            offset
            for piece in pieces
            for base, count in zip(piece.bases, piece.counts, strict=True)
            for offset in range(max(base, piece.start), min(base + count, piece.end))
        ]
        assert 0 < len(offsets) <= most
        planned += offsets
    assert planned == list(range(start, end))


def test_more_tasks_than_spark_can_bear_are_refused():
    machine, stream = machine_of([(2**31, 1, True, 0)])
    span = Span(topic="t", stream=stream, start=0, end=2**31)
    with pytest.raises(BadOption, match="option=maxRecordsPerPartition given=7 tasks=306783379"):
        plan_tasks([(machine, span)], cores=1, min_tasks=1, max_records=7)


@pytest.mark.parametrize("known", [1, 15, 64, 100])
def test_an_object_that_the_machine_forgot_is_told_and_not_guessed(known):
    machine, _ = machine_of([(1, 1, True, 0)] * known)
    assert list(machine.objects.columns(range(known)).counters) == list(range(known))
    for forgotten in (known, known + 200):
        with pytest.raises(Corrupt, match="forgotten"):
            machine.objects.columns([*range(known), forgotten])


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, tasks=st.integers(1, 5))
def test_a_piece_has_objects_of_one_kind(rows, tasks):
    """SP9, SP1: rows of other kinds are in pieces of their own, and still each row is there once."""
    machine, stream = machine_of(rows, (ObjectKind.WAL, ObjectKind.PARQUET, ObjectKind.KFS))
    span = Span(topic="t", stream=stream, start=0, end=stream.end)
    pieces = [piece for task in plan_tasks([(machine, span)], cores=1, min_tasks=tasks) for piece in task]
    expected = [machine.objects.find(row.object).kind for row in stream.index.rows(0)]
    assert [piece.kind for piece in pieces for _ in piece.bases] == expected
    assert [base for piece in pieces for base in piece.bases] == [row.start for row in stream.index.rows(0)]
    for piece in pieces:
        assert {origin.kind for origin in piece.origins} == {piece.kind}


def test_a_task_refuses_objects_that_nobody_reads(tmp_path):
    """SP9, SP3: the job fails and says why, rather than reading them as something else."""
    machine, stream = machine_of([(3, 100, True, 1)], (ObjectKind.KFS,))
    span = Span(topic="t", stream=stream, start=0, end=3)
    (pieces,) = plan_tasks([(machine, span)], cores=1, min_tasks=1)
    with pytest.raises(BrokenObject, match="KFS"):
        list(read_pieces(f"file://{tmp_path}", pieces, ["value"]))
