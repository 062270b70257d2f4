"""A heap of two million messages in a broker: what it costs, what a start takes, and what streams beside it notice.

The heap is filled through gRPC once, in batches; then a load of 64 producers
and 64 workers goes on with it, and with one of 20,000 beside it. CPU time is
what counts where a machine that is busy would tell something else: a cycle of
the broker, a checkpoint part by part (`bench._heapcheckpoint`), a start.
"""

import asyncio
import atexit
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Final

import psutil
import uvloop

from bench._brokers import ROOT, BadRun, create_topic
from bench._targets import Running, ready_facts
from bench.harness import Absolute, Case, Comparison, Report, sized
from dray.client import BYTES, Client, NewMessage
from dray.client.consumer import Consumer
from dray.client.heap import Heap
from dray.replica.checkpointer import DUE_ROWS
from tools.peers.process import run, spawn, stop

FEW: Final = 20_000
BATCH: Final = 1_000
CALLERS: Final = 64
RATE: Final = 5_000
"""Cycles a second that the share of the checkpoint's child is told for; a cycle names three rows."""
PACED: Final = ("--rate=1000", "--seconds=5")
_START_S: Final = 600.0


def many() -> int:
    return sized(2_000_000, 50_000)


class Broker:
    """A broker on a directory of its own, that can be killed and started again."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="dray-bench-large-"))
        self.data = self._home / "data"
        self.started = self.start()

    def start(self) -> dict[str, float]:
        """Seconds until it was ready, and CPU seconds that it took."""
        began = time.monotonic()
        program = Path(sys.executable).with_name("drayd")
        command: list[str | Path] = [program, "dev", "--data", self.data, "--set", "compaction.enabled=false"]
        command += [word for door in ("kafka", "http", "grpc") for word in (f"--{door}", "127.0.0.1:0")]
        log = self._home / "drayd.log"
        with log.open("ab") as errors:
            self._process = spawn(command, stdout=subprocess.PIPE, stderr=errors)
        facts = ready_facts(self._process, log, _START_S)
        self.grpc, self.kafka = facts["grpc"], facts["kafka"]
        return {"s": time.monotonic() - began, "CPU s": self.cpu_s()}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        stop(self._process)
        shutil.rmtree(self._home, ignore_errors=True)

    def cpu_s(self) -> float:
        """Of the broker alone: its child is measured by itself."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        return int(psutil.Process(self._process.pid).memory_info().rss)


_stack = ExitStack()
atexit.register(_stack.close)


@cache
def broker() -> Broker:
    """With a heap of each size; what a message of the large one takes is noted on the way."""
    made = Broker()
    _stack.callback(made.close)
    uvloop.run(_fill(made.grpc, "few", FEW))
    before = made.resident_bytes()
    uvloop.run(_fill(made.grpc, "many", many()))
    _memory["bytes"] = (made.resident_bytes() - before) / many()
    return made


_memory: dict[str, float] = {}


