"""What a compactor needs, and what it is told."""

import msgspec
import pytest

from dray.cli import compacting, compactor_answers
from dray.cli.compacting import NoSpark, check_installed, options_of
from dray.cli.options import load_config
from dray.cli.tables import TableFormat
from dray.tables.options import CompactorOptions, CycleDone, JobProgress


def test_without_the_packages_of_the_extra_it_is_said_what_to_install(monkeypatch):
    check_installed()
    monkeypatch.setattr(compacting, "NEEDED", ("pyspark", "no_such_package"))
    with pytest.raises(NoSpark, match="no_such_package") as told:
        check_installed()
    assert "dray[spark]" in told.value.advice


def test_a_compactor_is_told_all_that_it_needs_in_one_line(tmp_path):
    """Credentials too, which is why they are no arguments."""
    keys = ["objects.access_key_id=me", "objects.secret_access_key=hidden"]
    config = load_config(None, [*keys, f"broker.data={tmp_path}", "compaction.max_age=3s"])
    line = msgspec.json.encode(options_of(config))
    assert b"\n" not in line
    told = msgspec.json.decode(line, type=CompactorOptions)
    assert (told.data, told.age_ms, told.size) == (str(tmp_path), 3_000, 32 << 20)
    assert told.store.environment() == {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hidden"}


def test_a_terminal_shows_how_many_tasks_are_done_and_a_pipe_only_the_summary(monkeypatch, capsys):
    told = [JobProgress(done=1, total=3), JobProgress(done=3, total=3), CycleDone(topics=[], failed=0, seconds=1.5), 0]
    monkeypatch.setattr(compactor_answers, "run_to_the_end", lambda _options: iter(told))
    options = options_of(load_config(None, ["broker.data=here"]))
    assert compactor_answers.run(options, TableFormat.TEXT) == 0
    assert capsys.readouterr() == ("nothing was due\n", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert compactor_answers.run(options, TableFormat.TEXT) == 0
    shown = capsys.readouterr().err.split("\r")
    assert shown == ["", f"[{'#' * 10}{' ' * 20}] 1 of 3 tasks", f"[{'#' * 30}] 3 of 3 tasks", "\033[K"]
