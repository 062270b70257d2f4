"""docs/quickstarts.md, in parts: a heading names a client, below it is its first program and what that prints."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "quickstarts.md"
ADDRESS = "localhost:9092"
LIMIT_S = 120
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"^```(python|js)\n(.*?)^```\n+```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_LOGGED = re.compile(r'\d{4}-\d\d-\d\d |\{"level":')


class Program(NamedTuple):
    """What a client shows first."""

    client: str
    language: str
    text: str
    prints: str


def sections() -> dict[str, str]:
    return dict(_SECTION.findall(PAGE.read_text(encoding="utf-8")))


def programs(language: str) -> list[Program]:
    found = [(client, match) for client, text in sections().items() for match in _PROGRAM.findall(text)]
    return [Program(client, *match) for client, match in found if match[0] == language]


def at(text: str, bootstrap: str) -> str:
    """With the port of this broker; the name stays, for it is part of what the page promises."""
    assert ADDRESS in text
    return text.replace(ADDRESS, f"localhost:{bootstrap.rpartition(':')[2]}")


def printed(program: Program, bootstrap: str, command: Sequence[str] = (sys.executable, "-")) -> str:
    """What a program prints beside log lines; it is given to its interpreter."""
    done = subprocess.run(
        command, input=at(program.text, bootstrap), capture_output=True, text=True, timeout=LIMIT_S
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not _LOGGED.match(line))
