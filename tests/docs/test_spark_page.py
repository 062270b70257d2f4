"""What docs/spark.md shows is run, in its order, in one session."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dray.pipeline.options import KNOWN
from dray.pipeline.source import COLUMNS, HEADERS
from tests.pipeline.parts import broker_process, create, produce

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def script_of(text: str) -> str:
    """The blocks as one program; a statement of SQL is shown."""
    parts = []
    for language, block in BLOCK.findall(text):
        if language == "python":
            parts.append(block)
        else:
            parts += [f"spark.sql({statement.strip()!r}).show()\n" for statement in block.split(";")]
    return "".join(parts) + "print('the page ran to its end')\nspark.stop()\n"


def test_the_page_lists_every_option_and_every_column():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert told == {*KNOWN, *(column.name for column in (*COLUMNS, HEADERS))}


@pytest.mark.slow
def test_the_page_does_what_it_shows(tmp_path):
    with broker_process(tmp_path / "dray-data") as broker:
        create(broker.bootstrap, "orders", 4)
        produce(broker.bootstrap, "orders", [(b"k%d" % (n % 7), b"v", [("n", b"%d" % n)], n % 4) for n in range(2_000)])
        done = subprocess.run(
            [sys.executable, "-c", script_of(PAGE.read_text())], cwd=tmp_path, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the page ran to its end" in done.stdout
    assert "|      k0|286|" in done.stdout
