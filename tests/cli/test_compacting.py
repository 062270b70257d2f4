"""What a compactor needs, and what it is told."""

import msgspec
import pytest

from dray.cli import compacting
from dray.cli.compacting import NoSpark, check_installed, options_of
from dray.cli.options import load_config
from dray.tables.options import CompactorOptions


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
