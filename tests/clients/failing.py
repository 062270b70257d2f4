"""A broker process of its own whose object store fails as a test says, and which can be killed and cut off.

As a program it serves a directory and takes one line of faults at a time from its standard input; as a
module it starts that program. The records are files, so they survive `kill -9`; the faults do not.
"""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Self, TypeVar

from dray.cli.settings import SECTIONS
from dray.clock import SystemClock
from dray.config import load, parse_set
from dray.ids import SeededEntropy
from dray.node.broker import run_broker
from dray.objects.files import FileObjects
from dray.objects.opening import Effects, StoreOptions
from dray.objects.retry import LOCAL, RetryingObjects, RetryPolicy
from dray.sim.objects import FaultyObjects, ObjectFaults
from tests.durability.daemon import START_S, STOP_S
from tests.log.proxy import Proxy

T = TypeVar("T")

IMPATIENT = RetryPolicy(attempts=3, attempt_seconds=0.5, total_seconds=2.0)
"""A remote store whose calls are given up soon: what hangs becomes an outcome that nobody knows."""


class FailingBroker:
    """The process. Used as a block: whatever runs at the end is killed."""

    def __init__(self, data: Path, seed: int, *, remote: bool) -> None:
        self.road = Road()
        self.bootstrap = ""
        self._arguments = [str(data), str(seed), "remote" if remote else "local"]
        self.log: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.bootstrap = self.road.open()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.road.close()

    def start(self) -> None:
        """Returns when it serves; its store is well."""
        command = [sys.executable, "-m", "tests.clients.failing", *self._arguments, self.bootstrap]
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        threading.Thread(target=self._keep_log, args=(process,), daemon=True).start()
        watchdog = threading.Timer(START_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        watchdog.cancel()
        assert line.startswith("ready "), "".join(self.log)[-3000:]
        self.road.lead_to(int(line.split()[1]))

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    def faults(self, faults: ObjectFaults) -> None:
        """Returns when they hold."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asdict(faults)), file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "set\n"

    def _keep_log(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        self.log.extend(process.stderr)


class Road:
    """The way to a broker, which can be cut; it keeps its port when the broker gets another."""

    def __init__(self) -> None:
        self._proxy = Proxy(("127.0.0.1", 0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def open(self) -> str:
        """Returns its address."""
        self._thread.start()
        _, port = self._do(self._proxy.listen(self._proxy.target))
        return f"127.0.0.1:{port}"

    def lead_to(self, port: int) -> None:
        self._proxy.target = ("127.0.0.1", port)

    def cut(self) -> None:
        """End every connection, and with it what is under way in either direction."""
        self._do(self._proxy.cut())

    def close(self) -> None:
        self._do(self._proxy.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)

    def _do(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_S)


class _Store:
    def __init__(self, directory: Path, seed: int, policy: RetryPolicy) -> None:
        self._directory = directory
        self._entropy = SeededEntropy(seed)
        self._policy = policy
        self.faulty: FaultyObjects | None = None

    async def open(self, address: str, options: StoreOptions, effects: Effects) -> RetryingObjects:
        files = FileObjects(self._directory, effects.disk, effects.offload, effects.entropy)
        await files.open()
        self.faulty = FaultyObjects(files, SystemClock(), self._entropy, ObjectFaults())
        return RetryingObjects(self.faulty, effects.clock, effects.entropy, self._policy)


async def _serve(data: Path, seed: int, kind: str, advertise: str) -> None:
    given = {"broker.data": data, "kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}
    given["kafka.advertise"] = advertise
    if kind == "remote":
        given["objects.url"] = "s3://anywhere"  # as far as the broker knows: it collects, and hedges
        given["wal.linger"] = "20ms"
    config = load(SECTIONS, environ={}, overrides=[parse_set(f"{key}={value}") for key, value in given.items()])
    store = _Store(data / "objects", seed, IMPATIENT if kind == "remote" else LOCAL)
    async with run_broker(config, store.open) as running:
        assert store.faulty is not None
        print("ready", running.kafka.port, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            store.faulty.faults = ObjectFaults(**json.loads(line))
            print("set", flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
