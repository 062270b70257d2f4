"""What docs/cli.md shows is run, in its order, and tells what the page says."""

import pytest

from dray.cli.main import DRAY, command_names
from dray.testing import broker
from tests.docs.cli_page import PAGE, play, shown


@pytest.mark.slow
def test_the_page_tells_what_the_commands_tell(tmp_path):
    with broker() as running:
        play(running.bootstrap, tmp_path)


def test_the_page_shows_every_command():
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in command_names(DRAY) if f"dray {name}" not in page] == []
    assert all(one.output for one in shown())
