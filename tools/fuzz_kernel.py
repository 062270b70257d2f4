"""Fuzz the C kernel under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tools/fuzz_kernel.py [--cases N] [--seed N] [--kernel FILE]

Builds tools/fuzz_kernel.c with the kernel into a temporary directory and runs
it over damaged copies of records that the Python builder made. Prints
`fuzz cases=N crashes=0`; anything else is an error. `--kernel` takes another
kernel.c, to see a planted mistake caught.
"""

import argparse
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from dray.records import MAX_TIMESTAMP, NewRecord, build_batch
from dray.records.layout import HEADER_SIZE

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "dray" / "records"
FLAGS = ["-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SAMPLES = 400


def sample(dice: random.Random) -> bytes:
    """Records of a seeded batch, behind their count and size."""

    def content() -> bytes | None:
        size = dice.choice((None, 0, 1, 5, 63, 64, 130))
        return None if size is None else dice.randbytes(size)

    records = [
        NewRecord(
            content(),
            content(),
            dice.choice((-1, 0, 1_700_000_000_000, MAX_TIMESTAMP)),
            [
                (dice.choice(("", "a", "é", "鍵", "🔑", "trace-id")), content())
                for _ in range(dice.choice((0, 0, 1, 3)))
            ],
        )
        for _ in range(dice.choice((1, 2, 3, 8, 70)))
    ]
    data = build_batch(records)[HEADER_SIZE:]
    return struct.pack("<II", len(records), len(data)) + data


def run(compiler: str, kernel: Path, cases: int, seed: int, work: Path) -> int:
    harness, seeds = work / "fuzz", work / "seeds"
    command = [compiler, *FLAGS, *SANITIZE, f"-I{SOURCES}", "-o", str(harness)]
    subprocess.run([*command, str(ROOT / "tools" / "fuzz_kernel.c"), str(kernel)], check=True)
    dice = random.Random(seed)
    seeds.write_bytes(b"".join(sample(dice) for _ in range(SAMPLES)))
    done = subprocess.run(
        [str(harness), str(seeds), str(cases), str(seed)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
    )
    if done.returncode != 0:
        print(done.stderr[-6_000:], file=sys.stderr)
        print(f"fuzz cases={cases} crashes=1 seed={seed}")
        return 1
    ran, accepted = done.stdout.split()
    print(f"fuzz cases={ran} crashes=0 accepted={accepted} seed={seed}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="fuzz the record kernel under sanitizers")
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernel", type=Path, default=SOURCES / "kernel.c")
    options = parser.parse_args()
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print("no C compiler: install gcc to fuzz the kernel", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as work:
        return run(compiler, options.kernel, options.cases, options.seed, Path(work))


if __name__ == "__main__":
    sys.exit(main())
