"""`spark.read.format("dray")` in a real session: rows, cuts, options, and what a user is told."""

import threading

import pytest

from dray.pipeline.parallelism import VARIABLE
from tests.fetch.compacting import turn_into_files
from tests.pipeline.parts import (
    broker_process,
    changed_footer,
    collect,
    consumed,
    create,
    make_plan,
    numbered,
    plan_only,
    produce,
    source,
    watermarks,
)

pytestmark = pytest.mark.slow  # a session alone takes ten seconds


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("spark") / "data") as started:
        yield started


def test_rows_equal_a_consumers_and_filters_keep_their_meaning(spark, running):
    """R-143, R-165."""
    create(running.bootstrap, "orders", 3)
    create(running.bootstrap, "stamped", 1, message_timestamp_type="LogAppendTime")
    odd = [(None, None, None, 0), (b"", b"", [("a", b"1"), ("a", None)], 0)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        records = [(f"k{n}".encode(), b"v" * n, [("n", b"%d" % n)], n % 3) for n in range(300)]
        produce(running.bootstrap, "orders", odd + records, compression_type=codec)
        produce(running.bootstrap, "stamped", odd, compression_type=codec)
    frame = source(spark, running, subscribe="orders,stamped", includeHeaders="true")
    orders = consumed(running.bootstrap, "orders", 3)
    assert collect(frame) == sorted(orders + consumed(running.bootstrap, "stamped", 1))
    some = [row for row in orders if row.partition == 1 and 20 <= row.offset < 150]
    assert collect(frame.where("topic = 'orders' and partition = 1 and offset >= 20 and offset < 150")) == some
    since = orders[len(orders) // 2].timestamp_ms
    late = frame.where(f"topic = 'orders' and timestamp >= timestamp_millis({since})")
    assert collect(late) == [row for row in orders if row.timestamp_ms >= since]


def test_columns_and_types_are_those_of_the_kafka_source(spark, running):
    produce(running.bootstrap, "typed", numbered(0, 1))
    frame = source(spark, running, subscribe="typed", includeHeaders="true")
    assert [f"{name} {kind}" for name, kind in frame.dtypes] == [
        "key binary", "value binary", "topic string", "partition int", "offset bigint", "timestamp timestamp",
        "timestampType int", "headers array<struct<key:string,value:binary>>",
    ]  # fmt: skip
    assert source(spark, running, subscribe="typed").columns == frame.columns[:-1]
    told = spark.sparkContext._jvm.System.getenv(VARIABLE)  # what planners inherit
    assert told == str(spark.sparkContext.defaultParallelism)


def test_a_schema_names_the_columns_that_are_read(spark, running):
    """In its own order and spelling, in Python and in SQL; what is not named does not leave the worker."""
    produce(running.bootstrap, "narrow", [(b"k", b"v" * 100, [("h", b"1")], 0)] * 20)
    reader = spark.read.format("dray").option("subscribe", "narrow")
    frame = reader.schema("OFFSET long, timestamptype int, headers array<struct<key:string,value:binary>>").load(
        str(running.directory)
    )
    assert frame.columns == ["OFFSET", "timestamptype", "headers"]
    assert [tuple(row) for row in frame.where("offset > 17").orderBy("offset").collect()] == [
        (n, 0, [("h", b"1")]) for n in (18, 19)
    ]
    assert [frame.count(), frame.where("offset < 3").count(), frame.count()] == [20, 3, 20]
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW narrow (partition int, offset long) USING dray"
        f" OPTIONS (path '{running.directory}', subscribe 'narrow')"
    )
    assert spark.sql("SELECT max(offset) AS last, count(*) AS n FROM narrow").first().asDict() == {"last": 19, "n": 20}
    for schema, told in (
        ("offst long", "no such column column=offst known=key, value"),
        ("offset int", "column=offset type=bigint given=int"),
        ("value string", "cast in the query column=value type=binary given=string"),
    ):
        with pytest.raises(Exception, match=told):
            reader.schema(schema).load(str(running.directory)).count()


def test_a_topic_becomes_a_pandas_frame_and_is_mapped_in_arrow(spark, running):
    """The extra brings pandas: notebooks ask for it first."""
    produce(running.bootstrap, "pandas", numbered(0, 10))
    frame = source(spark, running, subscribe="pandas").select("offset", "key")
    assert frame.toPandas()["offset"].tolist() == list(range(10))
    assert frame.mapInArrow(lambda batches: batches, "offset long, key binary").count() == 10


def test_a_stream_and_a_write_say_what_does_them_today(spark, running, tmp_path):
    produce(running.bootstrap, "still", numbered(0, 1))
    stream = spark.readStream.format("dray").option("subscribe", "still").load(str(running.directory))
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match=r"(?s)reads batches only today.*readStream.format\('kafka'\)"):
        query.awaitTermination(120)
    with pytest.raises(Exception, match=r"reads only today.*write.format\('kafka'\)"):
        spark.range(1).write.format("dray").mode("append").save(str(running.directory))


