"""The check of names: run on small packages of its own, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.check_names import Name, doubles, judge

ROOT = Path(__file__).parents[2]
SETTINGS = '''
from dray.config import Section

class Inner(Section):
    """Nested."""
    depth: int = 1
    """How deep."""

class PartSettings(Section):
    """Of a part."""
    size: int = 1
    """How large."""
    inner: Inner = Inner()
    """Within."""
'''
WIRING = """
from parcel.part.settings import PartSettings
SECTIONS = {'part': PartSettings}
"""
TELEMETRY = """
from dray.telemetry import SECONDS, counter, event, gauge, histogram
A = counter("dray_part_requests_total", "Requests.", ["op"])
B = histogram("dray_part_request_seconds", "Time of a request.", SECONDS)
C = gauge("dray_part_queue", "Waiting.")
D = event("part.opened", "it was opened")
"""


@pytest.fixture
def run(tmp_path):
    def check_names(files: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
        defaults = {
            "parcel/__init__.py": "",
            "parcel/cli/__init__.py": "",
            "parcel/cli/settings.py": WIRING,
            "parcel/part/__init__.py": "",
            "parcel/part/settings.py": SETTINGS,
            "parcel/part/telemetry.py": TELEMETRY,
        }
        for name, content in (defaults | files).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "tools.check_names", "--package", "parcel", *options],
            cwd=ROOT, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    return check_names


@pytest.mark.slow
def test_every_name_is_listed_with_its_package(run):
    listed = run({}, "--list")
    assert listed.returncode == 0, listed.stderr
    rows = [line.split("\t") for line in listed.stdout.splitlines()]
    assert [row[:3] for row in rows] == [
        ["counter", "dray_part_requests_total", "parcel.part"],
        ["event", "part.opened", "parcel.part"],
        ["gauge", "dray_part_queue", "parcel.part"],
        ["histogram", "dray_part_request_seconds", "parcel.part"],
        ["setting", "part.inner.depth", "parcel.part"],
        ["setting", "part.size", "parcel.part"],
    ]
    assert all(row[3] for row in rows)


@pytest.mark.slow
def test_doubles_lost_sections_and_names_in_the_wrong_place_are_refused(run):
    files = {
        "parcel/other/__init__.py": "",
        "parcel/other/telemetry.py": TELEMETRY,
        "parcel/other/settings.py": SETTINGS,
        "parcel/other/service.py": "from dray.telemetry import counter\n",
    }
    refused = run(files)
    assert refused.returncode == 1
    assert "parcel.part.telemetry: metric declared twice: dray_part_requests_total" in refused.stderr
    assert "parcel.other.settings: PartSettings is in no configuration" in refused.stderr
    assert "other/service.py: declare the name in the telemetry.py of the package" in refused.stderr


def test_a_setting_without_a_description_is_refused(run):
    refused = run({"parcel/part/settings.py": SETTINGS.replace('    """How large."""\n', "")})
    assert refused.returncode == 1
    assert "parcel.part: setting part.size: no description" in refused.stderr


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("counter", "dray_requests", "ends in _total"),
        ("gauge", "dray_requests_total", "ends in _total"),
        ("histogram", "dray_request_duration", "ends in _seconds or _bytes"),
        ("histogram", "dray_request_ms", "expected base units"),
        ("gauge", "dray_buffer_mib", "expected base units"),
        ("counter", "dray_read_kb_total", "expected base units"),
        ("gauge", "kafka_lag", "expected dray_"),
        ("gauge", "dray_Lag", "expected dray_ and lowercase"),
        ("event", "opened", "expected package.what_happened"),
        ("event", "wal.opened", "expected the name of its package"),
        ("setting", "log.linger_ms", "carries its unit in the value"),
        ("setting", "log.Url", "expected lowercase"),
    ],
)
def test_a_bad_name_is_refused_with_the_reason(kind, name, says):
    problems = list(judge(Name(kind=kind, name=name, package="dray.log", description="x")))
    assert any(says in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("counter", "dray_fetch_bytes_total"),
        ("histogram", "dray_wal_flush_bytes"),
        ("gauge", "dray_heap_ready"),
        ("event", "log.torn_tail_cut"),
        ("setting", "log.segment_bytes"),
    ],
)
def test_a_good_name_passes_and_needs_a_description(kind, name):
    assert list(judge(Name(kind=kind, name=name, package="dray.log", description="x"))) == []
    assert [*judge(Name(kind=kind, name=name, package="dray.log", description=" "))] == [
        f"dray.log: {kind} {name}: no description"
    ]


def test_two_things_with_one_name_are_refused():
    names = [Name(kind="setting", name="log.url", package=package, description="x") for package in ("a", "b")]
    assert list(doubles(names)) == ["b: setting log.url is taken by a"]


@pytest.mark.slow
def test_the_names_of_this_tree_are_good():
    checked = subprocess.run([sys.executable, "-m", "tools.check_names"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
