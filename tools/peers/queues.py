"""Queue servers to be measured against: each on free ports of 127.0.0.1, on a fresh directory, every write synced.

    python -m tools.peers.queues redis|beanstalkd|nats|rabbitmq     run one until interrupted

Redis, beanstalkd and RabbitMQ come from the system's packages, NATS is built
by Go, in a release that has the setting to sync every write.
"""

import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.peers.process import cached, free_ports, run, serving, tool

NATS: Final = "github.com/nats-io/nats-server/v2@v2.12.0"
_START_SECONDS: Final = 300.0
_RABBITMQ: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The program itself: the one on the PATH wants to be the user `rabbitmq`, with its directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueServer:
    """A running server: where it is, and whose CPU time counts."""

    address: str
    pid: int


@contextmanager
def redis() -> Iterator[QueueServer]:
    """Redis whose append-only file is synced before each answer."""
    program = tool("redis-server", "redis-server")
    with _directory() as home:
        (port,) = free_ports(1)
        command: list[str | Path] = [
            program, "--port", str(port), "--bind", "127.0.0.1", "--dir", home, "--save", "",
            "--appendonly", "yes", "--appendfsync", "always",
        ]  # fmt: skip
        with _serving(command, home, port) as pid:
            yield QueueServer(address=f"127.0.0.1:{port}", pid=pid)


@contextmanager
def beanstalkd() -> Iterator[QueueServer]:
    """beanstalkd that syncs its log at every write."""
    program = tool("beanstalkd", "beanstalkd")
    with _directory() as home:
        (port,) = free_ports(1)
        with _serving([program, "-l", "127.0.0.1", "-p", str(port), "-b", home, "-f0"], home, port) as pid:
            yield QueueServer(address=f"127.0.0.1:{port}", pid=pid)


def nats_binary() -> Path:
    """The server, built if it is not there yet (a minute or a few)."""

    def build(directory: Path) -> None:
        run([tool("go", "golang-go"), "install", NATS], environment={"GOBIN": str(directory)})

    return cached(f"nats-server-{NATS.rpartition('@')[2]}", build) / "nats-server"


@contextmanager
def nats() -> Iterator[QueueServer]:
    """NATS with JetStream, which syncs every write."""
    program = nats_binary()
    with _directory() as home:
        (port,) = free_ports(1)
        config = home / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{home / "store"}", sync_interval: always }}\n'
        )
        with _serving([program, "-c", config], home, port) as pid:
            yield QueueServer(address=f"nats://127.0.0.1:{port}", pid=pid)


@contextmanager
def rabbitmq() -> Iterator[QueueServer]:
    """RabbitMQ, one node, with a port mapper of its own that ends with it."""
    tool("rabbitmqctl", "rabbitmq-server")
    with _directory() as home:
        port, distribution, mapper = free_ports(3)
        config, plugins = home / "rabbitmq.conf", home / "enabled_plugins"
        config.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users = none\n")
        plugins.write_text("[].\n")
        environment = {
            "HOME": str(home),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "dray@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "logs"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_ALLOW_INPUT": "1",  # no shell stands between us and the server: a signal reaches it
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noshell -noinput",
        }
        mapping = [tool("epmd", "erlang-base"), "-port", str(mapper), "-address", "127.0.0.1"]
        with _serving(mapping, home, mapper), _serving([_RABBITMQ], home, port, environment) as pid:
            yield QueueServer(address=f"amqp://guest:guest@127.0.0.1:{port}/", pid=pid)


SERVERS: Final[dict[str, Callable[[], AbstractContextManager[QueueServer]]]] = {
    "redis": redis,
    "beanstalkd": beanstalkd,
    "nats": nats,
    "rabbitmq": rabbitmq,
}


@contextmanager
def _directory() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="dray-queue-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _serving(
    command: Sequence[str | Path], home: Path, port: int, environment: dict[str, str] | None = None
) -> Iterator[int]:
    """A server that is ready when it takes connections; its process id."""

    def answers() -> bool:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True

    log = home / f"{Path(str(command[0])).name}.log"
    with serving(
        command, log=log, ready=answers, directory=home, environment=environment, seconds=_START_SECONDS
    ) as process:
        yield process.pid


if __name__ == "__main__":
    with SERVERS[sys.argv[1]]() as running:
        print(running.address, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
