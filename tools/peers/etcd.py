"""etcd: the system's package, or a newer one built from its module; one member or three on ports of 127.0.0.1.

python -m tools.peers.etcd     run one member until interrupted

The first start of the newer one builds it, which takes Go and two minutes.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tools.peers.process import PeerError, await_ready, cached, free_ports, run, spawn, stop, tool

VERSION: Final = "v3.6.16"
_MODULE: Final = f"go.etcd.io/etcd/server/v3@{VERSION}"
_START_SECONDS: Final = 60.0
_MAIN: Final = """package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""


def packaged() -> str:
    """What the system has: 3.4."""
    return tool("etcd", "etcd-server")


def newest() -> str:
    """The newest release, built if it is not there yet."""

    def build(directory: Path) -> None:
        go = tool("go", "golang-go")
        work = directory / "build"
        work.mkdir()
        (work / "main.go").write_text(_MAIN, encoding="utf-8")
        run([go, "mod", "init", "etcd"], directory=work)
        run([go, "get", _MODULE], directory=work)
        run([go, "mod", "tidy"], directory=work)
        run([go, "build", "-ldflags=-s -w", "-o", directory / "etcd", "."], directory=work)
        shutil.rmtree(work)

    return str(cached(f"etcd-{VERSION}", build) / "etcd")


class EtcdMember:
    """One server; it can be hurt, and started again on what it kept."""

    def __init__(self, program: str, root: Path, name: str, ports: tuple[int, int], host: str = "127.0.0.1") -> None:
        self.name = name
        self.host = host
        self.root = root / name
        self.client_port, self.peer_port = ports
        self.flags: list[str] = []
        self.prefix: Sequence[str] = ()
        """What runs it: a network namespace, say."""
        self._program = program
        self._log = root / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.client_port}"

    def launch(self) -> None:
        """Begin to serve; see `wait`."""
        client, peer = f"http://{self.endpoint}", f"http://{self.host}:{self.peer_port}"
        with self._log.open("ab") as output:
            self._process = spawn(
                [
                    *self.prefix, self._program, "--name", self.name, "--data-dir", self.root, "--logger", "zap",
                    "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                    "--initial-advertise-peer-urls", peer, *self.flags,
                ],
                stdout=output, stderr=output,
            )  # fmt: skip

    def wait(self) -> None:
        """Return when it answers a read that all agree on: hurt before that, it may never start again."""
        if self._process is None:
            raise PeerError("the server was not started")
        await_ready(self._process, self._answers, self._log, _START_SECONDS)

    def kill(self) -> None:
        """As a crash does."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(30)
            self._process = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGCONT)
            stop(self._process)
            self._process = None

    def is_leader(self) -> bool:
        status = self.ask("/v3/maintenance/status", {})
        header = status["header"]
        return isinstance(header, dict) and status.get("leader") == header["member_id"]

    def ask(self, path: str, body: dict[str, object]) -> dict[str, dict[str, str] | str]:
        """One question to the gateway."""
        request = urllib.request.Request(f"http://{self.endpoint}{path}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=5) as answer:
            found: dict[str, dict[str, str] | str] = json.load(answer)
        return found

    def _signal(self, which: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(which)

    def _answers(self) -> bool:
        return bool(self.ask("/v3/kv/range", {"key": "AA=="}))


class Etcd:
    """Some members that are one cluster."""

    def __init__(
        self, root: Path, members: int = 1, *, program: str | None = None, flags: Sequence[str] = (),
        hosts: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        made, ports = program or newest(), free_ports(2 * members)
        where = hosts or ["127.0.0.1"] * members
        self.members = [
            EtcdMember(made, root, f"m{number}", (ports[2 * number], ports[2 * number + 1]), where[number])
            for number in range(members)
        ]
        peers = ",".join(f"{one.name}=http://{one.host}:{one.peer_port}" for one in self.members)
        for one in self.members:
            one.flags = ["--initial-cluster", peers, *flags]

    @property
    def endpoints(self) -> str:
        return ",".join(one.endpoint for one in self.members)

    def url(self, prefix: str = "dray") -> str:
        return f"etcd://{self.endpoints}/{prefix}"

    def start(self) -> None:
        for one in self.members:
            one.launch()
        for one in self.members:
            one.wait()

    def leader(self) -> EtcdMember:
        for one in self.members:
            try:
                if one.is_leader():
                    return one
            except (OSError, urllib.error.URLError):
                continue
        raise PeerError("the cluster has no leader")

    def stop(self) -> None:
        for one in self.members:
            one.stop()


@contextmanager
def etcd(members: int = 1, *, program: str | None = None, flags: Sequence[str] = ()) -> Iterator[Etcd]:
    """A cluster that runs until the end of the block."""
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="dray-etcd-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        running = Etcd(root, members, program=program, flags=flags)
        stack.callback(running.stop)
        running.start()
        yield running


if __name__ == "__main__":
    with etcd() as one:
        print(one.url(), flush=True)
        sys.stdin.read()
