"""Ranges of a stream that become files: the saga, and who may go on with it."""

from functools import partial

import pytest
from msgspec import structs

from dray.machine import checkpoint, listing
from dray.machine.garbage import FilesReleased, Gone, MarkDeleting, Marked, Pin, ReleaseFiles, Unpin
from dray.machine.names import ObjectId, SessionId, wal_id
from dray.machine.sessions import Close
from dray.machine.streams import CloseStream, FloorReason, RaiseFloor
from dray.machine.tasks import (
    MAX_FILES,
    AbandonTask,
    CreateTask,
    FilesWritten,
    FinishTask,
    Swap,
    TableCommitted,
    TakeTask,
    TaskCreated,
    TaskFinished,
    TaskState,
)
from dray.machine.verdict import Done, Refused, Why
from dray.objects.paths import ObjectKind, ParquetName

from .mill import Mill
from .scribe import HOUR, LOG, NOW


def filled(batches: int = 10, records: int = 3) -> tuple[Mill, int]:
    mill = Mill()
    (stream,) = mill.topic("t", 1)
    for _ in range(batches):
        mill.append((stream, records))
    return mill, stream


def rows(mill: Mill, stream: int) -> list[tuple[int, int, int]]:
    index = mill.machine.streams.find(stream).index
    return [(row.start, row.end, row.object) for row in index.rows(0)]


def why(verdict) -> Why:
    assert isinstance(verdict, Refused), verdict
    return verdict.why


def cut(mill: Mill, stream: int, offset: int) -> None:
    mill.writer.do(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=offset))


def test_a_task_goes_from_state_to_state_and_its_files_stand_for_the_rows():
    """SW2, SW4, SW5, R-151, R-157, H7: no offset moves, and what the rows named is let go in slices."""
    mill, stream = filled()
    index = mill.machine.streams.find(stream).index
    size, before = index.size, index.row(6).cumulative_size
    task = mill.take(stream, 0, 21)
    assert mill.task(stream).state is TaskState.CREATED
    one, two = mill.write(stream, task, 12, 21)
    assert mill.task(stream).state is TaskState.PARQUET_WRITTEN
    assert (mill.machine.objects.rows(one), mill.machine.streams.rows) == (2, 10)
    mill.commit(stream, task)
    assert (mill.task(stream).state, mill.task(stream).commit) == (TaskState.ICEBERG_COMMITTED, "c-1")
    swapped = mill.swap(stream, task)
    assert (swapped.objects, swapped.left) == ((one, two), 7)
    assert rows(mill, stream)[:2] == [(0, 12, one), (12, 21, two)]
    assert (index.size, index.row(1).cumulative_size, mill.machine.streams.rows) == (size, before, 5)
    assert not mill.machine.objects.dead
    assert [mill.finish(stream, task, 3) for _ in range(3)] == [4, 1, 0]
    assert list(mill.machine.objects.dead) == [0, 1, 2, 3, 4, 5, 6]
    assert mill.machine.tasks.find(stream) is None
    assert mill.machine.objects.find(one).size == 5 << 30


def test_only_the_session_that_has_a_task_moves_it_and_another_takes_it_over_when_that_has_ended():
    """SW1, R-146, R-152"""
    mill, stream = filled()
    first, second = mill.compactor, mill.open_compactor("other")
    task = mill.take(stream, 0, 6)
    assert why(second.do(CreateTask(stream=stream, start=0, end=6))) is Why.EXISTS
    assert why(second.do(TakeTask(stream=stream, task=task))) is Why.LIVE
    (file,) = mill.write(stream, task, 6)
    assert why(second.do(TableCommitted(stream=stream, task=task, commit="x"))) is Why.FOREIGN
    late = first.entry(TableCommitted(stream=stream, task=task, commit="late"))
    first.send(Close())
    assert why(second.do(TableCommitted(stream=stream, task=task, commit="x"))) is Why.FOREIGN
    assert second.do(TakeTask(stream=stream, task=task)) == Done()
    mill.tape.write(late)
    assert mill.task(stream).state is TaskState.PARQUET_WRITTEN
    mill.compactor = second
    mill.commit(stream, task)
    assert mill.swap(stream, task).objects == (file,)
    assert mill.finish(stream, task) == 0
    assert mill.machine.objects.find(file).wal_id == wal_id(LOG, first.session, 1)


