"""`dray` as a program: what it loads, what shells complete, and what a terminal is shown."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dray.testing import broker
from tests.cli.asking import dray
from tests.cli.command_story import Shop
from tests.cli.daemon import environment

DRAY = str(Path(sys.executable).with_name("dray"))
LIMIT_S = 120
LARGE = ("pyarrow", "grpc", "pyspark", "obstore", "uvicorn", "starlette", "structlog")
"""Not pydantic: Typer takes it where it is installed."""
OF_A_BROKER = ("dray.config", "dray.machine", "dray.node.plane", "dray.node.roles", "dray.replica", "dray.topics")


def told(*argv: str, **variables: str) -> str:
    done = subprocess.run(
        [DRAY, *argv], env={**environment(), **variables}, stdout=subprocess.PIPE, timeout=LIMIT_S, text=True
    )
    assert done.returncode == 0
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "also"),
    [(["--help"], ("dray.kafka_client", "confluent_kafka")), (["topics", "list"], ("confluent_kafka",))],
)
def test_it_loads_neither_a_broker_nor_what_it_does_not_use(argv, also):
    script = (
        "import sys\nfrom dray.cli.main import DRAY, run\n"
        f"run({[*argv, '--bootstrap', '127.0.0.1:1'] if argv[0] != '--help' else argv!r}, DRAY)\n"
        "print('\\nloaded', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, timeout=LIMIT_S, text=True
    )
    loaded = done.stdout.rpartition("\nloaded ")[2].split()
    assert "dray.cli.main" in loaded
    unwanted = (*LARGE, *OF_A_BROKER, *also)
    assert [name for name in loaded if any(name == one or name.startswith(f"{one}.") for one in unwanted)] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(shell):
    script = dray("completion", shell)
    assert script.code == 0
    assert f"_DRAY_COMPLETE=complete_{shell}" in script.out.decode()
    assert dray("completion", "tcsh").code == 2


@pytest.mark.slow
def test_bash_completes_commands_options_and_names():
    """The script is sourced by a real bash, which then asks `dray` itself."""
    with broker() as running:
        Shop(running.bootstrap).good("topics", "create", "orders")
        Shop(running.bootstrap).good("topics", "create", "other")
        for line, expected in [
            ("dray to", ["topics"]),
            ("dray topics add", ["add-partitions"]),
            ("dray consume --enc", ["--encoding"]),
            ("dray topics describe or", ["orders"]),
            ("dray produce o", ["orders", "other"]),
        ]:
            words = line.split()
            script = (
                'source <(dray completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                '_dray_completion dray; printf "%s\\n" "${COMPREPLY[@]}"'
            )
            path = f"{Path(DRAY).parent}:{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", script, "bash", *words],
                env={**environment(), "PATH": path, "DRAY_BOOTSTRAP": running.bootstrap},
                capture_output=True, timeout=LIMIT_S, text=True,
            )  # fmt: skip
            assert done.stdout.split() == expected, (line, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_names_are_completed_for_other_shells(shell):
    asked = {"_DRAY_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert "topics" in told(**asked, _TYPER_COMPLETE_ARGS="dray to")


@pytest.mark.slow
def test_without_a_cluster_no_name_is_completed_and_nothing_is_said():
    variables = {"COMP_WORDS": "dray topics describe o", "COMP_CWORD": "3", "DRAY_BOOTSTRAP": "127.0.0.1:1"}
    assert told(**variables, _DRAY_COMPLETE="complete_bash").strip() == ""


def on_a_terminal(**variables: str) -> bytes:
    """What `dray --help` shows where stdout is a terminal."""
    reader, writer = pty.openpty()
    kept = {name: value for name, value in environment().items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen([DRAY, "--help"], stdout=writer, env={**kept, "TERM": "xterm", **variables}) as process:
        os.close(writer)
        shown = b""
        try:
            while piece := os.read(reader, 65536):
                shown += piece
        except OSError:
            pass  # what a terminal says when the other side is gone
        assert process.wait(LIMIT_S) == 0
    os.close(reader)
    return shown


@pytest.mark.slow
def test_colours_are_for_terminals_that_want_them():
    assert b"\x1b[3" in on_a_terminal() or b"\x1b[1;3" in on_a_terminal()
    assert b"\x1b[3" not in on_a_terminal(NO_COLOR="1")
    assert "\x1b" not in told("--help")


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "code", "left"), [(b"other\n", 1, ["orders"]), (b"orders\n", 0, [])])
def test_a_person_types_the_name_of_what_is_to_go(typed, code, left):
    with broker() as running:
        shop = Shop(running.bootstrap)
        shop.good("topics", "create", "orders")
        keyboard, terminal = pty.openpty()
        os.write(keyboard, typed)
        done = subprocess.run(
            [DRAY, "topics", "delete", "orders", "--bootstrap", running.bootstrap],
            stdin=terminal, capture_output=True, env=environment(), timeout=LIMIT_S,
        )  # fmt: skip
        os.close(terminal)
        os.close(keyboard)
        assert done.returncode == code
        assert b"delete orders with 0 records in 1 partitions? type orders to confirm" in done.stderr
        assert [one["topic"] for one in shop.good("topics", "list")["topics"]] == left
