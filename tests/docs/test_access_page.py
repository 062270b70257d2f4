"""docs/access.md: its commands are run, in their order, and tell what it says; what it names is there."""

import re
from pathlib import Path

import pytest

from dray.access.limits import PER_ADDRESS, PER_KEY
from dray.cli.settings import SECTIONS
from dray.machine.access import KeyRole
from dray.testing import broker
from tests.docs.cli_page import run, shown

PAGE = (Path(__file__).parents[2] / "docs" / "access.md").read_text(encoding="utf-8")
_MASKS = (
    (re.compile(r"dray_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}"), "SECRET"),
    (re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d"), "TIME"),
    (re.compile(r"hash [0-9a-f]{64}"), "HASH"),
    (re.compile(r'^\{.*"event".*\}\n', re.MULTILINE), ""),  # what the command logs on stderr
)


def masked(text: str) -> str:
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


@pytest.mark.slow
def test_the_page_tells_what_the_commands_tell(tmp_path):
    ids: dict[str, str] = {}
    on_page = re.findall(r"^([0-9A-Za-z]{8})  (\w+) ", PAGE, re.MULTILINE)
    with broker(tmp_path / "dray-data") as dray:
        for one in shown(PAGE):
            command, output = one.command.replace("127.0.0.1:7432", dray.grpc), one.output
            for page_id, own in ids.items():
                command = command.replace(page_id, own)
            told = run(command, dray.bootstrap, tmp_path)
            found = dict(re.findall(r"^([0-9A-Za-z]{8})  (\w+) ", told, re.MULTILINE))
            ids |= {page_id: own for page_id, name in on_page for own, other in found.items() if other == name}
            if made := re.search(r"This is key (\w{8})", told):
                ids |= {re.search(r"This is key (\w{8})", output)[1]: made[1]}
            for page_id, own in ids.items():
                output = output.replace(page_id, own)
            assert masked(told) == masked(output), one.command
    assert len(ids) == 3


def test_what_the_page_names_is_there():
    for role in KeyRole:
        assert f"`{role.name.lower()}`" in PAGE
    assert f"{PER_KEY} a minute" in PAGE
    assert f"{PER_ADDRESS} for an address" in PAGE
    assert str(SECTIONS["access"].model_fields["streams_per_key"].default) + " streams" in PAGE
