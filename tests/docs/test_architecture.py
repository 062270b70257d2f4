"""What ARCHITECTURE.md says about the folders is what is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_has_every_package_and_no_other():
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_/ ]+)` \|", page, re.MULTILINE)
    told = [name for row in rows for name in row.split()]
    servers = {f"servers/{path.name}" for path in (ROOT / "src/dray/servers").iterdir() if path.is_dir()}
    there = {path.stem for path in (ROOT / "src/dray").iterdir() if path.is_dir() or path.suffix == ".py"}
    expected = {*there, *servers, "pyspark_dray"} - {"__init__", "__pycache__", "servers", "servers/__pycache__"}
    assert sorted(told) == sorted(expected)


def test_every_file_that_the_page_names_exists():
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+\.py)`", page)
    assert named
    assert [name for name in named if not (ROOT / "src/dray" / name).is_file()] == []
