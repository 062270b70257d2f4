"""docs/cli.md as a script: each command that it shows, run on a broker, and what it told."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
LIMIT_S = 120
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HOME = "/home/anna"
_MASKS = (
    (re.compile(r"\b1\d{12}\b"), "TIME"),
    (re.compile(r"^(id|cluster): +\S+$", re.MULTILINE), r"\1: ID"),
    (re.compile(r" +"), " "),
)


@dataclass(frozen=True)
class Shown:
    """A command of the page, and what the page says that it tells."""

    command: str
    output: str


def shown(text: str | None = None) -> list[Shown]:
    """The commands of this text, or of the page."""
    found = []
    for block in _BLOCK.findall(PAGE.read_text(encoding="utf-8") if text is None else text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Shown(command, output))
    return found


def run(command: str, bootstrap: str, home: Path) -> str:
    """What a command tells a user of this home, with the addresses of the page."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAY", "XDG"))}
    environ = {**kept, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command], env=environ, cwd=home, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    port = bootstrap.rpartition(":")[2]
    return done.stdout.replace(bootstrap, "127.0.0.1:9092").replace(port, "9092").replace(str(home), _HOME)


def settle(bootstrap: str, home: Path) -> None:
    """The user's file, as the page has it."""
    [text] = _TOML.findall(PAGE.read_text(encoding="utf-8"))
    file = home / ".config" / "dray" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text.replace("127.0.0.1:9092", bootstrap))


def masked(text: str) -> str:
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


def play(bootstrap: str, home: Path) -> None:
    """Run the whole page; what differs is told with its command."""
    settle(bootstrap, home)
    for one in shown():
        assert masked(run(one.command, bootstrap, home)) == masked(one.output), one.command