async def _fill(address: str, name: str, count: int) -> None:
    async with Client(address, codec=BYTES, timeout=300.0) as client:
        await client.make_heap(name)
        heap, batches = client.heap(name), iter(range(count // BATCH))

        async def put() -> None:
            for batch in batches:
                body = b"%08d" % batch + bytes(100)
                await heap.enqueue_batch([NewMessage(payload=body, priority=at % 10) for at in range(BATCH)])

        await asyncio.gather(*(put() for _ in range(4)))


def cycle_us(name: str) -> float:
    """CPU microseconds that the broker spends on an enqueue, a pop and an ack."""
    running = broker()
    before_s = running.cpu_s()
    cycles = uvloop.run(_cycles(running.grpc, name, float(sized(5, 1))))
    if not cycles:
        raise BadRun("nothing was done")
    return (running.cpu_s() - before_s) / cycles * 1e6


async def _cycles(address: str, name: str, seconds: float) -> int:
    async with Client(address, codec=BYTES, timeout=120.0) as client:
        heap, ends_s, acked = client.heap(name), time.monotonic() + seconds, 0

        async def put(heap: Heap, number: int) -> None:
            turn = number
            while time.monotonic() < ends_s:
                turn += 1
                await heap.enqueue(bytes(108), priority=turn % 10)

        async def work(consumer: Consumer) -> None:
            nonlocal acked
            while time.monotonic() < ends_s:
                async with await consumer.next():
                    pass
                acked += 1

        async with heap.pop(concurrency=CALLERS) as consumer:
            await asyncio.gather(
                *(put(heap, number) for number in range(CALLERS)), *(work(consumer) for _ in range(CALLERS))
            )
        return acked


def _rate(name: str) -> float:
    return 1e6 / cycle_us(name)


def message_bytes() -> float:
    broker()
    return _memory["bytes"]


@cache
def checkpoint_parts() -> dict[str, float]:
    """After some cycles: of their rows the child's fold is made."""
    for _ in range(3):
        cycle_us("many")
    told = run([sys.executable, "-m", "bench._heapcheckpoint", str(broker().data)], directory=ROOT, seconds=_START_S)
    figures: dict[str, float] = json.loads(told.splitlines()[-1])
    return figures


def _fold_s(rows: int) -> float:
    parts = checkpoint_parts()
    if not parts["rows"]:
        raise BadRun("there was nothing to fold: a checkpoint was made just before")
    return rows * parts["fold s"] / parts["rows"]


def child_share() -> float:
    """Percent of a core at `RATE`: a checkpoint is made for every `DUE_ROWS` rows."""
    parts = checkpoint_parts()
    once_s = parts["start s"] + parts["load s"] + parts["dump s"] + parts["write s"]
    return (once_s + _fold_s(DUE_ROWS)) / (DUE_ROWS / (3 * RATE)) * 100


def longest_hold_ms() -> float:
    return max(value for name, value in checkpoint_parts().items() if name.endswith("held ms"))


@cache
def restart() -> dict[str, float]:
    """After kill -9, with the log as the load has left it."""
    running = broker()
    checkpoint_parts()
    running.kill()
    found = running.start()
    parts = checkpoint_parts()
    return {
        "s": found["s"],
        "CPU s": found["CPU s"],
        "CPU s of a start with nothing": running.started["CPU s"],
        "CPU s of loading": parts["load s"],
        "CPU s of folding as much as there may be": _fold_s(DUE_ROWS),
    }


def streams_beside() -> dict[str, float]:
    """Acknowledgements at 1,000 records a second: alone, and while either heap is worked on as fast as it goes."""
    running = broker()
    kafka = Running(address=running.kafka, pid=0, ready_s=0.0)
    topic = create_topic(kafka, 4)
    command = [sys.executable, "-m", "bench._pacer", running.kafka, topic, *PACED]
    figures: dict[str, float] = {}
    for side, heap in (("alone", ""), (f"beside {FEW:,}", "few"), (f"beside {many():,}", "many")):
        load = None
        if heap:
            words = [running.grpc, heap, "8"]
            load = subprocess.Popen([sys.executable, "-m", "bench.heaps_large", *words], cwd=ROOT)
        try:
            said = json.loads(run(command, directory=ROOT))
        finally:
            if load is not None:
                load.wait()
        if said["errors"]:
            raise BadRun(f"not every record was acknowledged: {said['errors']}")
        figures |= {f"{side}: p50 ms": said["p50_ms"], f"{side}: p99 ms": said["p99_ms"]}
    return figures


def cases() -> list[Case]:
    size = f"{many():,}"
    return [
        Comparison(
            f"cycles for a second of the broker's CPU, {size} messages against {FEW:,}",
            lambda: _rate("many"), lambda: _rate("few"), 1 / 2, "cycles/s",
        ),
        Absolute(f"memory of a message at {size}", message_bytes, 160, "bytes", at_most=True, note="of the broker"),
        Absolute("a checkpoint's child, at 5,000 cycles/s", child_share, 12, "% of a core", at_most=True),
        Absolute(
            "longest hold of a loop beside it: loaded, written, read back, left", longest_hold_ms, 50, "ms CPU",
            at_most=True,
        ),
        Report("a checkpoint, part by part", checkpoint_parts),
        Absolute("start after kill -9", lambda: restart()["s"], 5, "s", at_most=True),
        Report("start after kill -9, part by part", restart),
        Report("acknowledgements of streams in its domain", streams_beside),
    ]  # fmt: skip


if __name__ == "__main__":
    print(uvloop.run(_cycles(sys.argv[1], sys.argv[2], float(sys.argv[3]))))
