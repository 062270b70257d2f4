"""What came of other clients' suites: each failure has its reason, or is called out."""

import pytest

from tools.pages import put_section, section_of
from tools.suites import page
from tools.suites.running import Outcome
from tools.suites.suite import SUITES, Reason, Suite

SUITE = Suite(
    client="kafka-python", needs=(), paths=(), left_out="nothing", environment=lambda bootstrap: {}, partitions=1,
    reasons=(Reason(why="There are no transactions.", tests=("*transaction*",)),),
)  # fmt: skip
OUTCOMES = [
    Outcome(test="test_producer::test_send", verdict="passed", said=""),
    Outcome(test="test_producer::test_transaction", verdict="failed", said="code 42 | no"),
    Outcome(test="test_admin::test_new", verdict="failed", said="odd"),
    Outcome(test="test_admin::test_old", verdict="skipped", said="old broker"),
]


def test_a_failure_stands_below_its_reason():
    told = page.section(SUITE, OUTCOMES)
    assert "**1 passed, 2 failed, 1 skipped themselves**" in told
    assert "**There are no transactions.**\n\n| test | it says |\n| --- | --- |\n" in told
    assert "| `test_producer::test_transaction` | code 42 \\| no |" in told
    assert [one.test for one in page.unexplained(SUITE, OUTCOMES)] == ["test_admin::test_new"]


def test_a_section_takes_the_place_of_the_one_before(tmp_path):
    file = tmp_path / "compat.md"
    file.write_text("# Head\n\n<!-- begin: a -->\nold\n<!-- end: a -->\n\ntail\n")
    put_section(file, "a", "new")
    assert file.read_text() == "# Head\n\n<!-- begin: a -->\nnew\n<!-- end: a -->\n\ntail\n"
    assert section_of(file, "a") == "new"
    with pytest.raises(ValueError, match="no place for b"):
        put_section(file, "b", "new")


def test_the_page_tells_of_every_suite_and_explains_each_failure():
    told = page.PAGE.read_text(encoding="utf-8")
    assert [suite.client for suite in SUITES if f"<!-- begin: {suite.client} -->" not in told] == []
    assert page.NO_REASON not in told
