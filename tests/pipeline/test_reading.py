"""A plan and its tasks give exactly what a consumer reads; no Spark is needed to see that."""

import pytest

from dray.errors import NotFound
from dray.pipeline import reading
from dray.pipeline.errors import BadOption, BrokenObject, DataLoss, NoSuchTopic
from dray.testing import broker
from tests.pipeline.parts import consumed, create, make_plan, numbered, objects_of, produce, read

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ODD = [
    (None, None, None, 0),
    (b"", b"", [], 0),
    (b"key", None, [("a", b"1"), ("a", b"2"), ("a", None), ("", b"")], 0),
    (None, b"value", [("ä", b"\x00\xff")], 1),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    directory = tmp_path_factory.mktemp("running") / "data"
    with broker(directory) as started:
        yield directory, started.bootstrap


def test_rows_equal_a_consumers_for_every_codec_and_both_timestamp_types(running, driver):
    """R-165, SP1."""
    directory, bootstrap = running
    expected = []
    for codec in CODECS:
        for kind in ("CreateTime", "LogAppendTime"):
            topic = f"{codec}-{kind}"
            create(bootstrap, topic, 2, message_timestamp_type=kind)
            for _ in range(3):  # several batches a partition, the first of them tiny
                produce(bootstrap, topic, ODD, compression_type=codec)
                produce(bootstrap, topic, numbered(0, 300, 2), compression_type=codec, batch_size=4_000)
            expected += consumed(bootstrap, topic, 2)
    topics = ",".join(f"{codec}-{kind}" for codec in CODECS for kind in ("CreateTime", "LogAppendTime"))
    assert read(make_plan(directory, driver, subscribe=topics, includeHeaders="true")) == sorted(expected)


def test_a_plan_in_many_tasks_holds_each_record_once(running, driver, monkeypatch):
    """SP1, SP4."""
    directory, bootstrap = running
    produce(bootstrap, "many", numbered(0, 2_000), batch_size=2_000)
    monkeypatch.setattr(reading, "ROWS", 7)
    monkeypatch.setattr(reading, "GROUP_BYTES", 5_000)
    plan = make_plan(directory, driver, subscribe="many", minPartitions=9)
    assert len(plan.tasks) == 9
    sizes = [sum(piece.bytes for piece in pieces) for pieces in plan.tasks]
    assert max(sizes) < 2 * min(sizes)
    batches = [b for pieces in plan.tasks for b in reading.read_pieces(plan.address, pieces, include_headers=False)]
    assert max(batch.num_rows for batch in batches) <= 7
    assert [row.offset for row in read(plan)] == list(range(2_000))


def test_offsets_cut_inside_batches(running, driver):
    directory, bootstrap = running
    produce(bootstrap, "cut", numbered(0, 1_000))
    for start, end in ((0, 1_000), (1, 999), (500, 501), (300, 300), (999, 1_000)):
        plan = make_plan(
            directory, driver, subscribe="cut", startingOffsets=f'{{"cut":{{"0":{start}}}}}',
            endingOffsets=f'{{"cut":{{"0":{end}}}}}',
        )  # fmt: skip
        assert [row.offset for row in read(plan)] == list(range(start, end))


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_start_by_time_is_the_first_record_that_is_not_older(running, driver, kind):
    directory, bootstrap = running
    topic = f"timed-{kind}"
    create(bootstrap, topic, 1, message_timestamp_type=kind)
    for n in range(5):
        produce(bootstrap, topic, numbered(n * 20, 20))
    rows = consumed(bootstrap, topic, 1)
    for wanted in {rows[0].timestamp_ms - 1, rows[30].timestamp_ms, rows[99].timestamp_ms, rows[99].timestamp_ms + 1}:
        plan = make_plan(directory, driver, assign=f'{{"{topic}":[0]}}',
                         startingOffsetsByTimestamp=f'{{"{topic}":{{"0":{wanted}}}}}')  # fmt: skip
        first = next((row.offset for row in rows if row.timestamp_ms >= wanted), 100)
        assert [row.offset for row in read(plan)] == list(range(first, 100))


def test_a_closed_directory_is_read_and_a_broker_may_start_on_it(tmp_path, driver):
    with broker(tmp_path) as started:
        produce(started.bootstrap, "closed", numbered(0, 100))
        assert len(read(make_plan(tmp_path, driver, subscribe="closed"))) == 100  # held beside a broker, which stops
    plan = make_plan(tmp_path, driver, subscribe="closed")
    assert [row.offset for row in read(plan)] == list(range(100))
    with broker(tmp_path) as started:  # nothing keeps a broker from starting
        produce(started.bootstrap, "closed", numbered(100, 10))
        assert len(read(make_plan(tmp_path, driver, subscribe="closed"))) == 110
        assert len(read(plan)) == 100


def test_what_is_not_there_is_told(running, driver, tmp_path):
    directory, bootstrap = running
    produce(bootstrap, "there", numbered(0, 10))
    with pytest.raises(NoSuchTopic, match=r"topic=nowhere.*there"):
        make_plan(directory, driver, subscribe="nowhere")
    with pytest.raises(NoSuchTopic, match="partition=5 partitions=1"):
        make_plan(directory, driver, assign='{"there":[5]}')
    with pytest.raises(NotFound, match="not a data directory"):
        make_plan(tmp_path, driver, subscribe="there")
    with pytest.raises(NotFound, match="give objects"):
        make_plan(directory, driver, subscribe="there", objects=tmp_path / "elsewhere")
    with pytest.raises(BadOption, match="a partition is missing option=startingOffsets topic=there"):
        make_plan(directory, driver, subscribe="there", startingOffsets="{}")


def test_offsets_outside_the_log_fail_unless_loss_is_allowed(running, driver):
    directory, bootstrap = running
    produce(bootstrap, "short", numbered(0, 10))
    beyond = {"subscribe": "short", "startingOffsets": '{"short":{"0":4}}', "endingOffsets": '{"short":{"0":99}}'}
    with pytest.raises(DataLoss, match="offset=99 start=0 end=10"):
        make_plan(directory, driver, **beyond)
    plan = make_plan(directory, driver, **beyond, failOnDataLoss="false")
    assert [row.offset for row in read(plan)] == list(range(4, 10))


def test_a_damaged_or_missing_object_fails_with_its_name_stream_and_offset(tmp_path, driver):
    """SP3."""
    with broker(tmp_path) as started:
        produce(started.bootstrap, "hurt", numbered(0, 10))
        before, later = objects_of(tmp_path), consumed(started.bootstrap, "hurt", 1)[-1].timestamp_ms + 1
        produce(started.bootstrap, "hurt", numbered(10, 10))
        (second,) = objects_of(tmp_path) - before
        plan = make_plan(tmp_path, driver, subscribe="hurt")
    whole = second.read_bytes()
    at = whole.rindex(b"value 19")
    second.chmod(0o600)
    second.write_bytes(whole[:at] + b"VALUE" + whole[at + 5 :])
    named = rf"{second.name}.*topic=hurt partition=0 stream=\d+ offset=10.*CRC32C"
    with pytest.raises(BrokenObject, match=named):
        read(plan)
    with pytest.raises(BrokenObject, match=named):  # a time is looked up in the batch, before any task
        make_plan(tmp_path, driver, subscribe="hurt", startingOffsetsByTimestamp=f'{{"hurt":{{"0":{later}}}}}')
    second.write_bytes(whole[: at // 2])
    with pytest.raises(BrokenObject, match=r"offset=10 reason=the object ends"):
        read(plan)
    second.unlink()
    with pytest.raises(BrokenObject, match=r"offset=10 reason=no such object"):
        read(plan)
