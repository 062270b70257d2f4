"""Where no compiler was, the twin alone serves."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SERVE = """
import sys

if sys.argv[1] == "twin":
    class NoExtension:
        def find_spec(self, name, path=None, target=None):
            if name == "dray.records._kernel":
                raise ImportError("hidden")
    sys.meta_path.insert(0, NoExtension())

import hashlib, random
sys.path.insert(0, sys.argv[2])
from tests.records.batch_samples import batch_of, damaged, records_bytes, seeded_records, validate
from dray.records import *
from dray.records.arrow import to_arrow, unwrap
from dray.records.writer import BatchWriter

dice, seen, pool = random.Random(5), hashlib.sha256(), ScratchPool(1 << 20)
for turn in range(300):
    records = seeded_records(dice)
    data = records_bytes(records)
    batch = batch_of(damaged(dice, data) if turn % 2 else data, len(records))
    try:
        found = validate(batch, BatchRules(append_time=True), pool)
    except InvalidBatch as error:
        seen.update(f"{type(error).__name__} {error}".encode())
        continue
    table = to_arrow([(found.batch, turn)])
    seen.update(repr((found[1:], table.to_pydict(), newest(found.batch))).encode())
    written, rows = BatchWriter().write(unwrap(table), 0, len(records))
    seen.update(bytes(written))
print(EXTENSION_LOADED, seen.hexdigest())
"""

HIDE = """
import runpy, sys
sys.modules[sys.argv[2]] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def serve(which: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SERVE, which, str(Path(__file__).parent)], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.slow
def test_the_twin_serves_alone_with_the_same_results():
    """B3: validation, columns, rebuilt batches and refusals, word for word."""
    loaded, results = serve("extension")
    hidden, twins = serve("twin")
    assert (loaded, hidden) == ("True", "False")
    assert results == twins


@pytest.mark.parametrize("extension", ["dray.records._kernel", "dray.machine._kernel", "dray.machine.heaps._kernel"])
def test_the_check_tells_an_extension_from_its_twin(extension):
    check = ROOT / "tools" / "check_extension.py"
    good = subprocess.run([sys.executable, str(check)], capture_output=True, text=True, check=False)
    assert good.returncode == 0, good.stderr
    bad = subprocess.run(
        [sys.executable, "-c", HIDE, str(check), extension], capture_output=True, text=True, check=False
    )
    assert bad.returncode == 1
    assert "not loaded" in bad.stderr