@pytest.mark.parametrize("reached", list(TaskState))
def test_no_step_is_taken_twice_or_before_its_time(reached):
    """SW2"""
    mill, stream = filled()
    task = mill.take(stream, 0, 6)
    files = (mill.file(0, 6),)
    steps = [
        FilesWritten(stream=stream, task=task, files=files),
        TableCommitted(stream=stream, task=task, commit="c"),
        Swap(stream=stream, task=task),
    ]
    for step in steps[: reached.value]:
        mill.compactor.do(step)
    assert mill.task(stream).state is reached
    before = checkpoint.dump(mill.machine)
    wrong = [step for number, step in enumerate(steps) if number != reached.value]
    for step in wrong:
        assert isinstance(mill.compactor.do(step), Refused), (reached, step)
    if reached is not TaskState.INDEX_SWAPPED:
        assert isinstance(mill.compactor.do(FinishTask(stream=stream, task=task)), Refused)
    if reached >= TaskState.ICEBERG_COMMITTED:
        assert why(mill.abandon(stream, task)) is Why.STATE
    assert checkpoint.load(before).tasks.find(stream) == mill.task(stream)
    assert why(mill.compactor.do(Swap(stream=stream, task=task + 1))) is Why.NOT_FOUND


def test_a_task_begins_at_the_first_row_that_is_no_file_and_ends_at_a_rows_end():
    """SW3, R-145, R-154"""
    mill, stream = filled()
    mill.compact(stream, 6)

    def asked(start, end, **how):
        return mill.compactor.do(CreateTask(stream=stream, start=start, end=end, **how))

    for start, end in ((0, 9), (3, 9), (7, 9), (9, 12), (6, 6), (6, 7), (6, 31), (9, 6), (6, 1 << 40)):
        assert why(asked(start, end)) is Why.STALE, (start, end)
    for start, end in ((0, 9), (0, 3), (6, 12), (3, 6), (0, 5)):
        assert why(asked(start, end, rewrite=True)) is Why.STALE, (start, end)
    assert why(mill.compactor.do(CreateTask(stream=stream + (1 << 16), start=0, end=3))) is Why.NOT_FOUND
    assert why(mill.compactor.do(CreateTask(stream=stream + 1, start=0, end=3))) is Why.FOREIGN
    assert isinstance(asked(6, 12), TaskCreated)


def test_a_range_that_begins_inside_a_row_is_refused():
    """SW4: the records before it would be in no file."""
    mill, stream = filled()
    assert why(mill.compactor.do(CreateTask(stream=stream, start=1, end=6))) is Why.STALE
    cut(mill, stream, 7)
    assert why(mill.compactor.do(CreateTask(stream=stream, start=7, end=12))) is Why.STALE
    assert isinstance(mill.compactor.do(CreateTask(stream=stream, start=3, end=12)), TaskCreated)


def test_files_cover_the_range_of_their_task_and_are_committed_once():
    """SW3, X5"""
    mill, stream = filled()
    task = mill.take(stream, 0, 21)
    used = mill.file(0, 21)

    def said(*files):
        return mill.compactor.do(FilesWritten(stream=stream, task=task, files=files))

    for files in (
        [mill.file(0, 18)], [mill.file(3, 21)], [mill.file(0, 24)], [mill.file(0, 6), mill.file(9, 21)],
        [mill.file(0, 7), mill.file(7, 21)], [mill.file(0, 9), mill.file(6, 21)], [mill.file(0, 21, records=22)],
        [mill.file(0, 21, records=0)],
    ):  # fmt: skip
        assert why(said(*files)) is Why.MALFORMED, files
    twin = mill.file(0, 6)
    assert why(said(twin, structs.replace(mill.file(6, 21), counter=twin.counter))) is Why.EXISTS
    assert not mill.machine.objects.files
    said(used)
    assert why(said(used)) is Why.EXISTS
    assert mill.task(stream).files == (10,)
    sparse = mill.file(0, 21, records=4)
    said(sparse)
    assert mill.machine.objects.files[mill.task(stream).files[0]].records == 4


def test_files_that_are_written_anew_leave_the_old_ones_to_the_table():
    """SW5, R-153, R-156: the first commit may have landed, so nothing of it is deleted before the table lets go."""
    mill, stream = filled()
    task = mill.take(stream, 0, 6)
    (lost,) = mill.write(stream, task, 6)
    (new,) = mill.write(stream, task, 6)
    assert list(mill.machine.objects.only_in_table()) == [lost]
    assert not mill.machine.objects.dead
    mill.commit(stream, task)
    assert mill.swap(stream, task).objects == (new,)
    released = mill.compactor.do(ReleaseFiles(objects=(lost, new, ObjectId(0), ObjectId(999))))
    assert released == FilesReleased(objects=(lost,))
    assert lost in mill.machine.objects.dead


