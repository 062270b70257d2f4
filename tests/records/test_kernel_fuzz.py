"""The kernel under sanitizers; `make check` runs the same for longer."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "src" / "dray" / "records" / "kernel.c"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc and its sanitizers")


def fuzz(kernel: Path, seed: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/fuzz_kernel.py", "--cases", "20000", "--seed", str(seed), "--kernel", str(kernel)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_damaged_input_never_leads_outside_a_buffer():
    """B6"""
    done = fuzz(KERNEL, seed=3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fuzz cases=20000 crashes=0")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if (position >= stop) return DRAY_CUT;", "if (position > stop) return DRAY_CUT;"),
        ("if (size > capacity - used) {", "if (size > capacity - used + 1) {"),
    ],
    ids=["a read one byte too far", "a write one byte too far"],
)
def test_the_fuzzer_would_see(right: str, wrong: str, tmp_path: Path):
    """B6: a fuzzer that finds nothing proves something only if it finds a planted mistake."""
    source = KERNEL.read_text()
    assert source.count(right) == 1
    planted = tmp_path / "kernel.c"
    planted.write_text(source.replace(right, wrong))
    done = fuzz(planted, seed=3)
    assert done.returncode == 1
    assert "heap-buffer-overflow" in done.stderr
    assert "crashes=1" in done.stdout
