"""docs/tables.md: its snippet reads a table, and the commands and settings that it names are there."""

import re
from pathlib import Path

import pytest

from dray.cli.main import run
from dray.cli.settings import SECTIONS
from dray.tables.table import TableOwner
from tests.tables.warehouse import NOW_MS, appending, warehouse

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
ORDERS = TableOwner(name="orders", topic_id=bytes(range(16)), cluster_id="c1")


@pytest.mark.slow
def test_the_snippet_finds_the_table_and_its_rows(tmp_path, monkeypatch):
    """R-136"""
    *before, last = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1].rstrip().splitlines()
    monkeypatch.chdir(tmp_path)
    with warehouse(tmp_path / "dray-data") as house:
        house.tables.commit(ORDERS, appending(house.file(0, 0, 1_010)), NOW_MS)
        names: dict[str, object] = {}
        exec("\n".join([*before, f"rows = {last}"]), names)
    assert sorted(names["rows"]["offset"].to_pylist()) == list(range(1_000, 1_010))


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`drayd (admin table \w+)", PAGE)) | {"compactor"}))
def test_the_commands_are_there(command, capsys):
    assert run([*command.split(), "--help"]) == 0
    assert f"Usage: drayd {command}" in capsys.readouterr().out


def test_the_settings_are_there():
    named = re.findall(r"`((?:table|compaction)\.\w+)[`=]", PAGE)
    assert named
    for setting in named:
        section, _, field = setting.partition(".")
        assert field in SECTIONS[section].model_fields, setting


def test_the_metrics_are_there():
    known = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = re.findall(r"`(dray_\w+)`", PAGE)
    assert named
    assert all(f"`{name}`" in known for name in named)
