"""A name with two meanings is found, unless a reason says why nobody mixes them up."""

from pathlib import Path

from tools.check_doubles import check


def findings(root: Path, allowed: dict[str, dict[str, str]] | None = None, **modules: str) -> list[str]:
    """Modules by name, `__` for a directory."""
    for name, content in modules.items():
        path = root / "src" / "dray" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return check(root, allowed or {})


def test_a_class_and_a_type_of_one_name_are_found(tmp_path):
    assert findings(
        tmp_path, a="class Line:\n    pass\n", b="from typing import TypeAlias\n\nLine: TypeAlias = int\n"
    ) == ["src/dray/b.py:3: Line is also the name of src/dray/a.py:1"]


def test_constants_functions_and_private_classes_are_no_names_of_things(tmp_path):
    assert findings(tmp_path, a="LIMIT = 1\n\n\nclass _A: ...\n", b="LIMIT = 2\n\n\nclass _A: ...\n") == []


def test_the_simulator_has_its_own_words(tmp_path):
    assert (
        findings(tmp_path, a="class Broker: ...\n", sim__a="class Broker: ...\n", testing__a="class Broker: ...\n")
        == []
    )
    assert len(findings(tmp_path, sim__b="class Broker: ...\n")) == 1


def test_an_exception_is_for_the_modules_that_it_names_and_for_no_other(tmp_path):
    allowed = {"Line": {"a": "of text", "b.c": "of time"}}
    assert findings(tmp_path, allowed, a="class Line: ...\n", b__c="class Line: ...\n") == []
    assert findings(tmp_path, allowed, b__d="class Line: ...\n") == [
        "src/dray/b/d.py:1: Line is also the name of src/dray/a.py:1, src/dray/b/c.py:1"
    ]


def test_an_exception_needs_to_be_needed(tmp_path):
    twice = {"a": "class Line: ...\n", "b": "class Line: ...\n"}
    allowed = {"Line": {"a": "why", "b": "why"}}
    assert findings(tmp_path, allowed, **twice) == []
    assert findings(tmp_path, {"Line": {**allowed["Line"], "c": "gone"}, "Row": {"a": "why"}}) == [
        "tools/check_doubles.py: c has no doubled Line now: allow it no more",
        "tools/check_doubles.py: a has no doubled Row now: allow it no more",
    ]
