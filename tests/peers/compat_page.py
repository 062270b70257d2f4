"""Sections of docs/compat.md that Java programs tell: `python -m tests.peers.compat_page` writes them again."""

import json
import tempfile
from pathlib import Path

from confluent_kafka import Producer

from dray.testing import broker
from tools.pages import DOCS, cell, put_section
from tools.peers.java import command_of, java_program
from tools.peers.process import run
from tools.peers.streams import streams_jars

PAGE = DOCS / "compat.md"
ADMIN, STREAMS = "Java admin client", "Kafka Streams"
_JAVA = Path(__file__).parent / "java"
_UNSERVED = "UnsupportedVersionException"
_LIMIT_S = 120


def admin_table(bootstrap: str) -> str:
    """What each call of the admin client gave."""
    told = json.loads(java_program(_JAVA / "AskEverything.java", bootstrap, seconds=600.0))
    rows = [f"| `{call}` | {_short(outcome)} |" for call, outcome in told.items()]
    return "\n".join(["| call | on Dray |", "| --- | --- |", *rows])


def streams_error(bootstrap: str, directory: Path) -> str:
    """How an application with a changelog ends."""
    arguments = [bootstrap, "logging", "lines", "logged", "true", f"state.dir={directory}"]
    command = [*command_of(_JAVA / "WordCount.java", libraries=[streams_jars()]), *arguments]
    said = run(command, seconds=_LIMIT_S, fine=(1,)).decode()
    return "\n".join(f"    {line}" for line in said.splitlines())


def _short(outcome: str) -> str:
    return "not served" if outcome.startswith(_UNSERVED) else cell(outcome)


def main() -> None:
    with broker(topics__partitions=2) as running, tempfile.TemporaryDirectory() as directory:
        Producer({"bootstrap.servers": running.bootstrap}).list_topics("lines", 30)
        put_section(PAGE, STREAMS, streams_error(running.bootstrap, Path(directory)))
        put_section(PAGE, ADMIN, admin_table(running.bootstrap))


if __name__ == "__main__":
    main()
