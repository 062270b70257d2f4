"""Other catalogs than the file in the data directory."""

import os
import subprocess
import sys

import pytest

from dray.tables import catalog
from dray.tables.errors import CatalogUnavailable
from tests.tables.faulty_rest import Fault, FaultyRest
from tests.tables.warehouse import warehouse

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


def test_a_rest_catalog_that_says_nothing_is_given_up(tmp_path, monkeypatch):
    """R-160: from the first question on, before anybody could have set a limit on the library's own connection."""
    monkeypatch.setattr(catalog, "ANSWER_S", 0.2)
    with FaultyRest("http://127.0.0.1:9") as line:
        line.fault = lambda _method, _path: Fault(lands=False, hangs=True)
        with pytest.raises(CatalogUnavailable, match="timed out"), warehouse(tmp_path, kind=line.address):
            pass
    with pytest.raises(CatalogUnavailable, match="does not answer"), warehouse(tmp_path, kind=line.address):
        pass
