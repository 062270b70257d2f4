"""Other catalogs than the file in the data directory."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dray.tables import catalog
from dray.tables.catalog import open_catalog
from dray.tables.errors import BadCatalog, CatalogUnavailable
from dray.tables.table import TableOwner, TopicTables
from tests.tables.warehouse import NOW_MS, ORDERS, appending, span, warehouse

USE = """
import sys
from pathlib import Path
from tests.tables.warehouse import span, warehouse
with warehouse(Path(sys.argv[1]), kind="pyiceberg") as house:
    house.append(0, 0, 10)
    assert house.rows() == span(0, 0, 10)
print("it is there")
"""


@pytest.mark.slow
def test_what_pyiceberg_itself_is_told_of_the_catalog_counts(tmp_path):
    """R-136: whatever PyIceberg speaks to. It looks at its configuration when it is loaded."""
    file = tmp_path / "theirs.db"
    told = {"PYICEBERG_CATALOG__DRAY__TYPE": "sql", "PYICEBERG_CATALOG__DRAY__URI": f"sqlite:///{file}"}
    ran = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path)], env={**os.environ, **told}, capture_output=True, text=True,
        timeout=200, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "it is there\n"), ran.stderr
    assert file.stat().st_size > 0
    assert not (tmp_path / "tables").exists()


@contextmanager
def hanging_catalog():
    """A REST catalog that tells its configuration, and then answers nothing any more until it is let go."""
    ending = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if not self.path.startswith("/v1/config"):
                ending.wait()
                return
            self.send_response(200)
            self.send_header("content-length", "31")
            self.end_headers()
            self.wfile.write(b'{"defaults":{},"overrides":{}} ')

        do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            ending.set()
            server.shutdown()


def test_a_catalog_that_hangs_is_told_as_one_that_does_not_answer(tmp_path, monkeypatch):
    """R-160: no request waits for ever, and nothing was committed."""
    monkeypatch.setattr(catalog, "ANSWER_S", 0.3)
    with warehouse(tmp_path) as house, hanging_catalog() as address:
        tables = TopicTables(open_catalog(address, tmp_path, house.store), house.store, house.tables._entropy)
        with pytest.raises(CatalogUnavailable, match="does not answer"):
            tables.commit(ORDERS, appending(house.file(0, 0, 10)), NOW_MS)


def test_a_catalog_that_hangs_from_the_beginning_cannot_be_opened(tmp_path, monkeypatch):
    """R-160: the library asks for the configuration without a limit of its own."""
    monkeypatch.setattr(catalog, "ANSWER_S", 0.3)
    with (
        warehouse(tmp_path) as house,
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(BadCatalog, match="cannot be opened"),
    ):
        open_catalog(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path, house.store)


def test_orders_and_orders_in_capitals_are_two_tables_where_the_catalog_makes_capitals_small(tmp_path):
    """TN1, R-163: and a name of 249 signs is one as well."""
    with warehouse(tmp_path) as house:
        house.catalog.properties["type"] = "glue"
        names = ["orders", "Orders", "ORDERS", "x.Y_-" * 49 + "last", "x.Y_-" * 49 + "Last"]
        topics = [TableOwner(name=name, topic_id=bytes([at] * 16), cluster_id="c1") for at, name in enumerate(names)]
        for at, topic in enumerate(topics, 1):
            house.tables.commit(topic, appending(house.file(0, 0, at, mark=str(at))), NOW_MS)
        there = [name for _, name in house.catalog.list_tables("topics")]
        assert len({name.lower() for name in there}) == len(there) == 5
        assert all(name == name.lower() and len(name) <= 255 for name in there)
        assert [len(house.rows(topic)) for topic in topics] == [1, 2, 3, 4, 5]
        assert house.rows(topics[4]) == span(0, 0, 5)
        assert {house.tables.find(topic).properties["dray.topic"] for topic in topics} == set(names)
