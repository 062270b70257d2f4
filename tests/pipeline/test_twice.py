"""One frame, one view, one table, scanned more than once: each scan gets its own rows, and all of them.

Spark keeps what a source was told by one scan for all scans of a relation, so a source must be told nothing.
"""

import pytest

from tests.pipeline.parts import broker_process, create, produce, source

pytestmark = pytest.mark.slow  # a session alone takes ten seconds

COUNTS = {0: 40, 1: 60}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("twice") / "data") as started:
        create(started.bootstrap, "orders", 2)
        records = [(b"k", b"v", None, partition) for partition, count in COUNTS.items() for _ in range(count)]
        produce(started.bootstrap, "orders", records)
        yield started


@pytest.fixture(params=["true", "false"], ids=["a session that offers filters", "a session that does not"])
def session(spark, request):
    switch = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(switch)
    spark.conf.set(switch, request.param)
    yield spark
    spark.conf.set(switch, before)


def test_a_frame_counted_filtered_and_counted_again(session, running):
    """SP2."""
    orders = source(session, running, subscribe="orders")
    counts = [orders.count(), orders.where("partition = 1").count(), orders.count()]
    counts += [orders.where("partition = 0 and offset >= 30").count(), orders.where("offset < 0").count()]
    assert [*counts, orders.count()] == [100, 60, 100, 10, 0, 100]


def test_a_union_of_two_filtered_scans_of_one_frame(session, running):
    """SP2."""
    orders = source(session, running, subscribe="orders")
    both = orders.where("partition = 0").unionAll(orders.where("partition = 1"))
    assert both.count() == 100
    assert both.select("partition", "offset").distinct().count() == 100


def test_a_self_join_whose_sides_have_filters_of_their_own(session, running):
    """SP2."""
    orders = source(session, running, subscribe="orders")
    left, right = orders.where("partition = 0").alias("l"), orders.where("partition = 1").alias("r")
    assert left.join(right, "offset").count() == 40
    assert left.join(right, "offset", "right").count() == 60


def test_three_subqueries_of_one_view_in_the_documented_form(session, running):
    """SP2."""
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING dray OPTIONS (path '{running.directory}', subscribe 'orders')"
    )
    (row,) = session.sql(
        "SELECT (SELECT count(*) FROM orders WHERE partition = 0) AS a,"
        " (SELECT count(*) FROM orders WHERE partition = 1) AS b, (SELECT count(*) FROM orders) AS c"
    ).collect()
    assert (row.a, row.b, row.c) == (40, 60, 100)
    counts = [session.sql(f"SELECT count(*) FROM orders {tail}").first()[0] for tail in ("", "WHERE partition = 0", "")]
    assert counts == [100, 40, 100]
