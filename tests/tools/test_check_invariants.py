"""The check of invariants: an orphan, a double, a lost keeper and a lost test are each found."""

import pytest

from tools.check_invariants import check

MODULE = '''"""A module.

Invariants
    ZZ1  The first holds,
         over two lines.
    ZZ2  The second holds.

After it
    ZZ9  is an example, not an invariant.
"""

x = 1  # ZZ1, ZZ2
'''
HEAD = "# Invariants\n\n| id | invariant | keeper | test |\n| --- | :-- | --- | --- |\n"
ROW_1 = "| ZZ1 | first | src/dray/a.py | tests/test_a.py::test_first |\n"
ROW_2 = "| ZZ2 | second | `src/dray/a.py` | `tests/test_a.py::TestZ::test_second`, tests/test_a.py::Machine |\n"
TESTS = '''
async def test_first():
    """ZZ1"""

class TestZ:
    def test_second(self):
        """ZZ2"""

Machine = Rules.TestCase
'''


@pytest.fixture
def findings(tmp_path):
    def make(
        *, module: str = MODULE, table: str = HEAD + ROW_1 + ROW_2, tests: str = TESTS, other: str = ""
    ) -> list[str]:
        files = {"src/dray/a.py": module, "src/dray/b.py": other, "tests/test_a.py": tests, "docs/invariants.md": table}
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content, encoding="utf-8")
        return check(tmp_path)

    return make


def test_a_tree_in_which_all_fits_has_no_findings(findings):
    assert findings() == []


def test_an_invariant_without_a_row_is_found(findings):
    assert findings(table=HEAD + ROW_1) == [
        "src/dray/a.py:6: ZZ2 has no row in docs/invariants.md: name its keeper and its test"
    ]


def test_a_row_without_an_invariant_is_found(findings):
    row = "| ZZ3 | third | src/dray/a.py | tests/test_a.py::test_first |\n"
    told = findings(table=HEAD + ROW_1 + ROW_2 + row)
    assert "docs/invariants.md:7: ZZ3 is stated by no module: state it, or take the row away" in told


def test_an_id_that_two_modules_state_is_found(findings):
    told = findings(other='"""B.\n\nInvariants\n    ZZ1  Something else.\n"""\n')
    assert told == ["src/dray/b.py:4: ZZ1 is taken by src/dray/a.py:4: choose another"]


def test_a_double_row_is_found(findings):
    assert findings(table=HEAD + ROW_1 + ROW_2 + ROW_1) == ["docs/invariants.md:7: ZZ1 has a row already, in line 5"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("src/dray/a.py", "src/dray/gone.py", "the keeper src/dray/gone.py does not exist"),
        ("src/dray/a.py", "src/dray/b.py", "the keeper src/dray/b.py does not mention it"),
        ("tests/test_a.py", "tests/test_gone.py", "the test file tests/test_gone.py does not exist"),
        ("::test_first", "::test_fir", "tests/test_a.py has no test_fir"),
        ("::test_first", "", "expected a test as path::name, got tests/test_a.py"),
        ("| first ", "", "expected | id | invariant | keeper | test |, all of them filled"),
        ("| first ", "| ", "expected | id | invariant | keeper | test |, all of them filled"),
    ],
)  # fmt: skip
def test_a_row_that_points_nowhere_is_found(findings, old, new, says):
    assert any(says in told for told in findings(table=HEAD + ROW_1.replace(old, new) + ROW_2))


def test_a_test_file_that_does_not_mention_the_id_is_found(findings):
    told = findings(tests=TESTS.replace("ZZ1", "something"))
    assert told == ["docs/invariants.md:5: ZZ1: tests/test_a.py does not mention it"]


def test_a_mention_of_an_id_that_nobody_states_is_found(findings):
    other = "x = 1  # ZZ7\n# see (ZZ1, ZZ8) and (S3) and (V2) and CRC32C (CRC32)\n# Invariant ZZ6: so it is\n"
    told = findings(other=other)
    assert told == [
        "src/dray/b.py:1: ZZ7 is stated by no module",
        "src/dray/b.py:2: ZZ8 is stated by no module",
        "src/dray/b.py:3: ZZ6 is stated by no module",
    ]


def test_a_missing_table_is_a_finding(tmp_path):
    (tmp_path / "src").mkdir()
    assert "there is no such file" in check(tmp_path)[0]
