"""The section of docs/compat.md that a Java program tells: `python -m tests.peers.compat_page` writes it again."""

import json
from pathlib import Path

from dray.testing import broker
from tools.pages import DOCS, cell, put_section
from tools.peers.java import java_program

PAGE = DOCS / "compat.md"
ADMIN = "Java admin client"
_JAVA = Path(__file__).parent / "java"
_UNSERVED = "UnsupportedVersionException"


def admin_table(bootstrap: str) -> str:
    """What each call of the admin client gave."""
    told = json.loads(java_program(_JAVA / "AskEverything.java", bootstrap, seconds=600.0))
    rows = [f"| `{call}` | {_short(outcome)} |" for call, outcome in told.items()]
    return "\n".join(["| call | on Dray |", "| --- | --- |", *rows])


def _short(outcome: str) -> str:
    return "not served" if outcome.startswith(_UNSERVED) else cell(outcome)


def main() -> None:
    with broker(topics__partitions=2) as running:
        put_section(PAGE, ADMIN, admin_table(running.bootstrap))


if __name__ == "__main__":
    main()
