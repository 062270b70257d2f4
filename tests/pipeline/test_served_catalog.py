"""Tables found through the HTTP port: the libraries of others read each row once there, and can change nothing."""

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import duckdb
import polars
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.schema import Schema

from dray.tables.places import NAME, sqlite_file
from dray.tables.pointers import CatalogBusy, SqliteNames
from tests.pipeline.compacting import compactor, rows_of
from tests.pipeline.parts import broker_process, consumed, create, produce

pytestmark = pytest.mark.slow  # PyIceberg, Polars and DuckDB are loaded

HEADERS = [("a", b"1"), ("a", None)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("served") / "data") as running:
        create(running.bootstrap, "orders.eu", partitions=2)
        for round_ in range(3):  # a file for each partition and round
            first = 100 * round_
            records = [(b"k%d" % n, b"v%d" % n, HEADERS if n % 2 else None, n % 2) for n in range(first, first + 100)]
            produce(running.bootstrap, "orders.eu", records)
            asyncio.run(compact(running.directory, "orders.eu"))
        yield running


async def compact(directory, topic):
    async with compactor(directory) as running:
        await running.cycle(topic)


@pytest.fixture(scope="module")
def catalog(broker):
    return load_catalog("theirs", type="rest", uri=f"{broker.http}/iceberg")


