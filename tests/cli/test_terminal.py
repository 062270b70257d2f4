"""What a person at a terminal gets: sentences, `-h`, and defaults in the help."""

import json
import os
import pty
import re
import subprocess

import pytest

from dray.cli.main import run
from dray.cli.settings import SECTIONS
from tests.cli.daemon import DRAYD, LIMIT_S, environment, serving


def on_a_terminal(*arguments: object) -> tuple[str, str]:
    """A broker whose stderr is a terminal, told to stop when it is ready: its ready line and what it logged."""
    reader, writer = pty.openpty()
    command = [*DRAYD, "dev", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True, env=environment()) as process:
        os.close(writer)
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.terminate()
        logged = b""
        while chunk := read(reader):
            logged += chunk
        assert process.wait(LIMIT_S) == 0
    os.close(reader)
    return ready, logged.decode().replace("\r\n", "\n")


def read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # what a terminal says when the other side is gone
        return b""


@pytest.mark.slow
def test_on_a_terminal_each_event_is_a_line_with_its_sentence(tmp_path):
    ready, logged = on_a_terminal("--data", tmp_path / "data", "--kafka", "0.0.0.0:0", "--http", "0", "--grpc", "")
    assert re.fullmatch(r"ready kafka=\S+:\d+ http=http://127\.0\.0\.1:\d+/\n", ready)
    lines = logged.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d (info|warning) +[a-z]", line) for line in lines), logged
    [exposed] = [line for line in lines if "node.exposed" in line]
    assert exposed.partition(" warning  ")[2] == (
        "a listener can be reached from other machines and asks nobody for a password  "
        "(node.exposed listener=kafka host=0.0.0.0)"
    )
    assert "the broker finishes what it has taken and stops" in logged


@pytest.mark.slow
def test_elsewhere_each_event_is_a_json_object_unless_text_is_wanted(tmp_path):
    arguments = ("--kafka", "0", "--http", "0", "--grpc", "", "--log", "memory:")
    with serving(*arguments) as drayd:
        assert drayd.stop() == 0
    assert {json.loads(line)["event"] for line in drayd.log} >= {"node.ready", "node.stopped"}
    with serving(*arguments, "--set", "logging.format=text") as drayd:
        assert drayd.stop() == 0
    assert [line for line in drayd.log if "the broker serves clients  (node.ready kafka=" in line]


@pytest.mark.parametrize(
    "command", [[], ["dev"], ["doctor"], ["config", "show"], ["admin", "meta", "ls"]], ids=" ".join
)
def test_help_has_a_short_form_everywhere(command, capsys):
    assert run([*command, "-h"]) == 0
    short = capsys.readouterr().out
    assert run([*command, "--help"]) == 0
    assert short == capsys.readouterr().out
    assert "Usage: drayd" in short


def test_the_help_of_dev_tells_what_happens_without_options(capsys):
    assert run(["dev", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for key in ("kafka.listen", "http.listen", "broker.data"):
        section, _, name = key.partition(".")
        assert f"[default: ({SECTIONS[section].model_fields[name].default})]" in shown, key
    assert "--advertise" in shown
