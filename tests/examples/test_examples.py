"""Every example runs as its first line says."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(Path("examples").glob("*.py"))
SAYS = {
    "first_steps.py": [
        "10,000 records are there: nothing was lost",
        "billing goes on where it was: 1,000 more",
        "exit code 0",
    ],
    "one_dataframe.py": [
        "found through the broker's HTTP port",
        "files and log in one cut, each once",
        "as a pyarrow.Table without Spark",
        "exit code 0",
    ],
    "orders_in_sql.py": ["are counted, each once", "|customer-4|", "the shop closed", "exit code 0"],
    "worker_pool.py": [
        "came back: delivery 2",
        "58 done, 2 dead letters: 60 of 60, nothing was lost",
        "done twice after an ack: 0",
        "dead after 3 deliveries: ValueError: this can never work",
        "exit code 0",
    ],
    "wal_object.py": ["durable before this line", "CRC32C of the WAL object does not match", "WAL object is cut"],
}


def test_every_example_is_expected_to_say_something():
    assert {path.name for path in EXAMPLES} == set(SAYS)


DEMO = {"first_steps.py", "orders_in_sql.py", "one_dataframe.py", "worker_pool.py"}
"""`make demo` is these, and tests/pipeline/test_demo.py runs it: here they run by themselves."""
CASES = [pytest.param(path, marks=pytest.mark.long if path.name in DEMO else (), id=path.name) for path in EXAMPLES]


@pytest.mark.parametrize("path", CASES)
def test_the_example_runs_and_shows_what_it_promises(path: Path, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, path, tmp_path / "dray-data"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in SAYS[path.name]:
        assert words in done.stdout
