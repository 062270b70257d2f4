"""How a command is found, and what becomes of what it raises."""

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from dray.cli import commands
from dray.cli.commands import config
from dray.cli.main import build, command_names, run
from dray.cli.output import Format, wanted_format

SOURCE = '''"""{line}

More about it.
"""

import typer

from dray.errors import Unavailable

app = typer.Typer()
{body}
'''
PLAIN = "@app.callback(invoke_without_command=True)\ndef plain(count: int = 1) -> None:\n    "


@pytest.fixture
def add_command(tmp_path, monkeypatch):
    """Adds a command as a developer does: by a module, and nothing else."""
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    added = []

    def add(name: str, body: str, line: str = "Does something.") -> None:
        (tmp_path / f"{name}.py").write_text(SOURCE.format(line=line, body=body), encoding="utf-8")
        added.append(f"{commands.__name__}.{name}")

    yield add
    for name in added:
        sys.modules.pop(name, None)


def test_a_module_is_a_command_and_its_first_line_is_its_help(add_command, capsys):
    add_command("greet", PLAIN + "print('hello', count)", line="Greets.")
    add_command("_support", "raise AssertionError('not a command')")
    assert "greet" in command_names()
    assert "_support" not in command_names()
    assert run(["greet", "--count", "3"]) == 0
    assert capsys.readouterr().out == "hello 3\n"
    assert run(["--help"]) == 0
    assert "Greets." in capsys.readouterr().out


def test_only_the_called_command_is_imported(add_command, capsys):
    add_command("heavy", "raise AssertionError('imported')")
    for argv in (["config", "check"], ["--help"], ["--version"], ["nope"]):
        run(argv)
    assert "imported" not in "".join(capsys.readouterr())
    assert f"{commands.__name__}.heavy" not in sys.modules


def test_the_version_is_told_without_waiting_for_pydantic_or_a_broker():
    script = (
        "import sys; from dray.cli.main import run; run(['--version']);"
        "print([name for name in ('pydantic', 'yaml', 'obstore', 'pyarrow', 'rich') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.splitlines()[1] == "[]"


def test_an_expected_error_ends_with_one_and_says_what_to_do_next(add_command, capsys):
    add_command("try", PLAIN + "raise Unavailable('the store does not answer', url='s3://x')")
    assert run(["try"]) == 1
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "drayd: the store does not answer url=s3://x",
        "  next: nothing was changed: mend what the line above names, then run it again",
    ]
    assert told.out == ""


def test_a_bug_is_one_line_and_shows_its_traceback_on_demand(add_command, capsys):
    add_command("crash", PLAIN + "raise KeyError('x')")
    assert run(["crash"]) == 1
    told = capsys.readouterr().err
    assert "internal error: KeyError: 'x'" in told
    assert "Traceback" not in told
    assert run(["--debug", "crash"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_with_130_and_an_exit_with_its_code(add_command):
    add_command("stop", PLAIN + "raise KeyboardInterrupt")
    add_command("leave", PLAIN + "raise typer.Exit(7)")
    assert run(["stop"]) == 130
    assert run(["leave"]) == 7


def test_a_json_error_of_a_command_is_one_object(add_command, capsys):
    body = PLAIN.replace("count: int = 1", "format: str = ''") + "raise Unavailable('not now')"
    add_command("later", body)
    assert run(["later", "--format", "json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == {
        "error": {
            "kind": "unavailable",
            "message": "not now",
            "next": "nothing was changed: mend what the line above names, then run it again",
        }
    }
    assert told.err == ""


@pytest.mark.parametrize(
    ("argv", "form"),
    [
        (["--format", "json"], Format.JSON),
        (["x", "--format=json"], Format.JSON),
        (["--format"], Format.TEXT),
        (["--format", "text", "json"], Format.TEXT),
        ([], Format.TEXT),
    ],
)
def test_the_wanted_format_is_seen_before_anything_is_parsed(argv, form):
    assert wanted_format(argv) is form


def test_commands_run_in_the_runner_of_typer_too():
    checked = CliRunner().invoke(
        config.app,
        ["check"],
        env={"DRAY__SESSION__TTL": "20s", "DRAY__COMPACTION__ENABLED": None, "DRAY__GRPC__LISTEN": None},
    )
    assert checked.exit_code == 0
    assert checked.output.endswith(" 1 of them set\n")
    assert isinstance(build(["config"]), typer.Typer)
