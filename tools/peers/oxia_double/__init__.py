"""A double of Oxia: a process of ours that speaks its protocol. It is not Oxia, whose server is in no registry.

It does what servers of version 0.17 were seen to do, as far as a client like
ours can see it, and what they do wrong:

    batches that are atomic, with a status for each put; versions that are counted in each shard from 0
    reads that are no snapshot, and a leader that was deposed and still answers them
    sequences that go on behind the highest key, and begin anew when all are deleted
    sequence updates that come early, leave some out, and are empty after a put that failed
    a put without a partition key, with a delta of 0 or with fewer deltas, after which a server that dies never starts
    a put above a segment of its log, after which no write passes
    keys that sort by the parts between `/`
    assignments that move, nodes that are away, answers and requests that are lost, a disk that is full,
    a log that was wiped or lost its end

It has no sessions, notifications, secondary indexes, write streams, splits of
shards, authentication or TLS, and one process stands for all nodes: what it
acknowledges is as durable as one disk is.
"""

import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.peers.process import PeerError, await_ready, free_ports, spawn, stop

_ROOT = Path(__file__).resolve().parents[3]
_START_SECONDS = 60.0


class OxiaDouble:
    """The process; it can be hurt, and started again on what it kept."""

    def __init__(self, root: Path, *, nodes: int = 1, shards: int = 1, flags: tuple[str, ...] = ()) -> None:
        self.root = root
        self._orders, *self.ports = free_ports(nodes + 1)
        self._command = [
            sys.executable, "-m", "tools.peers.oxia_double", str(root), "--orders", str(self._orders),
            "--ports", ",".join(map(str, self.ports)), "--shards", str(shards), *flags,
        ]  # fmt: skip
        self._log = root / "double.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoints(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def url(self, prefix: str = "dray") -> str:
        return f"oxia://{self.endpoints}/default?prefix={prefix}"

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = spawn(self._command, stdout=output, stderr=output, directory=_ROOT)
        await_ready(self._process, self._answers, self._log, _START_SECONDS)

    def order(self, order: str, **wanted: object) -> object:
        """Have it done; see `server.ORDERS`."""
        with socket.create_connection(("127.0.0.1", self._orders), timeout=30) as connection:
            connection.sendall(json.dumps({"order": order, **wanted}).encode() + b"\n")
            answer = json.loads(connection.makefile().readline())
        if "failed" in answer:
            raise PeerError(f"the double does not do this: {answer['failed']}")
        done: object = answer["done"]
        return done

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

    def _answers(self) -> bool:
        try:
            self.order("ears")
        except (OSError, ValueError):
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@contextmanager
def oxia_double(*, nodes: int = 1, shards: int = 1, flags: tuple[str, ...] = ()) -> Iterator[OxiaDouble]:
    """A double of so many nodes, until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="dray-oxia-") as directory:
        double = OxiaDouble(Path(directory), nodes=nodes, shards=shards, flags=flags)
        double.start()
        try:
            yield double
        finally:
            double.stop()
