"""The queues that `bench.heaps_grpc` measures: how each is started, what loads it, and what it syncs.

A server is started at its first use and lives until the program ends. One run
is one process with one load (`bench._heapload`); its figures come back with
the CPU time that the server and its children spent on a cycle.
"""

import atexit
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench._brokers import BadRun
from bench._targets import drayd
from tools.peers import queues
from tools.peers.node import node_command
from tools.peers.postgres import postgres
from tools.peers.process import run
from tools.peers.python import python_with_peers
from tools.peers.queues import QueueServer

ROOT: Final = Path(__file__).resolve().parent.parent
BULLMQ: Final = ("bullmq@6.7.0", "ioredis@5.11.1")
_MORE_SECONDS: Final = 300.0
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTarget:
    """One queue."""

    name: str
    synced: str
    """What is on disk when a put and an ack are answered."""
    start: Callable[[], AbstractContextManager[QueueServer]]
    load: Callable[[str], list[str | Path]]
    """The command that loads the server at an address; seconds, and a rate, follow."""


@contextmanager
def _start_dray() -> Iterator[QueueServer]:
    with drayd("--grpc", "127.0.0.1:0") as (process, facts, _):
        yield QueueServer(address=facts["grpc"], pid=process.pid)


@contextmanager
def _start_postgres() -> Iterator[QueueServer]:
    with postgres() as server:
        yield QueueServer(address=server.url, pid=server.pid)


def _python_load(kind: str) -> Callable[[str], list[str | Path]]:
    return lambda address: [python_with_peers(), "-m", "bench._heapload", f"_heappeers:{kind}", address]


def _dray_load(address: str) -> list[str | Path]:
    """Every run has a heap of its own."""
    return [sys.executable, "-m", "bench._heapload", "_heapqueue:DrayHeap", f"{address}/bench-{next(_numbers)}"]


def _bullmq_load(address: str) -> list[str | Path]:
    return [*node_command(ROOT / "bench" / "_heapload_bullmq.js", *BULLMQ), address]


DRAY: Final = QueueTarget(
    name="dray", synced="fdatasync of the log before each answer", start=_start_dray, load=_dray_load
)
PROCRASTINATE: Final = QueueTarget(
    name="procrastinate", synced="PostgreSQL, synchronous_commit on", start=_start_postgres,
    load=_python_load("Procrastinate"),
)  # fmt: skip
PGQUEUER: Final = QueueTarget(
    name="pgqueuer", synced="PostgreSQL, synchronous_commit on; acks in batches", start=_start_postgres,
    load=_python_load("PgQueuer"),
)  # fmt: skip
BULLMQ_TARGET: Final = QueueTarget(
    name="BullMQ", synced="Redis, appendfsync always", start=queues.redis, load=_bullmq_load
)
BEANSTALKD: Final = QueueTarget(
    name="beanstalkd", synced="-f0: fsync at each write", start=queues.beanstalkd, load=_python_load("Beanstalkd")
)
RABBITMQ: Final = QueueTarget(
    name="RabbitMQ", synced="quorum queue: confirms after a sync, acks without an answer", start=queues.rabbitmq,
    load=_python_load("RabbitMq"),
)  # fmt: skip
NATS: Final = QueueTarget(
    name="NATS", synced="JetStream, sync_interval always", start=queues.nats, load=_python_load("Nats")
)

_running: dict[Callable[[], AbstractContextManager[QueueServer]], QueueServer] = {}
_stack = ExitStack()
atexit.register(_stack.close)


def measure(target: QueueTarget, seconds: float, rate: float = 0.0) -> dict[str, float]:
    """Figures of one run against the server of a target, which is started now if it is not there yet."""
    if target.start not in _running:
        _running[target.start] = _stack.enter_context(target.start())
    server = _running[target.start]
    command = [*target.load(server.address), str(seconds), *([str(rate)] if rate else [])]
    before_s = _cpu_s(server.pid)
    told = run(command, directory=ROOT, seconds=seconds + _MORE_SECONDS)
    spent_s = _cpu_s(server.pid) - before_s
    figures: dict[str, float] = json.loads(told.splitlines()[-1])
    if figures["cycles"] <= 0:
        raise BadRun(f"{target.name}: nothing was done")
    return figures | {"server CPU us/cycle": spent_s / figures["cycles"] * 1e6}


def _cpu_s(pid: int) -> float:
    """Of a server and of its children, those that have ended included."""
    process = psutil.Process(pid)
    own = process.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in process.children(recursive=True):
        try:
            used = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system
    return total
