"""Run the tests of the machine's C kernels under AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tools.sanitize_kernels [--source DIRECTORY]

Builds the kernels with sanitizers into a temporary directory and lets the
tests that compare them with their twins use these builds. `--source` takes
another copy of `src/dray/machine`, to see a planted mistake caught.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "dray" / "machine"
KERNELS = {"dray.machine._kernel": ".", "dray.machine.heaps._kernel": "heaps"}
TESTS = [
    *(f"tests/machine/heaps/test_{name}.py" for name in ("order", "leases", "shards")),
    "tests/machine/test_kernel.py",
]
FLAGS = ["-g", "-O1", "-std=c11", "-fPIC", "-shared", "-fno-omit-frame-pointer"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
INSTEAD = """
import importlib.util
import sys


class Sanitized:
    @staticmethod
    def find_spec(name, path=None, target=None):
        built = {built!r}.get(name)
        return importlib.util.spec_from_file_location(name, built) if built else None


sys.meta_path.insert(0, Sanitized)
"""
USED = """
import importlib
import sys

for module, built in {built!r}.items():
    if importlib.import_module(module).__file__ != built:
        sys.exit(f"another build of {{module}} was loaded")
"""


def build(source: Path, target: Path) -> None:
    """A kernel, with sanitizers."""
    files = sorted(str(path) for path in source.glob("*.c"))
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["gcc", *FLAGS, *SANITIZE, include, f"-I{source}", *files, "-o", str(target)], check=True)


def environment(directory: Path, built: dict[str, str]) -> dict[str, str]:
    """Of a process that loads these builds instead of the installed ones."""
    (directory / "sitecustomize.py").write_text(INSTEAD.format(built=built), encoding="utf-8")
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
    parser.add_argument("--source", type=Path, default=SOURCES, help="where the kernels' sources are")
    source: Path = parser.parse_args().source
    with tempfile.TemporaryDirectory(prefix="dray-sanitized-") as made:
        directory = Path(made)
        built = {module: str(directory / f"{module}.so") for module in KERNELS}
        for module, folder in KERNELS.items():
            build(source / folder, Path(built[module]))
        chosen = environment(directory, built)
        subprocess.run([sys.executable, "-c", USED.format(built=built)], env=chosen, cwd=ROOT, check=True)
        # What a planted mistake would find is found without sanitizers: each builds a kernel of its own.
        picked = ["-m", "not long", "-k", "not a_mistake_in_the_kernel"]
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *picked, *TESTS]
        return subprocess.run(command, env=chosen, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
