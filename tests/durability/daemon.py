"""`drayd dev` as a process of its own, on a port that stays: started, killed, frozen and started again."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

DRAYD = str(Path(sys.executable).with_name("drayd"))
NO_SPARK = ("--set", "compaction.enabled=false")
"""A broker that lives for minutes would start it beside the test."""
START_S = 60
STOP_S = 60
_FIRST_PORT, _PORTS = 20_000, 12_000
"""Below 32768, where the system takes the ports of outgoing connections from."""
_given: set[int] = set()
"""Ports of this process, which perhaps nobody listens on yet."""


def free_port() -> int:
    """A port that nobody listens on, and that no outgoing connection will be given."""
    for step in range(_PORTS):
        port = _FIRST_PORT + (os.getpid() * 37 + step) % _PORTS
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise AssertionError("no port is free")


class Drayd:
    """One broker process and its directory. Used as a block: whatever runs at the end is killed."""

    def __init__(self, data: Path, *flags: str, host: str = "127.0.0.1", files: int | None = None) -> None:
        """`files`: how many the process may open; at first half as many."""
        self.data = data
        self.port = free_port()
        self.flags = flags
        self.files = files
        self.listen = f"{host}:{self.port}"
        self.bootstrap = f"{'127.0.0.1' if host == '0.0.0.0' else host}:{self.port}"
        self.http = ""
        self.environment: dict[str, str] = {}
        """Beside that of the test."""
        self.prefix: tuple[str, ...] = ()
        """What runs it: a network namespace, say."""
        self.log: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.kill()

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Returns when it serves."""
        command = [
            DRAYD,
            "dev",
            "--data",
            str(self.data),
            "--kafka",
            self.listen,
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "",
            *NO_SPARK,
        ]
        if self.files is not None:
            limits = f"ulimit -Sn {self.files // 2} && ulimit -Hn {self.files}"
            command = ["sh", "-c", f'{limits} && exec "$@"', "sh", *command]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DRAY__")}
        environment |= self.environment
        self._process = process = subprocess.Popen(
            [*self.prefix, *command, *self.flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        threading.Thread(target=self._keep_log, args=(process,), daemon=True).start()
        watchdog = threading.Timer(START_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        ready = process.stdout.readline()
        watchdog.cancel()
        assert ready.startswith("ready kafka="), (ready, "".join(self.log)[-3000:])
        self.http = ready.rpartition("http=http://")[2].strip().removesuffix("/")

    def kill(self) -> None:
        """kill -9: nothing is finished, nothing is flushed."""
        process = self._running()
        process.kill()
        process.wait(STOP_S)

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        process = self._running()
        process.terminate()
        return process.wait(STOP_S)

    def ended(self) -> int:
        """Wait until it has ended by itself; the exit code."""
        return self._running().wait(STOP_S)

    def freeze(self) -> None:
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "not started"
        return self._process

    def _keep_log(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        self.log.extend(process.stderr)
