"""What is not confirmed is not done, and the advice names only what the command has."""

import inspect
from io import StringIO

import pytest

from dray.cli.asking import dlq, groups, heap, topics
from dray.cli.confirming import NotConfirmed, confirm


@pytest.fixture(autouse=True)
def nobody_types(monkeypatch):
    monkeypatch.setattr("sys.stdin", StringIO())


@pytest.mark.parametrize(("blind", "named"), [(False, True), (True, False)])
def test_the_advice_names_a_dry_run_only_where_there_is_one(blind, named):
    with pytest.raises(NotConfirmed) as refused:
        confirm("jobs", False, "delete jobs", blind=blind)
    assert ("--dry-run" in refused.value.advice) is named
    assert "--yes" in refused.value.advice


@pytest.mark.parametrize(
    ("command", "has_dry_run"),
    [
        (heap.delete_command, False), (heap.purge_command, False), (dlq.delete_command, False),
        (topics.delete_command, True), (groups.delete_command, True),
    ],
)  # fmt: skip
def test_a_command_is_blind_just_if_it_has_no_dry_run(command, has_dry_run):
    assert ("dry_run" in inspect.signature(command).parameters) is has_dry_run
    assert ("blind=True" in inspect.getsource(command)) is not has_dry_run