def test_a_file_has_two_owners_and_goes_when_both_have_let_go():
    """X1, X7, R-113, R-114, R-202: brokers drop rows, a compactor releases; neither alone deletes."""
    mill, stream = filled()
    (file,) = mill.compact(stream, 15)
    assert mill.compactor.do(ReleaseFiles(objects=(file,))) == FilesReleased(objects=())
    cut(mill, stream, 14)
    assert mill.machine.objects.rows(file) == 2
    cut(mill, stream, 15)
    assert list(mill.machine.objects.only_in_table()) == [file]
    mill.writer.live(HOUR)
    assert file not in mill.machine.objects.due(0, 100)
    pinned = mill.writer.do(Pin(pin="job"))
    assert mill.compactor.do(ReleaseFiles(objects=(file, file))) == FilesReleased(objects=(file,))
    mill.compactor.live(2 * HOUR)
    mill.writer.live(2 * HOUR)
    assert pinned.position < mill.machine.objects.dead[file].position
    assert mill.writer.do(MarkDeleting(objects=(file,), grace_ms=0)) == Marked(objects=())
    mill.writer.do(Unpin(pin="job"))
    assert mill.writer.do(MarkDeleting(objects=(file,), grace_ms=0)) == Marked(objects=(file,))
    path = ParquetName.parse(mill.machine.objects.find(file).path())
    assert (path.partition, path.file_id) == (0, wal_id(LOG, mill.compactor.session, 1))
    assert mill.writer.do(Gone(objects=(file,))) == Done()
    assert mill.machine.objects.files == {}


def test_without_a_table_a_file_has_one_owner():
    """SW2, SW5"""
    mill, stream = filled()
    task = mill.take(stream, 0, 6, table=False)
    mill.write(stream, task, 6)
    assert why(mill.compactor.do(TableCommitted(stream=stream, task=task, commit="c"))) is Why.STATE
    (file,) = mill.swap(stream, task).objects
    assert mill.finish(stream, task) == 0
    cut(mill, stream, 6)
    assert file in mill.machine.objects.dead


def test_what_retention_took_meanwhile_stays_taken():
    """SW4, R-154: a file of which no row is left gets none, and is the table's alone."""
    mill, stream = filled()
    task = mill.take(stream, 0, 21)
    one, two = mill.write(stream, task, 9, 21)
    mill.commit(stream, task)
    cut(mill, stream, 13)
    assert mill.swap(stream, task).objects == (two,)
    assert rows(mill, stream) == [(12, 21, two), (21, 24, 7), (24, 27, 8), (27, 30, 9)]
    assert mill.machine.streams.find(stream).start == 13
    assert list(mill.machine.objects.only_in_table()) == [one]


@pytest.mark.parametrize("reached", list(TaskState))
def test_a_task_whose_topic_was_deleted_ends_and_leaves_nothing_but_what_the_table_has(reached):
    """SW2, SW5, R-154, E-20"""
    mill, stream = filled()
    task = mill.take(stream, 0, 21)
    steps = [
        partial(mill.write, stream, task, 9, 21), partial(mill.commit, stream, task), partial(mill.swap, stream, task),
    ]  # fmt: skip
    for step in steps[: reached.value]:
        step()
    while mill.writer.do(CloseStream(stream=stream, limit=4)).left:
        pass
    assert why(mill.compactor.do(CreateTask(stream=stream, start=0, end=6))) is Why.NOT_FOUND
    if reached is TaskState.ICEBERG_COMMITTED:
        assert mill.swap(stream, task).objects == ()
        assert mill.compactor.do(FinishTask(stream=stream, task=task)) == TaskFinished(left=0)
    else:
        assert mill.abandon(stream, task) == Done()
    assert mill.machine.tasks.by_stream == {}
    files = [] if reached is TaskState.CREATED else [10, 11]
    assert list(mill.machine.objects.only_in_table()) == files
    assert mill.compactor.do(ReleaseFiles(objects=tuple(files))) == FilesReleased(objects=tuple(files))
    assert sorted(mill.machine.objects.dead) == [*range(10), *files]


