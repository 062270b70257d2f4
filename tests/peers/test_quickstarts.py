"""The first steps of clients from outside PyPI, as docs/quickstarts.md has them, on `drayd dev`."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.daemon import Daemon, serving
from tests.docs.cli_page import shown
from tests.docs.quickstart_page import LIMIT_S, at, printed, programs, sections
from tools.peers.kafka import write_tools
from tools.peers.node import node_command
from tools.peers.process import tool

pytestmark = pytest.mark.peers

MASKS = (
    (re.compile(r"^The consumer rebalance protocol .*\n", re.MULTILINE), ""),  # advice of this version
    (re.compile(r"TopicId: \S+"), "TopicId: ID"),
    (re.compile(r'"size":\d+'), '"size":N'),
    (re.compile(r'"logDir":"[^"]*"'), '"logDir":"DIR"'),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)


@pytest.fixture(scope="module")
def drayd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with serving(
        "--data", tmp_path_factory.mktemp("quickstarts"), "--kafka", "0", "--http", "0", "--grpc", ""
    ) as running:
        yield running


def told(command: str, bootstrap: str, tools: Path) -> str:
    """What a command tells, with the port of the page."""
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command if "localhost" not in command else at(command, bootstrap)],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=LIMIT_S,
    )  # fmt: skip
    return done.stdout.replace(bootstrap.rpartition(":")[2], "9092")


def masked(text: str) -> str:
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text)
    return text


def test_kafkajs_prints_what_the_page_says(drayd: Daemon, tmp_path: Path) -> None:
    [program] = programs("js")
    file = tmp_path / "quickstart.js"
    file.write_text(at(program.text, drayd.kafka))
    assert printed(program, drayd.kafka, node_command(file)) == program.prints


@pytest.mark.parametrize("client", ["kcat", "Kafka's own tools"])
def test_the_commands_tell_what_the_page_says(drayd: Daemon, client: str, tmp_path: Path) -> None:
    """K-062."""
    tool("kcat", "kcat")
    write_tools(tmp_path)
    commands = shown(sections()[client])
    assert commands
    for one in commands:
        assert masked(told(one.command, drayd.kafka, tmp_path)) == masked(one.output), one.command
