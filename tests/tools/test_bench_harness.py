"""The harness itself: what it counts, what it refuses, and that nothing hides."""

import importlib
import json
import math
import sys

import pytest

from bench import __main__ as command
from bench.harness import Absolute, Comparison, Outcome, Report, measure, table


class Scripted:
    """A run that returns what it was told, in order, and remembers the turns."""

    def __init__(self, name: str, values: list[float], turns: list[str]) -> None:
        self.name, self.values, self.turns = name, values, turns

    def __call__(self) -> float:
        self.turns.append(self.name)
        return self.values.pop(0)


def test_subject_and_peer_warm_up_once_and_then_take_turns():
    turns: list[str] = []
    subject, peer = Scripted("A", [999, 1, 2, 3, 4, 100], turns), Scripted("B", [999, 2, 2, 2, 2, 2], turns)
    outcome = measure("m", Comparison("c", subject, peer, mark=1.5, unit="op/s"))
    assert "".join(turns) == "AB" + "AB" * 5
    assert outcome.samples == {"subject": [1, 2, 3, 4, 100], "peer": [2] * 5}
    assert outcome.medians == {"subject": 3, "peer": 2}
    assert (outcome.ratio, outcome.passed) == (1.5, True)


def test_a_ratio_below_the_mark_misses_it():
    outcome = measure("m", Comparison("c", lambda: 1.49, lambda: 1.0, mark=1.5, unit="op/s"))
    assert outcome.passed is False
    assert outcome.failed


def test_an_absolute_mark_is_a_floor_or_by_choice_a_ceiling():
    def passed(value: float, at_most: bool) -> bool | None:
        return measure("m", Absolute("a", lambda: value, mark=10, unit="s", at_most=at_most)).passed

    assert [passed(9, False), passed(10, False), passed(11, False)] == [False, True, True]
    assert [passed(9, True), passed(10, True), passed(11, True)] == [True, True, False]


def test_a_report_has_no_mark_to_miss():
    outcome = measure("m", Report("r", lambda: {"bytes": 36.0}))
    assert outcome.passed is None
    assert not outcome.failed
    assert outcome.medians == {"bytes": 36.0}


def test_a_case_that_raises_or_returns_nonsense_fails_with_the_reason():
    def explode() -> float:
        raise RuntimeError("no peer here")

    raised = measure("m", Comparison("c", lambda: 1.0, explode, mark=1, unit=""))
    assert raised.failed
    assert "no peer here" in (raised.error or "")
    for nonsense in (math.nan, math.inf):
        assert measure("m", Absolute("a", lambda value=nonsense: value, mark=0, unit="")).failed
    for no_rate in (0.0, -1.0):
        assert measure("m", Comparison("c", lambda: 1.0, lambda value=no_rate: value, mark=1, unit="")).failed


def write_module(directory, name: str, body: str) -> None:
    (directory / f"{name}.py").write_text("from bench.harness import *\n\n" + body, encoding="utf-8")


@pytest.mark.slow
def test_a_broken_module_hides_no_other_and_the_command_ends_with_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bench.__path__", [str(tmp_path)])
    write_module(tmp_path, "zz_good", "def cases(): return [Absolute('fine', lambda: 2.0, 1.0, 'x')]")
    write_module(tmp_path, "zz_bad", "def cases(): return nothing_of_that_name")
    write_module(tmp_path, "_support", "raise AssertionError('support modules are not imported')")
    assert command.module_names() == ["zz_bad", "zz_good"]
    assert command.run(["zz_bad", "zz_good"], out=tmp_path / "out") == 1
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [(case["name"], case["passed"]) for case in written["cases"]] == [("cases()", None), ("fine", True)]
    assert written["complete"] is True
    assert {"cpu", "cores", "kernel", "python", "libraries", "load_average", "date"} <= written["machine"].keys()
    assert "nothing_of_that_name" in capsys.readouterr().err
    assert command.run(["zz_good"], out=tmp_path / "out") == 0
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())["cases"]) == 1
    kept = {path.stem: json.loads(path.read_text())["cases"] for path in (tmp_path / "out" / "modules").iterdir()}
    assert {module: len(cases) for module, cases in kept.items()} == {"zz_bad": 1, "zz_good": 1}


