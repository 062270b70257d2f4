"""The check of requirements: what is named and not told, told and not named, or told twice is found."""

from pathlib import Path

from tools.check_requirements import check

PAGE = "# Requirements\n\n| id | says |\n| --- | --- |\n| R-001 | One. |\n"


def findings(root: Path, page: str, test: str) -> list[str]:
    for name, content in {"docs/requirements.md": page, "tests/a/test_a.py": test}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    return check(root)


def test_a_page_that_tells_what_tests_name_is_fine(tmp_path):
    assert findings(tmp_path, PAGE, '"""R-001"""\n') == []


def test_what_does_not_fit_is_found(tmp_path):
    assert findings(tmp_path, PAGE, '"""R-001, K-070"""\n') == [
        "tests/a/test_a.py:1: K-070 is not told in docs/requirements.md"
    ]
    assert findings(tmp_path, PAGE, "x = 1\n") == ["docs/requirements.md:5: R-001 is named by no test"]
    twice = PAGE + "| R-001 | Again. |\n"
    assert findings(tmp_path, twice, '"""R-001"""\n') == ["docs/requirements.md:6: R-001 is told already, in line 5"]


def test_what_is_set_aside_is_named_by_no_test_and_told_once(tmp_path):
    page = PAGE + "\n## Set aside\n\n| id | instead |\n| --- | --- |\n| D-016 | The log. |\n"
    assert findings(tmp_path, page, '"""R-001"""\n') == []
    assert findings(tmp_path, page, '"""R-001, D-016"""\n') == [
        "tests/a/test_a.py:1: D-016 is set aside in docs/requirements.md"
    ]
    both = page + "| R-001 | Both. |\n"
    assert "docs/requirements.md:12: R-001 is told already, in line 5" in findings(tmp_path, both, '"""R-001"""\n')
