"""docs/queues.md: its program runs, its commands tell what the page says, its settings are there."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from dray.cli.settings import SECTIONS
from dray.testing import broker
from tests.docs.cli_page import shown

PAGE = (Path(__file__).parents[2] / "docs" / "queues.md").read_text(encoding="utf-8")
LIMIT_S = 120


def masked(text: str) -> str:
    return re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ID", text)


def test_the_program_does_what_the_page_says():
    """D-006, D-234"""
    names: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], names)
    with broker() as dray:
        seen = asyncio.run(names["main"](dray.grpc))
    assert seen[0] == "ben"
    assert sorted(seen) == ["anna", "ben", "busy"]


def test_the_batch_over_two_heaps_is_taken_whole_or_not_at_all():
    """D-130, D-140"""
    names: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], names)
    with broker() as dray:
        assert asyncio.run(names["order"](dray.grpc)) == [1, 1]


@pytest.mark.slow
def test_the_history_is_told_as_the_page_says():
    """HI1"""
    names: dict = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[2], names)
    text = re.search(r"the topic says: (.*?)\. The key", PAGE, re.DOTALL)[1]
    expected = re.findall(r"`(.*?)`", text)
    with broker() as dray:
        asyncio.run(names["work"](dray.grpc))
        reader = Consumer({
            "bootstrap.servers": dray.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest",
        })  # fmt: skip
        reader.subscribe(["parcels.history"])
        values = []
        while len(values) < len(expected):
            (record,) = reader.consume(1, timeout=LIMIT_S)
            assert record.error() is None
            values.append(record.value())
        reader.close()
    assert names["tell"](values) == expected


@pytest.mark.slow
def test_the_commands_tell_what_the_page_tells():
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAY")}
    with broker() as dray:
        environ = {**kept, "DRAY_GRPC": dray.grpc, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}
        for one in shown(PAGE):
            done = subprocess.run(
                ["bash", "-c", one.command], env=environ, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            assert masked(done.stdout) == masked(one.output), one.command


def test_the_settings_are_there():
    named = re.findall(r"`(grpc\.\w+)`", PAGE)
    assert named
    for setting in named:
        section, _, field = setting.partition(".")
        assert field in SECTIONS[section].model_fields, setting


def test_the_page_names_what_is_not_promised():
    """D-006"""
    for words in ("at-least-once", "Not promised: exactly-once processing", "total order", "HTTP endpoints"):
        assert words in PAGE
