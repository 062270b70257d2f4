"""A log server and brokers on it, each a process of its own with a directory of its own."""

import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.durability.daemon import DRAYD, STOP_S, Drayd

QUICK = ("--set", "session.ttl=6s", "--set", "session.keepalive=2s")
"""What `drayd dev --brokers` sets."""


class Meta:
    """`drayd meta` on a directory."""

    def __init__(self, data: Path, domains: int) -> None:
        self.data = data
        self._command = [DRAYD, "meta", "--data", str(data), "--set", f"cluster.domains={domains}"]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("ready log=unix:")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(STOP_S)


class Cluster:
    """Used as a block: whatever runs at the end is killed. No broker is special."""

    def __init__(self, home: Path, *, brokers: int = 3, domains: int = 4) -> None:
        self.meta = Meta(home / "meta", domains)
        joins = ("--log", f"unix:{home / 'meta' / 'meta.sock'}", *QUICK)
        self.brokers = [
            Drayd(home / f"broker-{number}", *joins, "--set", f"broker.id={number}") for number in range(1, brokers + 1)
        ]
        self._stack = ExitStack()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.meta.start()
            stack.callback(self.meta.stop, signal.SIGKILL)
            for broker in self.brokers:
                stack.enter_context(broker)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
