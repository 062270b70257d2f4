"""Comparing log and table with Spark: what somebody did to a table is found, record by record."""

import asyncio

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import load_catalog

from dray.pipeline.compactor.status import status_of, topic_of
from dray.pipeline.compactor.verify import NoTable, files_seen, verify
from dray.tables.catalog import NAME, sqlite_file
from tests.pipeline.compacting import compactor
from tests.pipeline.parts import broker_process, create, produce

pytestmark = pytest.mark.slow  # Spark


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("verify") / "data") as running:
        yield running


def compared(spark, broker, topic):
    spark.conf.set("spark.sql.shuffle.partitions", "2")

    async def look():
        async with compactor(broker.directory) as running:
            found = topic_of(running.replicas, topic)
            status = status_of(running.replicas, running.tables, found, running.cluster_id)
            names = running.tables.file_names(running.topic(topic))
            address = running.tables.store.address
            seen = files_seen([replica.machine for replica in running.replicas.values()], names)
            assert all(file.footer_crc for file in seen if file.name.startswith("compaction/"))
        return verify(spark, str(broker.directory), address, seen, status)

    return asyncio.run(look())


def test_a_missing_a_double_a_surplus_and_a_changed_row_are_named(spark, broker):
    """R-164"""
    headers = [("a", b"1"), ("a", None)]
    create(broker.bootstrap, "orders", partitions=2)
    records = [(None if at % 3 else b"", b"v%d" % at, headers if at % 2 else None, at % 2) for at in range(200)]
    produce(broker.bootstrap, "orders", records)
    with pytest.raises(NoTable):
        compared(spark, broker, "orders")

    async def compact():
        async with compactor(broker.directory) as running:
            await running.cycle("orders")

    asyncio.run(compact())
    produce(broker.bootstrap, "orders", records[:10])  # in the log alone, and behind the table's end
    found = compared(spark, broker, "orders")
    assert (found.equal, found.records, found.rows, found.differences) == (True, 200, 200, [])

    # As anybody could, with PyIceberg.
    table = load_catalog(NAME, type="sql", uri=f"sqlite:///{sqlite_file(broker.directory)}").load_table(
        ("topics", "orders")
    )
    rows = table.scan().to_arrow()
    second = pc.equal(rows["partition"], 1)

    def at(offset):
        return pc.and_(second, pc.equal(rows["offset"], offset))

    changed = rows.filter(at(7))
    changed = changed.set_column(4, "value", pa.chunked_array([[b"other"]], pa.binary()))
    kept = rows.filter(pc.invert(pc.or_(at(5), at(7))))
    table.overwrite(pa.concat_tables([kept, rows.filter(at(6)), changed.cast(rows.schema)]))
    found = compared(spark, broker, "orders")
    assert not found.equal
    assert [(one.partition, one.offset, one.what) for one in found.differences] == [
        (1, 5, "missing"),
        (1, 6, "double"),
        (1, 7, "changed"),
    ]
