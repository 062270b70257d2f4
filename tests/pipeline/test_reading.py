"""A plan and its tasks give exactly what a consumer reads; no Spark is needed to see that."""

import asyncio
import random
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from dray.disk import LocalDisk
from dray.errors import NotFound
from dray.objects.files import FileObjects
from dray.offload import InlineOffload
from dray.pipeline import plan as plan_module
from dray.pipeline import reading
from dray.pipeline.errors import BadOption, BrokenObject, DataLoss, NoSuchTopic
from dray.pipeline.parallelism import VARIABLE
from dray.pipeline.plan import Piece
from dray.pipeline.reading import read_pieces
from dray.pipeline.together import GETS
from dray.testing import broker
from tests.fetch.compacting import turn_into_files
from tests.pipeline.parts import (
    changed_footer,
    consumed,
    create,
    delete,
    make_plan,
    numbered,
    objects_of,
    produce,
    read,
)

FUTURE = 4_102_444_800_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ODD = [
    (None, None, None, 0),
    (b"", b"", [], 0),
    (b"key", None, [("a", b"1"), ("a", b"2"), ("a", None), ("", b"")], 0),
    (None, b"value", [("ä", b"\x00\xff")], 1),
]


def read_some(plan, *columns) -> list[tuple]:
    """Some columns of every record of a plan."""
    batches = [batch for task in plan.tasks for batch in read_pieces(plan.address, task, columns)]
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    directory = tmp_path_factory.mktemp("running") / "data"
    with broker(directory) as started:
        yield directory, started.bootstrap


@pytest.mark.slow
def test_rows_equal_a_consumers_for_every_codec_and_both_timestamp_types(running):
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
    assert read(make_plan(directory, subscribe=topics, includeHeaders="true")) == sorted(expected)


@pytest.mark.slow
def test_columns_that_the_index_tells_are_read_without_decoding_a_record(running, monkeypatch):
    """SP3, SP4: checked all the same, for every codec and both timestamp types, wherever the offsets cut."""
    directory, bootstrap = running
    expected = []
    for codec in ("none", "zstd"):
        for kind in ("CreateTime", "LogAppendTime"):
            topic = f"told-{codec}-{kind}"
            create(bootstrap, topic, message_timestamp_type=kind)
            for _ in range(3):
                produce(bootstrap, topic, numbered(0, 300), compression_type=codec, batch_size=4_000)
            given = int(kind == "LogAppendTime")
            expected += [(topic, 0, offset, given) for offset in range(900)]
    topics = ",".join(sorted({topic for topic, *_ in expected}))
    plan = make_plan(directory, subscribe=topics, minPartitions=7)

    def decoded(*_):
        raise AssertionError("a record was decoded")

    monkeypatch.setattr(reading, "parts_to_arrow", decoded)
    monkeypatch.setattr(reading, "part_of", decoded)
    monkeypatch.setattr(reading, "LOCAL_GROUP_BYTES", 10_000)  # several groups to an Arrow batch
    columns = ["topic", "partition", "offset", "timestampType"]
    assert sorted(read_some(plan, *columns)) == sorted(expected)
    batches = [batch for task in plan.tasks for batch in read_pieces(plan.address, task, columns)]
    assert len(batches) <= sum(len(task) for task in plan.tasks), "small groups do not make small batches"
    monkeypatch.setattr(reading, "ROWS", 7)
    for batch in read_pieces(plan.address, plan.tasks[0], ["offset"]):
        assert 0 < batch.num_rows <= 7
    with pytest.raises(AssertionError, match="was decoded"):
        list(read_pieces(plan.address, plan.tasks[0], ["offset", "timestamp"]))


def test_a_plan_in_many_tasks_holds_each_record_once(running, monkeypatch):
    """SP1, SP4."""
    directory, bootstrap = running
    produce(bootstrap, "many", numbered(0, 2_000), batch_size=2_000)
    monkeypatch.setattr(reading, "ROWS", 7)
    monkeypatch.setattr(reading, "GROUP_BYTES", 5_000)
    plan = make_plan(directory, subscribe="many", minPartitions=9)
    assert len(plan.tasks) == 9
    sizes = [sum(piece.bytes for piece in pieces) for pieces in plan.tasks]
    assert max(sizes) < 2 * min(sizes)
    batches = [b for pieces in plan.tasks for b in reading.read_pieces(plan.address, pieces, ["offset"])]
    assert max(batch.num_rows for batch in batches) <= 7
    assert [row.offset for row in read(plan)] == list(range(2_000))