def test_some_cases_of_a_module_are_measured_and_take_the_places_they_had(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bench.__path__", [str(tmp_path)])
    body = "def cases(): return [Absolute(name, lambda: {}, 1.0, 'x') for name in ('to write', 'to read', 'to plan')]"
    monkeypatch.setattr(command._machine, "describe", lambda: {"date": "today", "load_average": [0.0]})
    write_module(tmp_path, "zz_long", body.format(2.0))
    out = tmp_path / "out"

    def figures() -> list[tuple[str, float]]:
        cases = json.loads((out / "modules" / "zz_long.json").read_text())["cases"]
        return [(case["name"], case["medians"]["subject"]) for case in cases]

    assert command.run(["zz_long"], out=out, case="plan") == 0
    assert command.run(["zz_long"], out=out, case="write") == 0
    assert figures() == [("to plan", 2.0), ("to write", 2.0)]
    command.run(["zz_long"], out=out)
    monkeypatch.delitem(sys.modules, "bench.zz_long")
    write_module(tmp_path, "zz_long", body.format(3.25))
    importlib.invalidate_caches()
    assert command.run(["zz_long"], out=out, case="read") == 0
    assert figures() == [("to write", 2.0), ("to read", 3.25), ("to plan", 2.0)]
    assert command.run(["zz_long"], out=out, case="nothing") == 1
    assert "no case has 'nothing' in its name" in capsys.readouterr().err
    assert len(figures()) == 3


@pytest.mark.slow
def test_the_readme_gets_the_last_run_of_each_module_between_its_markers(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.__path__", [str(tmp_path)])
    write_module(tmp_path, "zz_table", "def cases(): return [Comparison('a|b', lambda: 3.0, lambda: 2.0, 1.0, 'op/s')]")
    command.run(["zz_table"], out=tmp_path / "out")
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{command.BEGIN}\nold\n{command.END}\nafter\n", encoding="utf-8")
    for _ in range(2):  # writing again changes nothing
        assert command.write_readme(["zz_table"], tmp_path / "out", readme) == 0
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "- zz_table: 20" in text
    assert "| zz_table: a\\|b | 3 op/s | 2 op/s | 1.50 | ≥ 1 | pass |" in text


@pytest.mark.slow
def test_a_module_that_was_not_measured_here_keeps_its_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bench.__path__", [str(tmp_path)])
    write_module(tmp_path, "zz_new", "def cases(): return [Absolute('fine', lambda: 2.0, 1.0, 'x')]")
    command.run(["zz_new"], out=tmp_path / "out")
    readme = tmp_path / "README.md"
    old = "| zz_old: a | 1 |\n| zz_gone: b | 2 |\n\n- zz_old: long ago\n- zz_new: older\n\nLibraries: some 1.2.\n"
    readme.write_text(f"{command.BEGIN}\n{old}{command.END}\n", encoding="utf-8")
    assert command.write_readme(["zz_new", "zz_old"], tmp_path / "out", readme) == 0
    assert command.write_readme(["zz_new", "zz_never", "zz_old"], tmp_path / "out", readme) == 1
    assert "zz_never" in capsys.readouterr().err
    text = readme.read_text()
    assert "| zz_old: a | 1 |" in text
    assert "- zz_old: long ago" in text
    assert "zz_new: older" not in text
    assert "zz_gone" not in text
    assert "some 1.2" in text


def test_a_readme_without_markers_or_a_missing_run_is_an_error(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("no markers", encoding="utf-8")
    assert command.write_readme(["m"], tmp_path, readme) == 1
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "m.json").write_text('{"machine": {}, "cases": []}', encoding="utf-8")
    assert command.write_readme(["m"], tmp_path, readme) == 1
    assert readme.read_text() == "no markers"


def test_an_error_is_shown_in_the_table():
    assert "ERROR boom" in table([Outcome(module="m", name="n", kind="absolute", error="boom")])
