"""The local engine under kill -9."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.log.files import FileLog
from dray.log.port import BEFORE_ALL
from dray.offload import ThreadOffload
from tests.log.contract import take_upto

ROOT = Path(__file__).parents[2]


def run_and_kill(directory: Path, seed: int, acknowledgements: int) -> dict[int, int]:
    """Kill the appender after about so many acknowledgements; the position of each entry it reported."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.log.appender", str(directory), str(seed)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert process.stdout is not None
    acked: dict[int, int] = {}
    try:
        assert process.stdout.readline() == "ready\n"
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # the kill tore the report, not the log
            number, position = map(int, line.split())
            acked[number] = position
            if len(acked) == acknowledgements:
                os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    return acked


def directory_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


async def kill_rounds(directory: Path, rounds: int, seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    offload = ThreadOffload(2)
    acked: dict[tuple[int, int], int] = {}
    slowest = 0.0
    for round_number in range(rounds):
        reported = run_and_kill(directory, round_number, dice.randint(1, 1500))
        acked |= {(round_number, number): position for number, position in reported.items()}
        started = time.perf_counter()
        log = await FileLog.open(directory, disk=LocalDisk(), offload=offload, clock=SystemClock())
        slowest = max(slowest, time.perf_counter() - started)
        tail = await log.tail()
        found: dict[tuple[int, int], int] = {}
        last_of_round: dict[int, int] = {}
        for position, entry in await take_upto(log, BEFORE_ALL, tail):
            owner, number, padding = entry.split(b" ")
            assert padding.strip(b"x") == b""
            found[(int(owner), int(number))] = position
            last_of_round[int(owner)] = max(last_of_round.get(int(owner), 0), int(number))
        assert len(found) == tail, "an entry was invented or doubled"
        assert sorted(found.values()) == list(range(1, tail + 1))
        missing = {key for key in acked if found.get(key) != acked[key]}
        assert not missing
        assert set(last_of_round) <= set(range(round_number + 1))
        await log.close()
    size = directory_bytes(directory)
    print(f"{rounds} kills, {len(acked)} acknowledged, {size >> 20} MiB, slowest open {slowest * 1e3:.0f} ms")
    offload.close()


@pytest.mark.slow
async def test_what_was_acknowledged_survives_kill_nine(tmp_path: Path) -> None:
    """LG2, R-044."""
    await kill_rounds(tmp_path / "log", rounds=2, seed=1)


@pytest.mark.long
async def test_what_was_acknowledged_survives_twenty_kills(tmp_path: Path) -> None:
    """LG2, R-044."""
    await kill_rounds(tmp_path / "log", rounds=20, seed=2)
