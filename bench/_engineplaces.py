"""Where a log can be, for as long as it is measured: a directory, a server of ours, a bucket 30 ms away, a database."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

REQUEST_S: Final = 0.03
"""What a request to the bucket takes longer than it would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A store that a log can be in."""

    url: str
    endpoint: str
    access_key: str
    secret_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a client process needs to reach a log."""

    url: str
    bucket: Bucket | None = None

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> "Place":
        found = json.loads(text)
        return cls(url=found["url"], bucket=Bucket(**found["bucket"]) if found["bucket"] else None)


Where = Callable[[], AbstractContextManager[Place]]


@contextmanager
def _directory() -> Iterator[str]:
    directory = tempfile.mkdtemp(prefix="dray-bench-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def local() -> Iterator[Place]:
    with _directory() as directory:
        yield Place(url=f"local:{directory}")


@contextmanager
def served() -> Iterator[Place]:
    with _directory() as directory, _beside("serve", Place(url=f"local:{directory}")):
        yield Place(url=f"unix:{directory}/meta.sock")


@contextmanager
def delta_directory() -> Iterator[Place]:
    with _directory() as directory:
        yield Place(url=f"deltalog:{directory}")


@contextmanager
def delta_bucket() -> Iterator[Place]:
    from tests.objects.servers import versity

    with ExitStack() as stack:
        directory = stack.enter_context(_directory())
        server = stack.enter_context(versity(Path(directory)))
        store = server.options
        assert store.endpoint is not None
        assert store.access_key is not None
        assert store.secret_key is not None
        bucket = Bucket(
            url=server.url(), endpoint=store.endpoint, access_key=store.access_key, secret_key=store.secret_key
        )
        endpoint = stack.enter_context(_beside("delay", Place(url="deltalog:", bucket=bucket)))
        far = Bucket(url=bucket.url, endpoint=endpoint, access_key=bucket.access_key, secret_key=bucket.secret_key)
        yield Place(url="deltalog:", bucket=far)


@contextmanager
def postgres() -> Iterator[Place]:
    from tools.peers.postgres import postgres as running

    with running() as server:
        yield Place(url=server.url)


@contextmanager
def etcd() -> Iterator[Place]:
    from tools.peers.etcd import etcd as running

    with running() as server:
        yield Place(url=server.url())


@contextmanager
def oxia() -> Iterator[Place]:
    from tools.peers.oxia_double import oxia_double as running

    with running() as server:
        yield Place(url=server.url())


def client(what: str, place: Place, *words: str) -> list[str]:
    """The command of a process that loads a log, or stands before one."""
    return [sys.executable, "-m", "bench._engineload", what, place.encode(), *words]


def servers_cpu_s(clients: list[int]) -> float:
    """What the processes that were started here have used, but for these."""
    total = 0.0
    for one in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if one.pid not in clients:
                times = one.cpu_times()
                total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


@contextmanager
def _beside(what: str, place: Place) -> Iterator[str]:
    """A server of ours in a process of its own; what it says when it is ready."""
    process = subprocess.Popen(client(what, place), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
