"""A broker process of its own whose object store fails as a test says, and which can be killed and cut off.

As a program it serves a directory and takes one line of faults at a time from its standard input; as a
module it starts that program. The records are files, so they survive `kill -9`; the faults do not.
"""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self, TypeVar

import psutil

from dray.buffers import Buffer
from dray.cli.settings import SECTIONS
from dray.clock import SystemClock
from dray.config import load, parse_set
from dray.ids import SeededEntropy
from dray.node.roles.broker import run_broker
from dray.objects.files import FileObjects
from dray.objects.opening import StoreEffects, StoreOptions
from dray.objects.retry import LOCAL, RetryingObjects, RetryPolicy
from dray.sim.objects import FaultyObjects, ObjectFaults
from tests.durability.daemon import START_S, STOP_S
from tests.log.proxy import Proxy

T = TypeVar("T")

IMPATIENT = RetryPolicy(attempts=3, attempt_seconds=0.5, total_seconds=2.0)
"""A remote store whose calls are given up soon: what hangs becomes an outcome that nobody knows."""


class FailingBroker:
    """The process. Used as a block: whatever runs at the end is killed."""

    def __init__(self, data: Path, seed: int = 0, *, remote: bool = False, **settings: object) -> None:
        self.road = Road()
        self.bootstrap = ""
        self.direct = ""
        """The address behind the road, until the next start."""
        given = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
        self._arguments = [str(data), str(seed), "remote" if remote else "local", *given]
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
        command = [sys.executable, "-m", "tests.clients.failing", *self._arguments, f"kafka.advertise={self.bootstrap}"]
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        threading.Thread(target=self._keep_log, args=(process,), daemon=True).start()
        watchdog = threading.Timer(START_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        watchdog.cancel()
        assert line.startswith("ready "), "".join(self.log)[-3000:]
        self.direct = f"127.0.0.1:{line.split()[1]}"
        self.road.lead_to(int(line.split()[1]))

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    def faults(self, faults: ObjectFaults) -> None:
        """Returns when they hold."""
        self._say(asdict(faults))

    def hang(self) -> None:
        """From now on no put returns before `go_on`."""
        self._say({"hang": True})

    def go_on(self) -> None:
        self._say({"hang": False})

    def stop(self, limit_s: float) -> int:
        """Let it stop by itself; the exit code."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(limit_s)

    @property
    def memory_bytes(self) -> int:
        assert self._process is not None
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def _say(self, what: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
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


class _Gate(FaultyObjects):
    """A store whose puts may be held up for as long as a test wants."""

    def __init__(self, inner: FileObjects, seed: int) -> None:
        super().__init__(inner, SystemClock(), SeededEntropy(seed), ObjectFaults())
        self.open = asyncio.Event()
        self.open.set()

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self.open.wait()
        await super().put(path, parts)

    def told(self, what: dict[str, float]) -> None:
        if "hang" not in what:
            self.faults = ObjectFaults(**what)
        elif what["hang"]:
            self.open.clear()
        else:
            self.open.set()


async def _serve(data: Path, seed: int, kind: str, given: list[str]) -> None:
    given = [f"broker.data={data}", "kafka.listen=127.0.0.1:0", "http.listen=127.0.0.1:0", "grpc.listen=", *given]
    if kind == "remote":  # as far as the broker knows: it collects, and hedges
        given += ["objects.url=s3://anywhere", "wal.linger=20ms"]
    gates: list[_Gate] = []

    async def open_store(address: str, options: StoreOptions, effects: StoreEffects) -> RetryingObjects:
        files = FileObjects(data / "objects", effects.disk, effects.offload, effects.entropy)
        await files.open()
        gates.append(_Gate(files, seed))
        policy = IMPATIENT if kind == "remote" else LOCAL
        return RetryingObjects(gates[0], effects.clock, effects.entropy, policy)

    config = load(SECTIONS, environ={}, overrides=[parse_set(one) for one in given])
    async with run_broker(config, open_store) as running:
        print("ready", running.kafka.port, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            gates[0].told(json.loads(line))
            print("set", flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
