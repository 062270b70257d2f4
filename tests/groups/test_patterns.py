"""Patterns of subscriptions."""

import subprocess
import sys

import pytest

from dray.groups.errors import BadPattern
from dray.groups.patterns import check_pattern, matching

NAMES = ["orders", "orders-eu", "billing", "a" * 200]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("orders", ("orders",)), ("orders.*", ("orders", "orders-eu")), ("", ()), ("[", ()), (".+ing|x", ("billing",))],
)
def test_a_pattern_matches_whole_names(pattern: str, found: tuple[str, ...]) -> None:
    assert matching(pattern, reversed(NAMES)) == found


@pytest.mark.parametrize("pattern", ["(", r"(?<=a)b", r"(a)\1", "a{1001}", "((((a{100}){100}){100}){100}){100}", "*"])
def test_what_re2_refuses_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadPattern):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)(.*)b", "(x+x+)+y", "(a|b)*" * 1_600])
def test_patterns_that_hold_others_for_hours_are_matched_at_once(pattern: str) -> None:
    """GP1: each would take Python's own engine longer than the timeout of this test."""
    check_pattern(pattern)
    matching(pattern, NAMES)


def test_ten_kilobytes_are_a_pattern_or_none_within_its_memory() -> None:
    """GP1."""
    check_pattern("a" * 10_000)
    with pytest.raises(BadPattern):
        check_pattern("(abc|[^d]{1000})" * 600)


def test_a_bad_pattern_writes_nothing_to_stderr() -> None:
    code = "from dray.groups.patterns import matching; matching('(', ['a']); matching('(a|b)*' * 5000, ['ab' * 90])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stderr == b""
