"""Other catalogs than the file in the data directory."""

import os
import subprocess
import sys

import pytest

from dray.tables import catalog
from dray.tables.errors import CatalogUnavailable
from dray.tables.table import TableOwner
from tests.tables.faulty_rest import Fault, FaultyRest
from tests.tables.warehouse import NOW_MS, appending, span, warehouse

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


@pytest.mark.slow
def test_a_rest_catalog_that_says_nothing_is_given_up(tmp_path, monkeypatch):
    """R-160: from the first question on, before anybody could have set a limit on the library's own connection."""
    monkeypatch.setattr(catalog, "ANSWER_S", 0.2)
    with FaultyRest("http://127.0.0.1:9") as line:
        line.fault = lambda _method, _path: Fault(lands=False, hangs=True)
        with pytest.raises(CatalogUnavailable, match="timed out"), warehouse(tmp_path, kind=line.address):
            pass
        for status in (500, 503):
            line.fault = lambda _method, _path: Fault(lands=False, status=status)  # noqa: B023 - used at once
            with pytest.raises(CatalogUnavailable), warehouse(tmp_path, kind=line.address):
                pass
    with pytest.raises(CatalogUnavailable, match="does not answer"), warehouse(tmp_path, kind=line.address):
        pass


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
