"""The brokers that are measured: Dray, and Apache Kafka beside it.

A target is a name and a way to start one. `subject()` and `peer()` give the
pair that comparisons use; both are started at first use and live until the
program ends, so that runs take turns on warm brokers.

`DRAY_BENCH_SUBJECT=kafka` puts a second Kafka in Dray's place: every ratio is
then near 1, which is how the benchmarks themselves are checked.
"""

import atexit
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.peers.kafka import kafka_broker
from tools.peers.process import PeerError, spawn, stop

_DRAY_READY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A broker that takes requests."""

    address: str
    pid: int
    ready_s: float
    """From the start of the process to its first answer."""
    directory: Path | None = None
    """Its data, if it is a Dray."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something that can be measured."""

    name: str
    start: Callable[[], AbstractContextManager[Running]]


@contextmanager
def _start_kafka() -> Iterator[Running]:
    began = time.monotonic()
    with kafka_broker() as broker:
        yield Running(address=broker.address, pid=broker.pid, ready_s=time.monotonic() - began)


@contextmanager
def drayd(*more: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str], Path]]:
    """A broker on a directory of its own: its process, the addresses that it told, and its data."""
    program = Path(sys.executable).with_name("drayd")
    if not program.exists():
        raise PeerError(f"there is no {program.name} beside {sys.executable}: run `make setup`")
    directory = Path(tempfile.mkdtemp(prefix="dray-bench-"))
    command: list[str | Path] = [
        program,
        "dev",
        "--data",
        directory / "data",
        "--kafka",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--set",
        "compaction.enabled=false",  # Spark beside a broker is measured by itself
        *more,
    ]
    log = directory / "drayd.log"
    try:
        with log.open("wb") as errors:
            process = spawn(command, stdout=subprocess.PIPE, stderr=errors)
        try:
            yield process, ready_facts(process, log), directory / "data"
        finally:
            stop(process)
    except BaseException:
        shutil.rmtree(directory / "data", ignore_errors=True)
        raise
    shutil.rmtree(directory)


@contextmanager
def _start_dray(*more: str) -> Iterator[Running]:
    began = time.monotonic()
    with drayd("--grpc", "", *more) as (process, facts, data):
        yield Running(address=facts["kafka"], pid=process.pid, ready_s=time.monotonic() - began, directory=data)


def ready_facts(process: subprocess.Popen[bytes], log: Path, seconds: float = _DRAY_READY_SECONDS) -> dict[str, str]:
    """The addresses in the line `ready kafka=HOST:PORT http=URL grpc=HOST:PORT`, by their names."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], seconds)
    line = process.stdout.readline().decode(errors="replace").strip() if readable else ""
    first, *pairs = line.split() or [""]
    facts = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if first != "ready" or "kafka" not in facts:
        said = log.read_text(errors="replace")[-2000:]
        raise PeerError(f"drayd did not say `ready kafka=HOST:PORT`, but {line!r}; {log} ends with: {said}")
    return facts


def ready_address(process: subprocess.Popen[bytes], log: Path) -> str:
    """The Kafka address, or addresses, that a broker tells."""
    return ready_facts(process, log)["kafka"]


KAFKA: Final = Target(name="kafka", start=_start_kafka)
DRAY: Final = Target(name="dray", start=_start_dray)
STAND_IN: Final = Target(name="kafka as dray", start=_start_kafka)


def dray_brokers(count: int) -> Target:
    """A log server and several brokers."""
    return Target(name=f"dray x{count}", start=lambda: _start_dray("--brokers", str(count)))


def subject() -> Target:
    """What is measured."""
    chosen = os.environ.get("DRAY_BENCH_SUBJECT", "dray")
    if chosen not in ("dray", "kafka"):
        raise ValueError(f"DRAY_BENCH_SUBJECT is {chosen!r}; it may be dray or kafka")
    return DRAY if chosen == "dray" else STAND_IN


def peer() -> Target:
    """What it is measured against."""
    return KAFKA


_running: dict[str, Running] = {}
_stack = ExitStack()
atexit.register(_stack.close)


def running(target: Target) -> Running:
    """The one broker of this target that all cases share; started now if it is not there yet."""
    if target.name not in _running:
        _running[target.name] = _stack.enter_context(target.start())
    return _running[target.name]
