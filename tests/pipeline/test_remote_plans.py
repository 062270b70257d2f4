"""Plans that a broker makes for drivers elsewhere, and `dray.read`: files and WAL objects in one cut."""

import asyncio
import json
import random
import urllib.error
import urllib.request
from contextlib import suppress

import duckdb
import polars
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import dray
from dray.access.errors import Unauthenticated
from dray.cli.main import run
from dray.errors import Unavailable
from dray.objects.paths import ObjectKind
from dray.pipeline import tabular
from dray.pipeline.errors import BadOption, DataLoss, NoSuchTopic
from dray.pipeline.options import pack_options, parse_options, unpack_options
from dray.pipeline.packed import PlanBytes, pack_plan, unpack_plan
from dray.pipeline.remote import end_plan, plan_for
from tests.pipeline.compacting import compactor
from tests.pipeline.parts import broker_process, consumed, create, holds_of, make_plan, produce, read, row_of

pytestmark = pytest.mark.slow  # a broker, and a process for each plan

HEADERS = [("a", b"1"), ("a", None)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """`orders` has files, and WAL objects behind them."""
    with broker_process(tmp_path_factory.mktemp("plans") / "data") as running:
        create(running.bootstrap, "orders", partitions=2)

        async def compact() -> None:
            async with compactor(running.directory) as found:
                await found.cycle("orders")

        records = [(b"k%d" % n, b"v%d" % n, HEADERS if n % 2 else None, n % 2) for n in range(300)]
        produce(running.bootstrap, "orders", records[:200])
        asyncio.run(compact())
        produce(running.bootstrap, "orders", records[200:])
        yield running


def options(**given):
    return parse_options({name: str(value) for name, value in given.items()})


def ask(broker, method, path, body=b""):
    request = urllib.request.Request(f"{broker.http}{path}", method=method, data=body)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def test_a_broker_plans_what_a_driver_beside_it_plans(broker):
    """SP1, SP5: both kinds of objects, and the hold is there."""
    asked = options(url=broker.http, subscribe="orders", includeHeaders="true", minPartitions=3)
    plan = plan_for(asked)
    assert {piece.kind for pieces in plan.tasks for piece in pieces} == {ObjectKind.PARQUET, ObjectKind.WAL}
    assert len(plan.tasks) >= 3
    assert plan.pin in holds_of(broker.directory)
    assert read(plan) == read(make_plan(broker.directory, subscribe="orders", includeHeaders="true"))
    assert read(plan) == consumed(broker.bootstrap, "orders", 2)


def test_what_is_wrong_is_told_in_the_words_of_the_planner(broker):
    with pytest.raises(NoSuchTopic, match=r"topic=nowhere.*orders"):
        plan_for(options(url=broker.http, subscribe="nowhere"))
    with pytest.raises(DataLoss, match="offset=999"):
        plan_for(options(url=broker.http, assign='{"orders":[0]}', startingOffsets='{"orders":{"0":999}}'))
    with pytest.raises(BadOption, match="give one of path"):
        options(url=broker.http, path="dray-data", subscribe="orders")
    with pytest.raises(BadOption, match="HTTP port of a broker"):
        options(url="127.0.0.1:7433", subscribe="orders")
    with pytest.raises(Unavailable, match="is it there"):
        plan_for(options(url="http://127.0.0.1:1", subscribe="orders"))
    with pytest.raises(Unavailable, match="no broker that plans"):
        plan_for(options(url=f"{broker.http}/elsewhere", subscribe="orders"))


def test_bad_requests_are_refused_and_start_nothing(broker):
    """HT4"""
    for body, told in (
        (b"no json", "not what is asked for"),
        (b'{"options": {}, "more": 1}', "not what is asked for"),
        (b'{"options": {"subscribe": 1}}', "not what is asked for"),
        (b'{"options": {"subscribe": "orders", "path": "/etc"}}', "knows where its records are"),
        (b'{"options": {"subscribe": "orders", "Objects": "/etc"}}', "knows where its records are"),
        (b'{"options": {"suscribe": "orders"}}', "no such option"),
        (b'{"options": {"x": "' + b"x" * (2 << 20) + b'"}}', "too large"),
    ):
        status, answer, _ = ask(broker, "POST", "/v1/plans", body)
        assert status == 400, answer
        assert told in json.loads(answer)["error"]["message"]


def test_who_shares_its_hold_with_nobody_lets_it_go(broker):
    """X10"""
    shared = plan_for(options(url=broker.http, subscribe="orders"))
    own = plan_for(options(url=broker.http, subscribe="orders"), shared=False)
    assert {shared.pin, own.pin} <= holds_of(broker.directory).keys()
    assert ask(broker, "DELETE", f"/v1/plans/{shared.pin}")[0] == 409
    assert ask(broker, "DELETE", f"/v1/plans/{own.pin}")[0] == 204
    assert ask(broker, "DELETE", f"/v1/plans/{own.pin}")[0] == 404
    assert own.pin not in holds_of(broker.directory)
    end_plan(options(url=broker.http, subscribe="orders"), own)  # gone already: no harm


def test_a_plan_survives_its_bytes_and_damaged_bytes_are_no_plan(broker):
    """SP10"""
    plan = make_plan(broker.directory, subscribe="orders", minPartitions=4)
    packed = pack_plan(plan)
    again = unpack_plan(packed)
    assert (again, pack_plan(again)) == (plan, packed)
    for size in range(0, len(packed), 7):
        with pytest.raises(PlanBytes):
            unpack_plan(packed[:size])
    dice = random.Random(11)
    for _ in range(300):
        torn = bytearray(packed)
        torn[dice.randrange(len(torn))] ^= 1 << dice.randrange(8)
        with suppress(PlanBytes):
            unpack_plan(bytes(torn))  # a number may be another: the object's own checksum finds that


def test_a_broker_in_memory_plans_nothing_for_others(tmp_path):
    with broker_process(tmp_path / "data", "log.url=memory:", "objects.url=memory:") as running:
        status, answer, _ = ask(running, "POST", "/v1/plans", b'{"options": {"subscribe": "x"}}')
        assert (status, "memory" in json.loads(answer)["error"]["message"]) == (400, True)


def rows_of_table(table):
    stamps = table.column("timestamp").cast(pa.int64()).to_pylist()
    return sorted(row_of(found, stamp // 1000) for found, stamp in zip(table.to_pylist(), stamps, strict=True))


@pytest.mark.parametrize("by", ["directory", "url"])
def test_dray_read_gives_what_consumers_read_and_leaves_nothing_behind(broker, by):
    """SP1: one cut, each record once."""
    before = holds_of(broker.directory)
    source = broker.directory if by == "directory" else broker.http
    table = dray.read("orders", source, options={"includeHeaders": True})
    assert rows_of_table(table) == consumed(broker.bootstrap, "orders", 2)
    assert holds_of(broker.directory) == before


def test_dray_read_gives_the_columns_and_the_part_that_is_asked_for(broker):
    table = dray.read(["orders"], broker.directory, columns=["offset", "headers"], options={
        "startingOffsets": '{"orders":{"0":90,"1":-2}}', "endingOffsets": '{"orders":{"0":110,"1":0}}',
    })  # fmt: skip
    assert table.column_names == ["offset", "headers"]
    assert table.column("offset").to_pylist() == list(range(90, 110))
    empty = dray.read(
        "orders",
        broker.directory,
        options={"startingTimestamp": 1 << 50, "startingOffsetsByTimestampStrategy": "latest"},
    )
    assert (empty.num_rows, empty.column_names) == (0, list(tabular.PLAIN_SCHEMA.names))
    for wrong in ([], ["nothing"], ["offset", "offset"], "offset"):
        with pytest.raises(BadOption):
            dray.read("orders", broker.directory, columns=wrong)
    with pytest.raises(AttributeError, match="nothing"):
        _ = dray.nothing


def test_other_tools_take_it_from_there(broker):
    """Within a loop as well, as in a notebook."""

    async def notebook() -> pa.Table:
        return dray.read("orders", broker.directory)

    orders = asyncio.run(notebook())
    assert len(orders.to_pandas()) == 300
    assert polars.from_arrow(orders).filter(polars.col("partition") == 0).height == 150
    assert duckdb.sql('SELECT count(DISTINCT "offset") FROM orders').fetchall() == [(150,)]


def test_a_table_of_spark_carries_the_address():
    assert unpack_options(pack_options({"url": "http://b:1", "subscribe": "o"})) == {
        "url": "http://b:1",
        "subscribe": "o",
    }
    assert unpack_options(pack_options({"path": "http://b:1", "subscribe": "o"}))["url"] == "http://b:1"


def test_spark_reads_by_the_address_of_a_broker(spark, broker):
    """SP2: once with the option and once as a path; one frame scanned twice."""
    expected = consumed(broker.bootstrap, "orders", 2)
    frame = spark.read.format("dray").option("url", broker.http).option("subscribe", "orders").load()
    found = sorted((row.partition, row.offset, bytes(row.value)) for row in frame.collect())
    assert found == [(row.partition, row.offset, row.value) for row in expected]
    assert (frame.where("partition = 1").count(), frame.count()) == (150, 300)
    assert spark.read.format("dray").option("subscribe", "orders").load(broker.http).count() == 300


def test_who_needs_a_key_shows_it_to_the_catalog_and_for_plans(tmp_path, monkeypatch, capsys):
    """HG1"""
    with broker_process(tmp_path / "data", "access.required=on") as running:
        produce(running.bootstrap, "orders", [(b"k", b"v", None, 0)])
        for method, path in (("GET", "/iceberg/v1/config"), ("DELETE", "/iceberg/v1/namespaces/topics/tables/orders")):
            assert ask(running, method, path)[0] == 401
        with pytest.raises(Unauthenticated):
            dray.read("orders", running.http)
        assert ask(running, "DELETE", "/v1/plans/some")[0] == 401
        assert run(["admin", "key", "create", str(running.directory), "--role", "viewer", "--format", "json"]) == 0
        key = json.loads(capsys.readouterr().out)["key"]
        monkeypatch.setenv("DRAY_API_KEY", key)
        assert dray.read("orders", running.http).num_rows == 1
        catalog = load_catalog("theirs", type="rest", uri=f"{running.http}/iceberg", token=key)
        assert catalog.list_namespaces() == [("topics",)]
