"""`drayd` as processes of their own: those that serve, and those that are expected to end."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

DRAYD = (str(Path(sys.executable).with_name("drayd")),)
LIMIT_S = 60


class Ended(NamedTuple):
    """How a process that did not serve ended."""

    code: int
    stdout: str
    stderr: str


class Daemon:
    """A broker that serves."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.log: list[str] = []
        assert process.stderr is not None
        assert process.stdout is not None
        self._logging = threading.Thread(target=self.log.extend, args=(process.stderr,), daemon=True)
        self._logging.start()
        watchdog = threading.Timer(LIMIT_S, process.kill)
        watchdog.start()
        self.ready = process.stdout.readline()
        watchdog.cancel()
        assert self.ready.startswith("ready kafka="), self.log
        self.told = dict(word.split("=", 1) for word in self.ready.split()[1:])
        self.kafka, self.url = self.told["kafka"], self.told["http"]
        self.http = self.url.removeprefix("http://").removesuffix("/")

    def stop(self, seconds: float = LIMIT_S) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        self._logging.join(LIMIT_S)
        return code


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAY__")}
    return kept | {"DRAY__GRPC__LISTEN": ""}


def ended(*arguments: object, command: Sequence[str] = DRAYD) -> Ended:
    done = subprocess.run(
        [*command, *map(str, arguments)], env=environment(), capture_output=True, text=True, timeout=LIMIT_S
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@contextmanager
def serving(*arguments: object, command: Sequence[str] = DRAYD) -> Iterator[Daemon]:
    """`drayd dev` with these arguments, until the end of the block."""
    process = subprocess.Popen(
        [*command, "dev", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield Daemon(process)
    finally:
        process.kill()
        process.wait(LIMIT_S)