def test_a_table_with_a_list_of_columns_says_how_to_have_some(spark, running, request):
    """Spark gives its options to nobody: see ADR-0017."""
    request.addfinalizer(lambda: spark.sql("DROP TABLE IF EXISTS listed"))
    spark.sql(f"CREATE TABLE listed (offset long) USING dray OPTIONS (path '{running.directory}', subscribe 'x')")
    with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW"):
        spark.table("listed").count()
    with pytest.raises(Exception, match="nearest=startingOffsets"):
        spark.sql(f"CREATE TABLE wrong USING dray OPTIONS (path '{running.directory}', startingOffset 'earliest')")


def test_one_plan_is_one_cut_though_the_broker_is_killed_before_the_read(spark, running):
    """R-165."""
    create(running.bootstrap, "cut", 2)
    produce(running.bootstrap, "cut", [(None, b"before", None, n % 2) for n in range(500)])
    frame = source(spark, running, subscribe="cut", minPartitions="4")
    plan_only(frame)
    produce(running.bootstrap, "cut", [(None, b"after", None, n % 2) for n in range(100)])
    running.kill()
    running.start()
    rows = collect(frame)
    assert [(row.partition, row.offset) for row in rows] == [(p, n) for p in range(2) for n in range(250)]
    assert source(spark, running, subscribe="cut").count() == 600


def test_records_that_arrive_during_a_read_are_not_in_it_and_all_before_are(spark, running):
    """R-165, SP1: up to the cut each record is there once, behind it none."""
    create(running.bootstrap, "busy", 2)
    produce(running.bootstrap, "busy", numbered(0, 100, 2))
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            produce(running.bootstrap, "busy", numbered(0, 50, 2), batch_size=500)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        before = watermarks(running.bootstrap, "busy", 2)
        frame = source(spark, running, subscribe="busy", includeHeaders="true", minPartitions="5")
        plan_only(frame)
        after = watermarks(running.bootstrap, "busy", 2)
        rows, again = collect(frame), collect(frame)
    finally:
        stop.set()
        writer.join()
    assert rows == again
    for partition in range(2):
        offsets = [row.offset for row in rows if row.partition == partition]
        assert offsets == list(range(len(offsets)))
        assert before[partition][1] <= len(offsets) <= after[partition][1]
    written = consumed(running.bootstrap, "busy", 2)
    assert len(rows) < len(written)
    assert set(rows) < set(written)


def test_two_jobs_at_once_read_each_their_own(spark, running):
    for topic, count in (("left", 4_000), ("right", 6_000)):
        create(running.bootstrap, topic, 2)
        produce(running.bootstrap, topic, numbered(0, count, 2), batch_size=4_000)
    found, started = {}, threading.Barrier(2)

    def job(topic: str) -> None:
        frame = source(spark, running, subscribe=topic, minPartitions="4", includeHeaders="true")
        plan_only(frame)
        started.wait(60)
        found[topic] = collect(frame)

    jobs = [threading.Thread(target=job, args=(topic,)) for topic in ("left", "right")]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join()
    assert found == {topic: consumed(running.bootstrap, topic, 2) for topic in ("left", "right")}


def test_offsets_outside_the_log_fail_a_job_unless_loss_is_allowed(spark, running):
    produce(running.bootstrap, "brief", numbered(0, 10))
    beyond = {"subscribe": "brief", "startingOffsets": '{"brief":{"0":4}}', "endingOffsets": '{"brief":{"0":99}}'}
    with pytest.raises(Exception, match=r"set failOnDataLoss to false.*topic=brief partition=0 offset=99 .*end=10"):
        source(spark, running, **beyond).count()
    rows = collect(source(spark, running, **beyond, failOnDataLoss="false"))
    assert [row.offset for row in rows] == list(range(4, 10))


def test_what_is_wrong_is_named(spark, running, tmp_path):
    produce(running.bootstrap, "present", numbered(0, 1))
    with pytest.raises(Exception, match="nearest=startingOffsets"):
        source(spark, running, subscribe="present", startingOffset="earliest").count()
    with pytest.raises(Exception, match=r"no such topic topic=nowhere known=.*present"):
        source(spark, running, subscribe="nowhere").count()
    (tmp_path / "_SUCCESS").write_text("")
    with pytest.raises(Exception, match="not a data directory of Dray"):
        spark.read.format("dray").option("subscribe", "present").load(str(tmp_path)).count()


def test_an_executor_does_not_believe_a_changed_footer(spark, running):
    """SP11, PQ4: the job fails and names file and stream, though the file can still be read."""
    produce(running.bootstrap, "footed", numbered(0, 100))
    turn_into_files(running.directory, "footed", 100)
    ((piece,),) = make_plan(running.directory, subscribe="footed").tasks
    file = running.directory / "objects" / piece.path(0)
    with changed_footer(file):
        told = rf"{file.name} topic=footed partition=0 stream={piece.stream} offset=0 .*checksum"
        with pytest.raises(Exception, match=told):
            collect(source(spark, running, subscribe="footed"))
    assert collect(source(spark, running, subscribe="footed")) == consumed(running.bootstrap, "footed", 1)
