"""Tables that stand still are marked in the catalog, for everybody."""

from dray.machine import checkpoint, listing
from dray.machine.garbage import FilesHeld, FilesReleased, HoldFiles, ReleaseFiles
from dray.machine.names import ObjectId, TopicId
from dray.machine.streams import CloseStream, FloorReason, RaiseFloor
from dray.machine.table_marks import MarkTable
from dray.machine.topics import DeleteTopic, TopicGone
from dray.machine.verdict import Done, Refused, Why

from .mill import Mill


def marked(mill: Mill, topic: TopicId, problem: str):
    return mill.compactor.do(MarkTable(topic_id=topic, problem=problem))


def test_a_mark_says_why_and_since_when_until_it_is_taken_away():
    """TM1"""
    mill = Mill()
    mill.topic("orders", 1)
    topic = mill.machine.topics.named("orders").id
    assert marked(mill, topic, "dropped") == Done()
    first = mill.machine.table_marks.find(topic)
    assert (first.problem, first.since_ms) == ("dropped", mill.machine.time_ms)
    assert marked(mill, topic, "dropped") == Done()
    assert mill.machine.table_marks.find(topic) is first
    loaded = checkpoint.load(checkpoint.dump(mill.machine))
    assert loaded.table_marks.by_topic == {topic: first}
    assert dict(listing.ls(loaded))[f"/dray/v1/tables/{topic.hex()}/problem"]["problem"] == "dropped"
    assert marked(mill, topic, "") == Done()
    assert mill.machine.table_marks.by_topic == {}
    assert marked(mill, topic, "") == Done()


def test_a_mark_is_of_a_topic_that_there_is():
    """TM1"""
    mill = Mill()
    (stream,) = mill.topic("orders", 1)
    topic = mill.machine.topics.named("orders").id
    verdict = marked(mill, TopicId(bytes(16)), "dropped")
    assert isinstance(verdict, Refused)
    assert verdict.why is Why.NOT_FOUND
    marked(mill, topic, "dropped")
    mill.writer.do(DeleteTopic(topic_id=topic))
    mill.writer.do(CloseStream(stream=stream))
    mill.writer.do(TopicGone(topic_id=topic))
    assert mill.machine.topics.find(topic) is None
    marked(mill, topic, "again")
    assert mill.machine.table_marks.by_topic == {}


def in_files(**how):
    mill = Mill()
    (stream,) = mill.topic("orders", 1)
    for _ in range(4):
        mill.append((stream, 3))
    return mill, stream, mill.compact(stream, 6, 12, **how)


def test_a_file_of_no_table_can_be_given_to_one_and_is_kept_for_it():
    """X1, X7: the dead do not come back."""
    mill, stream, (one, two) = in_files(table=False)
    assert mill.compactor.do(HoldFiles(objects=(one, ObjectId(99)))) == FilesHeld(objects=(one,))
    assert mill.compactor.do(HoldFiles(objects=(one,))) == FilesHeld(objects=(one,)), "again is harmless"
    mill.writer.do(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=12))
    assert list(mill.machine.objects.only_in_table()) == [one]
    assert set(mill.machine.objects.dead) >= {two}
    assert mill.compactor.do(HoldFiles(objects=(two,))) == FilesHeld(objects=())
    assert mill.compactor.do(ReleaseFiles(objects=(one,))) == FilesReleased(objects=(one,))
    assert one in mill.machine.objects.dead


def test_what_the_log_start_has_passed_is_told_from_what_was_written_again():
    """E-22: a table that keeps what the log drops keeps the one, and not the other."""
    mill, stream, (one, two) = in_files()
    task = mill.take(stream, 0, 12, rewrite=True)
    (whole,) = mill.write(stream, task, 12)
    mill.commit(stream, task)
    mill.swap(stream, task)
    mill.finish(stream, task)
    files = mill.machine.objects.files
    assert [files[number].passed for number in (one, two, whole)] == [False, False, False]
    mill.writer.do(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=12))
    assert [files[number].passed for number in (one, two, whole)] == [False, False, True]
    assert checkpoint.load(checkpoint.dump(mill.machine)).objects.files == files


def test_files_whose_rows_went_before_they_got_there_are_passed_as_well():
    """SW4, E-22"""
    mill = Mill()
    (stream,) = mill.topic("orders", 1)
    mill.append((stream, 3), (stream, 3))
    task = mill.take(stream, 0, 6)
    (file,) = mill.write(stream, task, 6)
    mill.commit(stream, task)
    mill.writer.do(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=6))
    mill.swap(stream, task)
    assert mill.machine.objects.files[file].passed
    assert list(mill.machine.objects.only_in_table()) == [file]
