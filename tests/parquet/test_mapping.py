"""Libraries are mapped before they are imported, and what is missing is left to the import."""

import ast
import subprocess
import sys

import pytest

from dray.parquet import mapping

LOOK = """
import pathlib, sys
from dray.parquet.mapping import LIBRARIES, map_libraries

def mapped():
    return {line.rpartition("/")[2] for line in pathlib.Path("/proc/self/maps").read_text().splitlines()}

assert not [name for name in mapped() if "arrow" in name]
map_libraries()
early = mapped()
assert not {"pyarrow", "numpy"} & sys.modules.keys(), "nothing is imported"
import dray.parquet.read
later = {name for name in mapped() - early if "arrow" in name or "parquet" in name or "umath" in name}
print(len([name for name in early if "arrow" in name]) >= 3, sorted(later))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_import_finds_the_large_libraries_mapped():
    """F31: what is left to map with the interpreter's lock in hand is small."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    enough, later = done.stdout.split(maxsplit=1)
    assert enough == "True"
    assert not {"libarrow.so", "libarrow_compute.so", "libparquet.so", "libarrow_python.so"} & {
        name.partition(".so")[0] + ".so" for name in ast.literal_eval(later)
    }, later


def test_what_is_missing_is_left_to_the_import(monkeypatch):
    """PQ5"""
    monkeypatch.setattr(mapping, "LIBRARIES", {"no_such_package_here": ["*.so"], "pyarrow": ["no-such-*.so"]})
    mapping.map_libraries()
