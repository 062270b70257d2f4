"""What a broker costs that does nothing: time to ready, resident memory, and memory of an idle connection."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench._brokers import ROOT, BadRun, resident_bytes
from bench._targets import Running, subject
from bench.harness import Absolute, Case
from tools.peers.process import stop

CONNECTIONS: Final = 2000
_SETTLE_SECONDS: Final = 2.0


def cases() -> list[Case]:
    return [
        Absolute("start to ready", run=_ready_seconds, mark=1.5, unit="s", at_most=True, note="an empty directory"),
        Absolute("idle RSS", run=_idle_megabytes, mark=120.0, unit="MB", at_most=True),
        Absolute(
            "RSS of an idle connection",
            run=_connection_kib,
            mark=40.0,
            unit="KiB",
            at_most=True,
            note=f"{CONNECTIONS} connections",
        ),
    ]


def _ready_seconds() -> float:
    with subject().start() as broker:
        return broker.ready_s


def _idle_megabytes() -> float:
    with subject().start() as broker:
        return _settled_bytes(broker) / 1e6


def _connection_kib() -> float:
    with subject().start() as broker:
        with _held(broker, 10):  # the code of a first connection is not the cost of the next
            before = _settled_bytes(broker)
        with _held(broker, CONNECTIONS):
            return (_settled_bytes(broker) - before) / CONNECTIONS / 1024


def _settled_bytes(broker: Running) -> int:
    time.sleep(_SETTLE_SECONDS)
    return resident_bytes(broker.pid)


@contextmanager
def _held(broker: Running, count: int) -> Iterator[None]:
    """Connections that have said hello and are silent since."""
    command = [sys.executable, "-m", "bench._rawload", "hold", broker.address, f"--connections={count}"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        _expect(json.loads(process.stdout.readline() or b"{}"), {"held": count, "errors": {}})
        yield
        process.stdin.close()
        _expect(json.loads(process.stdout.readline() or b"{}"), {"held": count, "lost": 0})
    finally:
        stop(process)


def _expect(said: object, wanted: object) -> None:
    if said != wanted:
        raise BadRun(f"the idle connections should report {wanted}, but report {said}")