def test_offsets_cut_inside_batches(running):
    directory, bootstrap = running
    produce(bootstrap, "cut", numbered(0, 1_000))
    for start, end in ((0, 1_000), (1, 999), (500, 501), (300, 300), (999, 1_000)):
        plan = make_plan(
            directory, subscribe="cut", startingOffsets=f'{{"cut":{{"0":{start}}}}}',
            endingOffsets=f'{{"cut":{{"0":{end}}}}}',
        )  # fmt: skip
        assert [row.offset for row in read(plan)] == list(range(start, end))


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_start_by_time_is_the_first_record_that_is_not_older(running, kind):
    directory, bootstrap = running
    topic = f"timed-{kind}"
    create(bootstrap, topic, 1, message_timestamp_type=kind)
    for n in range(5):
        produce(bootstrap, topic, numbered(n * 20, 20))
    rows = consumed(bootstrap, topic, 1)
    for wanted in {rows[0].timestamp_ms - 1, rows[30].timestamp_ms, rows[99].timestamp_ms}:
        first = next(row.offset for row in rows if row.timestamp_ms >= wanted)
        for given in (wanted, f'{{"{topic}":{{"0":{wanted}}}}}'):
            name = "Timestamp" if isinstance(given, int) else "OffsetsByTimestamp"
            late = make_plan(directory, assign=f'{{"{topic}":[0]}}', **{f"starting{name}": given})
            assert [row.offset for row in read(late)] == list(range(first, 100))
            early = make_plan(directory, assign=f'{{"{topic}":[0]}}', **{f"ending{name}": given})
            assert [row.offset for row in read(early)] == list(range(first))


def test_a_time_that_no_record_is_as_young_as_is_an_end_and_by_default_no_start(running):
    """As in Spark's Kafka source: error, unless the strategy says latest."""
    directory, bootstrap = running
    create(bootstrap, "past", 2)  # one partition stays empty
    produce(bootstrap, "past", numbered(0, 10))
    for name, given in (
        ("startingTimestamp", FUTURE),
        ("startingOffsetsByTimestamp", f'{{"past":{{"0":0,"1":{FUTURE}}}}}'),
    ):
        with pytest.raises(BadOption, match=rf"set startingOffsetsByTimestampStrategy to latest.*option={name}"):
            make_plan(directory, subscribe="past", **{name: given})
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(make_plan(directory, subscribe="past", startingTimestamp=FUTURE, **strategy)) == []
    assert len(read(make_plan(directory, subscribe="past", startingTimestamp=0, **strategy))) == 10
    assert len(read(make_plan(directory, subscribe="past", endingTimestamp=FUTURE))) == 10


def test_a_start_behind_the_end_is_refused(running):
    directory, bootstrap = running
    produce(bootstrap, "turned", numbered(0, 10))
    last = consumed(bootstrap, "turned", 1)[-1].timestamp_ms
    by_offset = {"startingOffsets": '{"turned":{"0":7}}', "endingOffsets": '{"turned":{"0":6}}'}
    with pytest.raises(BadOption, match="the start is behind the end topic=turned partition=0 start=7 end=6"):
        make_plan(directory, subscribe="turned", **by_offset)
    with pytest.raises(BadOption, match="starting=startingOffsets ending=endingTimestamp"):
        make_plan(directory, subscribe="turned", startingOffsets='{"turned":{"0":7}}', endingTimestamp=last - 60_000)


