"""One frame, one view, one table, scanned more than once: each scan gets its own rows, and all of them.

Spark keeps what a source was told by one scan for all scans of a relation, so a source must be told nothing.
"""

import pytest

from tests.pipeline.parts import broker_process, create, delete, numbered, plan_only, produce, source

pytestmark = pytest.mark.slow  # a session alone takes ten seconds

COUNTS = {0: 40, 1: 60}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("twice") / "data") as started:
        create(started.bootstrap, "orders", 2)
        records = [(b"k", b"v", None, partition) for partition, count in COUNTS.items() for _ in range(count)]
        produce(started.bootstrap, "orders", records)
        yield started


@pytest.fixture
def session(spark):
    """One that offers filters; by default, as in all other tests, Spark does not."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.set(PUSHDOWN, before)


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


def test_a_table_is_a_new_cut_for_each_query_and_one_for_all_scans_of_a_query(session, running, request):
    """SP2: Spark keeps no option of a table but its schema, so the schema carries them."""
    create(running.bootstrap, "tabled", 2)
    produce(running.bootstrap, "tabled", numbered(0, 10, 2))
    session.sql(f"CREATE TABLE tabled USING dray OPTIONS (path '{running.directory}', subscribe 'tabled')")
    request.addfinalizer(lambda: session.sql("DROP TABLE IF EXISTS tabled PURGE"))
    tails = ("", "WHERE partition = 0", "")
    assert [session.sql(f"SELECT count(*) FROM tabled {tail}").first()[0] for tail in tails] == [10, 5, 10]
    produce(running.bootstrap, "tabled", numbered(10, 4, 2))
    (row,) = session.sql(
        "SELECT (SELECT count(*) FROM tabled WHERE partition = 0) AS a,"
        " (SELECT count(*) FROM tabled WHERE partition = 1) AS b, (SELECT count(*) FROM tabled) AS c"
    ).collect()
    assert (row.a, row.b, row.c) == (7, 7, 14)
    assert session.table("tabled").count() == 14
    session.sql("DROP TABLE tabled PURGE")
    assert source(session, running, subscribe="tabled").count() == 14  # a table is only a name for what is there


def test_both_sides_of_a_self_join_see_one_cut(spark, running):
    create(running.bootstrap, "joined", 1)
    produce(running.bootstrap, "joined", numbered(0, 10))
    frame = source(spark, running, subscribe="joined")
    plan_only(frame.where("offset < 5"))
    produce(running.bootstrap, "joined", numbered(10, 10))
    assert frame.alias("l").join(frame.where("offset >= 2").alias("r"), "offset", "left").count() == 10
    assert source(spark, running, subscribe="joined").count() == 20


def test_a_topic_that_was_made_again_is_another_one(spark, running):
    """A frame that was read keeps what it has read; whoever loads again, a view too, reads the new topic."""
    create(running.bootstrap, "again", 2)
    produce(running.bootstrap, "again", numbered(0, 10, 2))
    look = f"CREATE OR REPLACE TEMPORARY VIEW again USING dray OPTIONS (path '{running.directory}', subscribe 'again')"
    frame = source(spark, running, subscribe="again")
    spark.sql(look)
    assert frame.count() == spark.sql("SELECT * FROM again").count() == 10
    delete(running.bootstrap, "again")
    with pytest.raises(Exception, match="no such topic topic=again"):
        source(spark, running, subscribe="again").count()
    create(running.bootstrap, "again", 1)
    produce(running.bootstrap, "again", [(b"new", b"new", None, 0)] * 3)
    assert [frame.count(), frame.where("partition = 1").count()] == [10, 5]
    assert spark.sql("SELECT * FROM again").count() == 10
    spark.sql(look)
    assert [row.key for row in spark.sql("SELECT key FROM again").collect()] == [b"new"] * 3
    assert source(spark, running, subscribe="again").where("partition = 1").count() == 0