def ask(broker, path, method="GET", body=None, headers=None):
    request = urllib.request.Request(f"{broker.http}{path}", method=method, data=body, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def test_pyiceberg_finds_the_tables_and_reads_what_consumers_read(broker, catalog):
    """R-136"""
    assert catalog.list_namespaces() == [("topics",)]
    assert catalog.list_tables("topics") == [("topics", "orders.eu")]
    assert catalog.table_exists(("topics", "orders.eu"))
    assert catalog.namespace_exists("topics")
    found = catalog.load_table(("topics", "orders.eu")).scan().to_arrow()
    assert sorted(rows_of("orders.eu", found)) == consumed(broker.bootstrap, "orders.eu", 2)


def test_the_snippet_of_the_page_reads_a_table(broker):
    """R-136: docs/tables.md."""
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
    (snippet,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "/iceberg" in code]
    names: dict = {}
    exec(snippet.replace("http://127.0.0.1:7433", broker.http).replace('"orders"', '"orders.eu"'), names)
    assert names["orders"].num_rows == 150


def test_what_was_committed_since_is_found_by_the_next_look(broker, catalog):
    create(broker.bootstrap, "late")
    produce(broker.bootstrap, "late", [(b"k", b"1", None, 0)])
    assert not catalog.table_exists(("topics", "late"))
    for count in (1, 2):
        asyncio.run(compact(broker.directory, "late"))
        assert catalog.load_table(("topics", "late")).scan().to_arrow().num_rows == count
        produce(broker.bootstrap, "late", [(b"k", b"1", None, 0)])


def test_files_are_pruned_by_what_the_table_tells_of_them(catalog):
    """R-137: each partition has three files of fifty offsets."""
    table = catalog.load_table(("topics", "orders.eu"))
    assert len(list(table.scan().plan_files())) == 6
    assert len(list(table.scan(row_filter="partition = 1").plan_files())) == 3
    assert len(list(table.scan(row_filter="partition = 1 and offset >= 60 and offset < 70").plan_files())) == 1
    assert len(list(table.scan(row_filter="offset > 149").plan_files())) == 0


def test_polars_reads_the_same_rows(broker, catalog):
    lazy = polars.scan_iceberg(catalog.load_table(("topics", "orders.eu")))
    found = lazy.select("partition", "offset", "key", "value").collect()
    expected = [(row.partition, row.offset, row.key, row.value) for row in consumed(broker.bootstrap, "orders.eu", 2)]
    assert sorted(found.rows()) == expected
    some = lazy.filter((polars.col("partition") == 1) & (polars.col("offset") >= 100)).select(polars.len()).collect()
    assert some.item() == 50


def test_duckdb_reads_the_same_files(broker, catalog):
    """Its Iceberg extension is a download; the files that the catalog leads to are plain Parquet."""
    files = [task.file.file_path for task in catalog.load_table(("topics", "orders.eu")).scan().plan_files()]
    found = duckdb.sql(f'SELECT "partition", "offset", key, value FROM read_parquet({files})').fetchall()
    expected = [(row.partition, row.offset, row.key, row.value) for row in consumed(broker.bootstrap, "orders.eu", 2)]
    assert sorted(found) == expected


def test_nothing_can_be_changed_through_it(broker, catalog):
    """HT3"""
    before = ask(broker, "/iceberg/v1/namespaces/topics/tables/orders.eu")[1]
    table = catalog.load_table(("topics", "orders.eu"))
    tries = [
        lambda: catalog.drop_table(("topics", "orders.eu")),
        lambda: catalog.create_namespace("mine"),
        lambda: catalog.create_table(("topics", "mine"), Schema()),
        lambda: catalog.rename_table(("topics", "orders.eu"), ("topics", "mine")),
        lambda: table.delete("partition = 0"),
        lambda: table.update_schema().add_column("x", table.schema().fields[0].field_type).commit(),
    ]
    for attempt in tries:
        with pytest.raises((RESTError, NotImplementedError)):
            attempt()
    paths = (
        "namespaces",
        "namespaces/topics",
        "namespaces/topics/tables/orders.eu",
        "tables/rename",
        "transactions/commit",
    )
    for path in paths:
        for method in ("POST", "DELETE", "PUT"):
            status, body, _ = ask(broker, f"/iceberg/v1/{path}", method, b"{}")
            assert (status, json.loads(body)["error"]["type"]) == (406, "UnsupportedOperationException")
    assert ask(broker, "/iceberg/v1/namespaces/topics/tables/orders.eu")[1] == before


def test_what_is_not_there_is_told_in_the_words_of_iceberg(broker, catalog):
    with pytest.raises(NoSuchTableError):
        catalog.load_table(("topics", "nothing"))
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("elsewhere")
    assert not catalog.namespace_exists("elsewhere")
    for path, kind in (
        ("namespaces/topics/tables/nothing", "NoSuchTableException"),
        ("namespaces/elsewhere", "NoSuchNamespaceException"),
        ("namespaces/topics/views", "NotFoundException"),
        ("oauth/tokens", "NotFoundException"),
    ):
        status, body, _ = ask(broker, f"/iceberg/v1/{path}")
        assert (status, json.loads(body)["error"]["type"], json.loads(body)["error"]["code"]) == (404, kind, 404)
    assert ask(broker, "/iceberg/v1/namespaces/topics/tables/nothing", "HEAD")[:2] == (404, b"")
    assert ask(broker, "/iceberg/v1/namespaces/topics/tables?pageToken=&pageSize=x")[0] == 400
    assert json.loads(ask(broker, "/iceberg/v1/namespaces?parent=topics")[1]) == {"namespaces": []}


def test_names_come_by_pages_to_who_asks_for_pages(broker, catalog):
    at, token, names = "/iceberg/v1/namespaces/topics/tables", "", []
    while token is not None:
        answer = json.loads(ask(broker, f"{at}?pageToken={token}&pageSize=1")[1])
        assert len(answer["identifiers"]) <= 1
        names += [one["name"] for one in answer["identifiers"]]
        token = answer["next-page-token"]
    assert names == [name for _, name in catalog.list_tables("topics")]


def test_metadata_that_is_known_is_not_sent_again(broker):
    path = "/iceberg/v1/namespaces/topics/tables/orders.eu"
    status, _, headers = ask(broker, path)
    assert status == 200
    assert ask(broker, path, headers={"If-None-Match": headers["etag"]})[:2] == (304, b"")


def test_who_may_not_enter_the_data_directory_reads_no_table(broker):
    """The catalog and every file lie under a directory of this user alone."""
    assert broker.directory.stat().st_mode & 0o077 == 0
    assert sqlite_file(broker.directory).parent.stat().st_mode & 0o077 == 0


def test_a_catalog_of_somebody_else_is_not_served(tmp_path):
    with broker_process(tmp_path / "data", "table.catalog=http://127.0.0.1:1") as running:
        for path in ("config", "namespaces", "namespaces/topics/tables/x"):
            status, body, _ = ask(running, f"/iceberg/v1/{path}")
            assert status == 406
            assert "table.catalog" in json.loads(body)["error"]["message"]


def test_a_broker_without_a_table_has_an_empty_namespace(tmp_path):
    for settings in ((), ("log.url=memory:", "objects.url=memory:")):
        with broker_process(tmp_path / "data", *settings) as running:
            assert json.loads(ask(running, "/iceberg/v1/namespaces")[1]) == {"namespaces": [["topics"]]}
            assert json.loads(ask(running, "/iceberg/v1/namespaces/topics/tables")[1]) == {"identifiers": []}
            assert ask(running, "/iceberg/v1/namespaces/topics/tables/x")[0] == 404


KILLED_WRITER = """
import os, sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("PRAGMA cache_size = 1")
file.execute("BEGIN")
file.execute("UPDATE iceberg_tables SET metadata_location = 'torn'")
file.execute("CREATE TABLE filler (x)")
file.executemany("INSERT INTO filler VALUES (?)", [("x" * 4000,)] * 200)
os._exit(1)
"""


def test_what_a_killed_writer_left_half_done_is_not_told(tmp_path):
    """TC1: its pages are in the file, and a journal lies beside it."""
    file = tmp_path / "catalog.db"
    made = sqlite3.connect(file)
    made.execute("CREATE TABLE iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)")
    made.execute("INSERT INTO iceberg_tables VALUES (?, 'topics', 'orders', 'good')", (NAME,))
    made.commit()
    made.close()
    subprocess.run([sys.executable, "-c", KILLED_WRITER, str(file)], check=False, timeout=60)
    assert os.path.getsize(f"{file}-journal") > 0
    assert SqliteNames(file).location("topics", "orders") == "good"


def test_a_file_that_is_no_catalog_is_told_as_one_that_cannot_be_read(tmp_path):
    file = tmp_path / "catalog.db"
    assert SqliteNames(file).namespaces() == []
    file.write_bytes(b"nothing of SQLite's" * 100)
    with pytest.raises(CatalogBusy):
        SqliteNames(file).namespaces()