@pytest.mark.slow
def test_json_that_names_what_is_not_read_is_refused_and_not_passed_over(running):
    directory, bootstrap = running
    create(bootstrap, "named", 2)
    produce(bootstrap, "named", numbered(0, 10, 2))
    whole = '"named":{"0":1,"1":1}'
    for option in ("startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
        for given, told in (
            (f'{{{whole},"nmaed":{{"0":1}}}}', "not read.*topic=nmaed partition=0"),
            ('{"named":{"0":1,"1":1,"2":1}}', "not read.*topic=named partition=2"),
            ('{"named":{"0":1}}', "missing.*topic=named partition=1"),
        ):
            with pytest.raises(BadOption, match=f"a partition is .*{told}.*"):
                make_plan(directory, subscribe="named", **{option: given})
        with pytest.raises(BadOption, match=r"not read.*topic=named partition=1"):
            make_plan(directory, assign='{"named":[0]}', **{option: f"{{{whole}}}"})


def test_a_pattern_means_whole_names_and_the_topics_that_are_there(running):
    directory, bootstrap = running
    for topic in ("eu.orders", "us.orders", "us.orders.old", "orders"):
        create(bootstrap, topic, 2)
        produce(bootstrap, topic, numbered(0, 4, 2))

    def topics(**options: object) -> list[str]:
        return sorted({row.topic for row in read(make_plan(directory, **options))})

    assert topics(subscribePattern=r".*\.orders") == ["eu.orders", "us.orders"]
    assert topics(subscribePattern="orders") == ["orders"]
    assert topics(subscribePattern="nowhere.*") == []
    both = '{"eu.orders":{"0":1,"1":1},"us.orders":{"0":1,"1":2}}'
    assert topics(subscribePattern=r"(eu|us)\.orders", startingOffsets=both) == ["eu.orders", "us.orders"]
    delete(bootstrap, "eu.orders")
    assert topics(subscribePattern=r".*\.orders") == ["us.orders"]


def test_a_plan_has_tasks_for_the_cores_of_the_session_and_not_for_those_of_the_planner(running, monkeypatch):
    directory, bootstrap = running
    produce(bootstrap, "spread", numbered(0, 2_000), batch_size=1_000)
    monkeypatch.setattr(plan_module, "LEAST_TASK_BYTES", 1)
    monkeypatch.setenv(VARIABLE, "5")  # as `build_session` leaves it to the JVM, and the JVM to its planners
    plan = make_plan(directory, subscribe="spread")
    assert len(plan.tasks) == 5 * plan_module.TASKS_PER_CORE
    assert [row.offset for row in read(plan)] == list(range(2_000))


def test_tasks_have_at_most_so_many_records_though_a_batch_has_more(running):
    """SP1."""
    directory, bootstrap = running
    create(bootstrap, "few", 2)
    produce(bootstrap, "few", numbered(0, 500, 2))
    plan = make_plan(directory, subscribe="few", maxRecordsPerPartition=70)
    sizes = [sum(b.num_rows for b in read_pieces(plan.address, pieces, ["offset"])) for pieces in plan.tasks]
    assert max(sizes) <= 70
    assert sum(sizes) == 500
    assert read(plan) == consumed(bootstrap, "few", 2)


def test_a_topic_of_many_small_objects_is_read_with_few_requests_at_a_time(running, monkeypatch):
    """SP4, SP8: objects of a trickle have one batch each, and a task has thousands of them."""
    directory, bootstrap = running
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for n in range(3 * GETS):
        producer.produce("trickle", value=b"%d" % n, partition=0)
        producer.flush(30)
    under_way, most, groups = 0, 0, []

    class Counting(FileObjects):
        async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            for _ in range(5):  # whoever may start meanwhile does
                await asyncio.sleep(0)
            under_way -= 1
            return await super().get(path, start, end)

    async def counting(address: str) -> Counting:
        return Counting(Path(address), LocalDisk(), InlineOffload())

    async def fetch(objects: Counting, piece: Piece, group: list[object]) -> list[memoryview]:
        groups.append(len(group))
        return await fetching(objects, piece, group)

    fetching = reading._fetch
    monkeypatch.setattr(reading, "_fetch", fetch)
    monkeypatch.setattr(reading, "open_for_tasks", counting)
    plan = make_plan(directory, subscribe="trickle")
    assert [row.offset for row in read(plan)] == list(range(3 * GETS))
    assert (most, groups) == (GETS, [3 * GETS])
    monkeypatch.setattr(reading, "GROUP_RANGES", 40)
    assert len(read(plan)) == 3 * GETS
    assert max(groups[1:]) == 40


def test_what_lies_in_an_object_and_in_no_row_of_the_index_is_not_read(running):
    """R-147: a batch that was refused when its object was committed lies between others, whole and with a good CRC."""
    directory, bootstrap = running
    produce(bootstrap, "refused", numbered(0, 600), batch_size=4_000)
    plan = make_plan(directory, subscribe="refused")
    ((piece,),) = plan.tasks
    assert len(piece.bases) > 4
    gone = range(piece.bases[2], piece.bases[3])
    columns = ("owners", "bases", "counts", "positions", "sizes")
    left = {name: array(old.typecode, [*old[:2], *old[3:]]) for name in columns if (old := getattr(piece, name))}
    batches = read_pieces(plan.address, [replace(piece, **left)], ["offset", "value"])
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == [offset for offset in range(600) if offset not in gone]


@pytest.mark.slow
def test_a_task_does_not_load_pandas(running):
    """Arrow would, at the first value of Python that it is given: half a second of CPU for each new worker."""
    directory, bootstrap = running
    produce(bootstrap, "lean", ODD[:3])
    code = (
        "import pathlib, sys; from tests.pipeline.parts import COLUMNS, make_plan, read_pieces\n"
        f"plan = make_plan(pathlib.Path({str(directory)!r}), subscribe='lean')\n"
        "rows = sum(batch.num_rows for task in plan.tasks for batch in read_pieces(plan.address, task, COLUMNS))\n"
        "print(rows, 'pyarrow' in sys.modules, 'pandas' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == "3 True False\n", ran.stderr


@pytest.mark.slow
def test_a_closed_directory_is_read_and_a_broker_may_start_on_it(tmp_path):
    with broker(tmp_path) as started:
        produce(started.bootstrap, "closed", numbered(0, 100))
        assert len(read(make_plan(tmp_path, subscribe="closed"))) == 100  # held beside a broker, which stops
    plan = make_plan(tmp_path, subscribe="closed")
    assert [row.offset for row in read(plan)] == list(range(100))
    with broker(tmp_path) as started:  # nothing keeps a broker from starting
        produce(started.bootstrap, "closed", numbered(100, 10))
        assert len(read(make_plan(tmp_path, subscribe="closed"))) == 110
        assert len(read(plan)) == 100


def test_what_is_not_there_is_told(running, tmp_path):
    directory, bootstrap = running
    produce(bootstrap, "there", numbered(0, 10))
    with pytest.raises(NoSuchTopic, match=r"topic=nowhere.*there"):
        make_plan(directory, subscribe="nowhere")
    with pytest.raises(NoSuchTopic, match="partition=5 partitions=1"):
        make_plan(directory, assign='{"there":[5]}')
    with pytest.raises(NotFound, match="not a data directory"):
        make_plan(tmp_path, subscribe="there")
    with pytest.raises(NotFound, match="give objects"):
        make_plan(directory, subscribe="there", objects=tmp_path / "elsewhere")
    with pytest.raises(BadOption, match=r"a partition is missing.*option=startingOffsets topic=there"):
        make_plan(directory, subscribe="there", startingOffsets="{}")


def test_offsets_outside_the_log_fail_unless_loss_is_allowed(running):
    directory, bootstrap = running
    produce(bootstrap, "short", numbered(0, 10))
    beyond = {"subscribe": "short", "startingOffsets": '{"short":{"0":4}}', "endingOffsets": '{"short":{"0":99}}'}
    with pytest.raises(DataLoss, match="offset=99 start=0 end=10"):
        make_plan(directory, **beyond)
    plan = make_plan(directory, **beyond, failOnDataLoss="false")
    assert [row.offset for row in read(plan)] == list(range(4, 10))


@pytest.mark.slow
def test_a_damaged_or_missing_object_fails_with_its_name_stream_and_offset(tmp_path):
    """SP3."""
    with broker(tmp_path) as started:
        produce(started.bootstrap, "hurt", numbered(0, 10))
        before, later = objects_of(tmp_path), consumed(started.bootstrap, "hurt", 1)[-1].timestamp_ms + 1
        produce(started.bootstrap, "hurt", numbered(10, 10))
        (second,) = objects_of(tmp_path) - before
        plan = make_plan(tmp_path, subscribe="hurt")
    whole = second.read_bytes()
    at = whole.rindex(b"value 19")
    second.chmod(0o600)
    second.write_bytes(whole[:at] + b"VALUE" + whole[at + 5 :])
    named = rf"{second.name}.*topic=hurt partition=0 stream=\d+ offset=10.*CRC32C"
    with pytest.raises(BrokenObject, match=named):
        read(plan)
    with pytest.raises(BrokenObject, match=named):  # nobody asks for what was changed, and it is told all the same
        read_some(plan, "partition", "offset")
    with pytest.raises(BrokenObject, match=named):  # a time is looked up in the batch, before any task
        make_plan(tmp_path, subscribe="hurt", startingOffsetsByTimestamp=f'{{"hurt":{{"0":{later}}}}}')
    second.write_bytes(whole[: at // 2])
    with pytest.raises(BrokenObject, match=r"offset=10 reason=the object ends"):
        read(plan)
    second.unlink()
    with pytest.raises(BrokenObject, match=r"offset=10 reason=no such object"):
        read(plan)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_plan_reads_files_and_what_is_no_file_yet_in_one_cut(running, kind):
    """R-165, R-150, SP1, SP9, R-133: each record once, wherever the offsets cut, and times are found in files too."""
    directory, bootstrap = running
    topic = f"filed-{kind}"
    create(bootstrap, topic, message_timestamp_type=kind)
    for first in range(0, 1_500, 500):
        produce(bootstrap, topic, [*ODD[:3], *numbered(first, 497)], batch_size=3_000)
    expected = consumed(bootstrap, topic, 1)
    turn_into_files(directory, topic, 600, 1_000)
    assert read(make_plan(directory, subscribe=topic, includeHeaders="true")) == expected
    assert consumed(bootstrap, topic, 1) == expected
    for start, end in ((0, 1), (5, 601), (599, 1_100), (1_499, 1_500), (300, 300)):
        plan = make_plan(
            directory, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":{start}}}}}',
            endingOffsets=f'{{"{topic}":{{"0":{end}}}}}', includeHeaders="true",
        )  # fmt: skip
        assert read(plan) == expected[start:end]
    (only,) = make_plan(directory, subscribe=topic, minPartitions=1).tasks
    batches = list(read_pieces(make_plan(directory, subscribe=topic).address, only, ["partition", "offset"]))
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(1_500))
    for at in (0, 300, 900, 1_200):
        time = expected[at].timestamp_ms
        first = next(row.offset for row in expected if row.timestamp_ms >= time)
        plan = make_plan(directory, subscribe=topic, startingTimestamp=time)
        assert min(row.offset for row in read(plan)) == first


@pytest.mark.slow
def test_of_a_file_only_the_columns_that_are_asked_for_are_fetched(running, monkeypatch):
    """R-165, PQ4: the bytes that a task asks its store for."""
    directory, bootstrap = running
    dice = random.Random(5)
    create(bootstrap, "wide")
    produce(bootstrap, "wide", [(b"k", dice.randbytes(1_000), None, 0) for _ in range(2_000)])
    expected = consumed(bootstrap, "wide", 1)
    turn_into_files(directory, "wide", 2_000)
    plan, real, asked = make_plan(directory, subscribe="wide"), FileObjects.get, []

    async def counted(self, path, start=0, end=None):
        found = await real(self, path, start, end)
        asked.append(len(found))
        return found

    monkeypatch.setattr(FileObjects, "get", counted)
    assert read_some(plan, "offset", "value") == [(row.offset, row.value) for row in expected]
    whole = sum(asked)
    assert whole > 2_000_000
    asked.clear()
    assert read_some(plan, "partition", "offset", "timestampType") == [(0, row.offset, 0) for row in expected]
    assert sum(asked) < whole // 10


def test_a_changed_footer_is_not_believed_though_it_can_be_read(running):
    """SP11, PQ4: by a task, and by a plan that looks a time up in the file; both name file and stream."""
    directory, bootstrap = running
    produce(bootstrap, "footed", numbered(0, 100))
    expected = consumed(bootstrap, "footed", 1)
    turn_into_files(directory, "footed", 100)
    plan = make_plan(directory, subscribe="footed")
    ((piece,),) = plan.tasks
    (file,) = {Path(plan.address) / piece.path(owner) for owner in piece.owners}
    by_time = {"subscribe": "footed", "startingTimestamp": expected[50].timestamp_ms}
    with changed_footer(file):
        assert pq.read_table(file).num_rows == 100, "nothing but the checksum tells"
        named = rf"{file.name}.*topic=footed partition=0 stream={piece.stream} offset=0 .*checksum"
        with pytest.raises(BrokenObject, match=named):
            read(plan)
        with pytest.raises(BrokenObject, match=rf"{file.name}.*stream={piece.stream} .*checksum"):
            make_plan(directory, **by_time)
    assert read(plan) == expected
    assert make_plan(directory, **by_time).tasks
