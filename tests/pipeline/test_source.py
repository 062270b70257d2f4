"""`spark.read.format("dray")` in a real session."""

import pytest

from dray.pipeline.session import build_session
from tests.pipeline.parts import broker_process, consumed, create, produce, row_of

pytestmark = pytest.mark.slow  # a session alone takes ten seconds


@pytest.fixture(scope="module")
def spark():
    session = build_session("tests", master="local[2,4]", config={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("spark") / "data") as started:
        yield started


def collect(frame):
    return sorted(row_of(row.asDict(), int(row["timestamp"].timestamp() * 1000 + 0.5)) for row in frame.collect())


def source(spark, broker, **options):
    return spark.read.format("dray").options(**options).load(str(broker.directory))


def test_rows_equal_a_consumers_and_filters_keep_their_meaning(spark, running):
    """R-143, R-165."""
    create(running.bootstrap, "orders", 3)
    odd = [(None, None, None, 0), (b"", b"", [("a", b"1"), ("a", None)], 1)]
    for codec in ("none", "zstd"):
        records = [(f"k{n}".encode(), b"v" * n, [("n", b"%d" % n)], n % 3) for n in range(300)]
        produce(running.bootstrap, "orders", odd + records, compression_type=codec)
    frame = source(spark, running, subscribe="orders", includeHeaders="true")
    expected = consumed(running.bootstrap, "orders", 3)
    assert collect(frame) == expected
    some = [row for row in expected if row.partition == 1 and 20 <= row.offset < 150]
    assert collect(frame.where("partition = 1 and offset >= 20 and offset < 150")) == some


def test_one_plan_is_one_cut_though_the_broker_is_killed_before_the_read(spark, running):
    """R-165."""
    create(running.bootstrap, "cut", 2)
    produce(running.bootstrap, "cut", [(None, b"before", None, n % 2) for n in range(500)])
    frame = source(spark, running, subscribe="cut", minPartitions="4")
    frame._jdf.queryExecution().executedPlan().execute().getNumPartitions()  # plans, and reads nothing
    produce(running.bootstrap, "cut", [(None, b"after", None, n % 2) for n in range(100)])
    running.kill()
    running.start()
    rows = collect(frame)
    assert [(row.partition, row.offset) for row in rows] == [(p, n) for p in range(2) for n in range(250)]
    assert source(spark, running, subscribe="cut").count() == 600


def test_an_unknown_option_and_an_unknown_topic_are_named(spark, running):
    with pytest.raises(Exception, match="nearest=startingOffsets"):
        source(spark, running, subscribe="orders", startingOffset="earliest").count()
    with pytest.raises(Exception, match="no such topic topic=nowhere"):
        source(spark, running, subscribe="nowhere").count()
