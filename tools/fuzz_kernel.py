"""Fuzz the C kernel under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tools/fuzz_kernel.py [--cases N] [--seed N] [--kernel FILE] [--request FILE]

Builds tools/fuzz_kernel.c with the kernel into a temporary directory and runs
it over damaged copies of records and of Produce requests that the Python
builders made. Prints `fuzz cases=N crashes=0`; anything else is an error.
`--kernel` and `--request` take another kernel.c or request.c, to see a planted
mistake caught.
"""

import argparse
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dray.records import MAX_TIMESTAMP, NewRecord, build_batch
from dray.records.layout import HEADER_SIZE
from dray.servers.kafka.messages.produce import SCHEMA as PRODUCE
from dray.servers.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.request_header import RequestHeader

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "dray" / "records"
FLAGS = ["-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SAMPLES = 400


def some_records(dice: random.Random) -> list[NewRecord]:
    """Records that touch nulls, empties, header keys and longer varints."""

    def content() -> bytes | None:
        size = dice.choice((None, 0, 1, 5, 63, 64, 130))
        return None if size is None else dice.randbytes(size)

    return [
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


def sample(count: int, data: bytes) -> bytes:
    return struct.pack("<II", count, len(data)) + data


def records_sample(dice: random.Random) -> bytes:
    """Records of a seeded batch, behind their count and size."""
    records = some_records(dice)
    return sample(len(records), build_batch(records)[HEADER_SIZE:])


def frame_sample(dice: random.Random) -> bytes:
    """A Produce request, behind the count of its partitions and its size."""
    shape = [dice.choice((1, 1, 1, 2, 5)) for _ in range(dice.choice((1, 1, 2, 3)))]
    request = ProduceRequest(
        acks=dice.choice((-1, 1)),
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=dice.choice(("a", "orders", "t" * 140)),
                partition_data=[
                    PartitionProduceData(index=index, records=build_batch(some_records(dice)))
                    for index in range(partitions)
                ],
            )
            for partitions in shape
        ],
    )
    header = RequestHeader(0, dice.choice((9, 12)), dice.randrange(1 << 31), dice.choice((None, "", "client", "é")))
    parts = (*REQUEST_HEADER.write[2](header), *PRODUCE.request.write[9](request))
    return sample(sum(shape), b"".join(parts))


def run(compiler: str, sources: Sequence[Path], cases: int, seed: int, work: Path) -> int:
    harness, records, frames = work / "fuzz", work / "records", work / "frames"
    command = [compiler, *FLAGS, *SANITIZE, f"-I{SOURCES}", "-o", str(harness)]
    subprocess.run([*command, str(ROOT / "tools" / "fuzz_kernel.c"), *map(str, sources)], check=True)
    dice = random.Random(seed)
    records.write_bytes(b"".join(records_sample(dice) for _ in range(SAMPLES)))
    frames.write_bytes(b"".join(frame_sample(dice) for _ in range(SAMPLES)))
    done = subprocess.run(
        [str(harness), str(records), str(frames), str(cases), str(seed)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
    )
    if done.returncode != 0:
        print(done.stderr[-6_000:], file=sys.stderr)
        print(f"fuzz cases={cases} crashes=1 seed={seed}")
        return 1
    ran, accepted, plain = done.stdout.split()
    print(f"fuzz cases={ran} crashes=0 accepted={accepted} plain={plain} seed={seed}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="fuzz the record kernel under sanitizers")
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernel", type=Path, default=SOURCES / "kernel.c")
    parser.add_argument("--request", type=Path, default=SOURCES / "request.c")
    options = parser.parse_args()
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print("no C compiler: install gcc to fuzz the kernel", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as work:
        return run(compiler, (options.kernel, options.request), options.cases, options.seed, Path(work))


if __name__ == "__main__":
    sys.exit(main())
