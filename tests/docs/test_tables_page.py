"""docs/tables.md: its snippet reads a table, its commands tell what it says, and what it names is there."""

import asyncio
import re
from pathlib import Path

import pytest

from dray.cli.main import DRAY, DRAYD, run
from dray.cli.settings import SECTIONS
from dray.tables.table import TableOwner
from tests.docs.cli_page import run as run_command
from tests.docs.cli_page import shown
from tests.pipeline.compacting import compactor
from tests.pipeline.parts import broker_process, create, numbered, produce
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


@pytest.mark.slow
def test_the_commands_tell_what_the_page_says(tmp_path):
    """R-164: beside a running broker; what differs each time is masked."""
    with broker_process(tmp_path / "dray-data") as broker:
        create(broker.bootstrap, "orders", partitions=2)
        produce(broker.bootstrap, "orders", numbered(0, 400, 2))
        asyncio.run(compact(tmp_path / "dray-data"))
        produce(broker.bootstrap, "orders", numbered(400, 20, 2))
        for one in shown(PAGE):
            assert masked(run_command(one.command, broker.bootstrap, tmp_path)) == masked(one.output), one.command


async def compact(directory: Path) -> None:
    async with compactor(directory) as running:
        await running.cycle("orders")


def masked(text: str) -> str:
    """Without names, times and sizes, which are others each time."""
    rows = re.sub(
        r"^( *[01][\t ]+0[\t ]+210[\t ]+200[\t ]+10)[\t ]+\d+[\t ]+\d+", r"\1 BYTES SECONDS", text, flags=re.M
    )
    facts = re.sub(r"^(snapshot|bytes|metadata|has all before): +\S.*$", r"\1: IT", rows, flags=re.M)
    return re.sub(r"[\t ]+", " ", facts)


COMMANDS = [(DRAYD, "compactor")] + [
    (program, f"{before}table {command}")
    for program, before in ((DRAY, ""), (DRAYD, "admin "))
    for command in sorted(set(re.findall(r"`dray table (\w+)", PAGE)))
]


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_the_commands_are_there(program, command, capsys):
    assert len(COMMANDS) == 11
    assert run([*command.split(), "--help"], program) == 0
    assert f"Usage: {program.name} {command}" in capsys.readouterr().out


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
