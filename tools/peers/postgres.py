"""PostgreSQL from the system's packages: a server of our own on a free port of 127.0.0.1, with data that it keeps.

python -m tools.peers.postgres DIR     run it until interrupted
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tools.peers.process import PeerError, free_ports, run, serving, tool

USER: Final = "dray"
LOOPBACK: Final = "127.0.0.1"
_SYSTEM_USER: Final = "postgres"
_START_SECONDS: Final = 60.0
_PLACES: Final = "/usr/lib/postgresql"


def program(name: str) -> str:
    """A program of the newest version that there is."""
    found = sorted(Path(_PLACES).glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return str(found[-1]) if found else tool(name, "postgresql")


class Postgres:
    """One server; it can be hurt, and started again on what it kept."""

    def __init__(self, root: Path, host: str = LOOPBACK) -> None:
        if not shutil.which("initdb") and not list(Path(_PLACES).glob("*/bin/initdb")):
            tool("psql", "postgresql")  # the package brings the server and its user
        self._user = _SYSTEM_USER if os.geteuid() == 0 else None  # it refuses to run as root
        self._root = root
        self._log = root / "log"
        (self.port,) = free_ports(1)
        self._running: ExitStack | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            os.chown(root, owner.pw_uid, owner.pw_gid)
        made = [program("initdb"), "-D", str(root / "data"), "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8"]
        run(made if self._user is None else ["runuser", "-u", self._user, "--", *made])
        self.host = host
        if host != LOOPBACK:  # whoever is in the same network may come in
            with (root / "data" / "pg_hba.conf").open("a", encoding="utf-8") as allowed:
                allowed.write(f"host all all {host}/24 trust\n")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@{self.host}:{self.port}/postgres"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PeerError("the server does not run")
        return self._process.pid

    def start(self) -> None:
        """Serve, and return when it answers."""
        stack = ExitStack()
        command: list[str | Path] = [
            program("postgres"), "-D", self._root / "data", "-p", str(self.port), "-c", f"listen_addresses={self.host}",
            "-k", self._root, "-c", "max_connections=200",
        ]  # fmt: skip
        self._process = stack.enter_context(
            serving(command, log=self._log, ready=self._answers, user=self._user, seconds=_START_SECONDS)
        )
        self._running = stack

    def kill(self) -> None:
        """As a crash does: nothing is flushed that was not."""
        if self._process is None or self._running is None:
            raise PeerError("the server does not run")
        self._process.send_signal(signal.SIGQUIT)  # "immediate": it leaves no process behind that holds the directory
        self._process.wait(30)
        self._running.close()
        self._running = None

    def stop(self) -> None:
        if self._process is not None and self._running is not None:
            self._process.send_signal(signal.SIGINT)  # "fast": it does not wait for its clients
            self._process.wait(60)
            self._running.close()
            self._running = None

    def _answers(self) -> bool:
        with socket.create_connection((self.host, self.port), timeout=1):
            pass
        asked = [program("psql"), "-h", self.host, "-p", str(self.port), "-U", USER, "-Atc", "select 1", "postgres"]
        return subprocess.run(asked, capture_output=True, check=False, timeout=30).returncode == 0


@contextmanager
def postgres(host: str = LOOPBACK) -> Iterator[Postgres]:
    """A server that runs until the end of the block, in a directory that its user may enter."""
    root = Path(tempfile.mkdtemp(prefix="dray-postgres-"))
    try:
        server = Postgres(root, host)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    with postgres() as running:
        print(running.url, flush=True)
        sys.stdin.read()
