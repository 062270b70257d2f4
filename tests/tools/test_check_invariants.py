"""The check of invariants: an orphan, a double, a stray mention and an old page are each found."""

import pytest

from tools.check_invariants import check, render

MODULE = '''"""A module.

Invariants
    ZZ1  The first holds,
         over two lines.
    ZZ2  The second | holds.

After it
    ZZ9  is an example, not an invariant.
"""

x = 1  # ZZ1, ZZ2
'''
TESTS = '''
async def test_first():
    """ZZ1, ZZ10"""

class TestZ:
    def test_second(self):
        """ZZ2: twice, as (ZZ2)"""
'''


@pytest.fixture
def findings(tmp_path):
    def make(*, module: str = MODULE, tests: str = TESTS, other: str = "", page: str | None = None) -> list[str]:
        files = {"src/dray/a.py": module, "src/dray/b.py": other, "tests/test_a.py": tests}
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content, encoding="utf-8")
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs/invariants.md").write_text(render(tmp_path) if page is None else page, encoding="utf-8")
        return check(tmp_path)

    return make


def test_a_tree_in_which_all_fits_has_no_findings_and_its_page_has_all(findings, tmp_path):
    assert findings() == []
    rows = [line for line in (tmp_path / "docs/invariants.md").read_text().splitlines() if line.startswith("| ZZ")]
    assert rows == [
        "| ZZ1 | The first holds, over two lines | src/dray/a.py | tests/test_a.py::test_first |",
        "| ZZ2 | The second \\| holds | src/dray/a.py | tests/test_a.py::test_second |",
    ]


def test_an_invariant_that_no_test_names_is_found(findings):
    [found] = findings(tests=TESTS.replace("ZZ2", "ZZ20"))
    assert found.startswith("src/dray/a.py:6: ZZ2 is named by no test")


def test_an_id_that_two_modules_state_is_found(findings):
    [found] = findings(other='"""Another.\n\nInvariants\n    ZZ1  Something else.\n"""\n')
    assert found == "src/dray/b.py:4: ZZ1 is taken by src/dray/a.py:4: choose another"


def test_an_id_that_code_mentions_and_nobody_states_is_found(findings):
    assert findings(other="x = 1  # ZZ7\n") == ["src/dray/b.py:1: ZZ7 is stated by no module"]
    assert findings(other="x = 1  # A name of others (V2), not an id\n") == []


def test_a_page_that_is_out_of_date_is_found(findings):
    [found] = findings(page="# Invariants\n")
    assert found.startswith("docs/invariants.md: not what modules and tests give")