def test_a_task_that_is_given_up_frees_its_stream_and_keeps_what_may_be_in_the_table():
    """SW2, SW5, R-152"""
    mill, stream = filled()
    task = mill.take(stream, 0, 6)
    assert mill.abandon(stream, task) == Done()
    task = mill.take(stream, 0, 6)
    (file,) = mill.write(stream, task, 6)
    assert mill.abandon(stream, task) == Done()
    assert mill.compactor.do(AbandonTask(stream=stream, task=task)).why is Why.NOT_FOUND
    assert list(mill.machine.objects.only_in_table()) == [file]
    assert len(rows(mill, stream)) == 10


def test_small_files_become_one_and_each_offset_is_found_as_before():
    """SW4, R-150, R-158: the old files stay the table's until it lets go of them."""
    mill, stream = filled()
    (one,), (two,), (three,) = mill.compact(stream, 6), mill.compact(stream, 9), mill.compact(stream, 18)
    task = mill.take(stream, 6, 18, rewrite=True)
    (whole,) = mill.write(stream, task, 18)
    mill.commit(stream, task)
    mill.swap(stream, task)
    assert mill.finish(stream, task) == 0
    assert rows(mill, stream)[:3] == [(0, 6, one), (6, 18, whole), (18, 21, 6)]
    assert sorted(mill.machine.objects.only_in_table()) == [two, three]
    index = mill.machine.streams.find(stream).index
    for offset in range(30):
        row = index.row(index.find(offset))
        assert row.start <= offset < row.end


def test_a_file_is_as_old_as_what_it_was_made_from():
    """RT20: a record without a timestamp expires by its arrival, however often it was rewritten."""
    mill, stream = filled()
    (file,) = mill.compact(stream, 15)
    assert (mill.machine.objects.arrived_ms(file), mill.machine.objects.find(file).created_ms) == (NOW, NOW + 5)
    task = mill.take(stream, 0, 15, rewrite=True)
    (again,) = mill.write(stream, task, 15)
    assert mill.machine.objects.arrived_ms(again) == NOW


def test_tasks_and_files_survive_a_checkpoint_and_are_shown():
    """K2, R-046"""
    mill, stream = filled()
    (file,) = mill.compact(stream, 6)
    task = mill.take(stream, 6, 21)
    mill.write(stream, task, 9, 21)
    mill.commit(stream, task)
    loaded = checkpoint.load(checkpoint.dump(mill.machine))
    assert checkpoint.dump(loaded) == checkpoint.dump(mill.machine)
    assert (loaded.objects.files, loaded.tasks.by_stream) == (mill.machine.objects.files, mill.machine.tasks.by_stream)
    assert loaded.objects.files[file].footer_crc == 1_001
    assert loaded.objects.has_file(mill.compactor.session, 3)
    assert not loaded.objects.has_file(mill.compactor.session, 4)
    shown = dict(listing.ls(mill.machine))
    assert list(shown) == sorted(shown)
    row = shown[f"/dray/v1/streams/{stream:020d}/offset-index/{6:020d}/{208:020d}"]
    assert (row["fileType"], row["parquetSizeBytes"]) == ("PARQUET", 5 << 30)
    assert row["parquetPath"] == mill.machine.objects.find(file).path()
    saga = shown[f"/dray/v1/streams/{stream:020d}/compaction/tasks/{task:020d}"]
    assert (saga["state"], saga["startOffset"], saga["endOffset"]) == ("ICEBERG_COMMITTED", 6, 21)
    assert len(saga["files"]) == 2
    assert mill.machine.objects.kind(file) is ObjectKind.PARQUET


def test_before_version_2_there_are_no_tasks():
    """M10"""
    mill = Mill(version=1)
    (stream,) = mill.topic("t", 1)
    mill.append((stream, 3))
    raw = mill.compactor.entry(CreateTask(stream=stream, start=0, end=3), version=2)
    mill.compactor.n += 1
    mill.tape.write(raw)
    assert mill.machine.tasks.by_stream == {}


def test_a_swap_takes_no_longer_for_many_rows():
    """M2, M7, Q8: it needs no more of an entry than its files, whatever the rows."""
    assert Swap(stream=1, task=0).needs() == MAX_FILES
    mill, stream = filled(batches=400)
    task = mill.take(stream, 0, 1_200)
    mill.write(stream, task, 1_200)
    mill.commit(stream, task)
    applied = mill.compactor.send(Swap(stream=stream, task=task), FinishTask(stream=stream, task=task, limit=100))
    assert applied.verdicts[1] == TaskFinished(left=300)
    assert len(rows(mill, stream)) == 1
    assert SessionId(mill.compactor.session) in mill.machine.sessions.live
