"""The kernel under sanitizers; `make check` runs the same for longer."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "dray" / "records"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc and its sanitizers")


def fuzz(seed: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/fuzz_kernel.py", "--cases", "20000", "--seed", str(seed), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.slow
def test_damaged_input_never_leads_outside_a_buffer():
    """B6"""
    done = fuzz(3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fuzz cases=20000 crashes=0")


@pytest.mark.slow  # each compiles the kernel with sanitizers
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("kernel", "if (position >= stop) return DRAY_CUT;", "if (position > stop) return DRAY_CUT;"),
        ("kernel", "if (size > capacity - used) {", "if (size > capacity - used + 1) {"),
        ("request", "if (left(frame) < 1) return 0;", "if (left(frame) < 0) return 0;"),
        ("request", "partitions > room - request->rows", "partitions > room - request->rows + 1"),
        ("request", "*number <= left(frame) / smallest", "*number <= left(frame) / smallest + 1"),
    ],
    ids=[
        "a read one byte too far",
        "a write one byte too far",
        "a request read one byte too far",
        "a row too many",
        "a batch that ends behind its frame",
    ],
)
def test_the_fuzzer_would_see(file: str, right: str, wrong: str, tmp_path: Path):
    """B6: a fuzzer that finds nothing proves something only if it finds a planted mistake."""
    source = (SOURCES / f"{file}.c").read_text()
    assert source.count(right) == 1
    planted = tmp_path / f"{file}.c"
    planted.write_text(source.replace(right, wrong))
    done = fuzz(3, f"--{file}", str(planted))
    assert done.returncode == 1
    assert "heap-buffer-overflow" in done.stderr
    assert "crashes=1" in done.stdout
