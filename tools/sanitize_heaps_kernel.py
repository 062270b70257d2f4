"""Run the tests of the heaps' C kernel under AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tools.sanitize_heaps_kernel [--source DIRECTORY]

Builds the kernel with sanitizers into a temporary directory and lets the tests
that compare it with its twin use that build. `--source` takes another copy of
its sources, to see a planted mistake caught.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "dray" / "machine" / "heaps"
MODULE = "dray.machine.heaps._kernel"
TESTS = [f"tests/machine/heaps/test_{name}.py" for name in ("order", "leases", "shards")]
FLAGS = ["-g", "-O1", "-std=c11", "-fPIC", "-shared", "-fno-omit-frame-pointer"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
INSTEAD = """
import importlib.util
import sys


class Sanitized:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, {built!r}) if name == {module!r} else None


sys.meta_path.insert(0, Sanitized)
"""
USED = "import sys, {module} as kernel; sys.exit(0 if kernel.__file__ == {built!r} else 'another build was loaded')"


def build(source: Path, target: Path) -> None:
    """The kernel, with sanitizers."""
    files = sorted(str(path) for path in source.glob("*.c"))
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["gcc", *FLAGS, *SANITIZE, include, f"-I{source}", *files, "-o", str(target)], check=True)


def environment(directory: Path, built: Path) -> dict[str, str]:
    """Of a process that loads this build instead of the installed one."""
    (directory / "sitecustomize.py").write_text(INSTEAD.format(built=str(built), module=MODULE), encoding="utf-8")
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    return os.environ | {
        "LD_PRELOAD": library.stdout.strip(),
        "PYTHONPATH": str(directory),
        "PYTHONMALLOC": "malloc",  # else small blocks come from an arena, and nobody sees who writes behind one
        "ASAN_OPTIONS": "detect_leaks=0",  # an interpreter that ends frees little
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, default=SOURCES, help="where the kernel's sources are")
    source: Path = parser.parse_args().source
    with tempfile.TemporaryDirectory(prefix="dray-sanitized-") as made:
        directory = Path(made)
        built = directory / "_kernel.so"
        build(source, built)
        chosen = environment(directory, built)
        used = USED.format(module=MODULE, built=str(built))
        subprocess.run([sys.executable, "-c", used], env=chosen, cwd=ROOT, check=True)
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-m", "not long", *TESTS]
        return subprocess.run(command, env=chosen, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
