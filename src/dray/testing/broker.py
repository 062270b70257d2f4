"""A whole broker inside a test process, on a free port.

    from dray.testing import broker

    def test_orders_are_kept():
        with broker() as dray:
            consumer = Consumer({"bootstrap.servers": dray.bootstrap, "group.id": "orders"})
            consumer.subscribe(["orders"])  # alone, it is there at once: `groups.initial_delay` is 0
            ...

It runs in a thread with a loop of its own, so clients of any kind can be used
in the test. Without a directory nothing survives it. As a pytest fixture:

    @pytest.fixture
    def dray():
        with broker() as running:
            yield running
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dray.cli.settings import SECTIONS
from dray.config import Config, load, parse_set
from dray.errors import Unavailable
from dray.node.roles.broker import run_broker
from dray.node.store import OpenStore
from dray.objects.opening import open_store

START_LIMIT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TestBroker:
    """A broker that runs."""

    __test__ = False  # not a test case, whatever its name begins with

    bootstrap: str
    """HOST:PORT for `bootstrap.servers`."""
    http: str
    """HOST:PORT of health and metrics."""
    grpc: str
    """HOST:PORT of heaps, for `dray.client.Client`."""


@contextmanager
def broker(
    data: Path | None = None, *, open_objects: OpenStore = open_store, **settings: object
) -> Iterator[TestBroker]:
    """Run a broker for as long as the block runs.

    `data` is its directory; without one everything is in memory. Settings are
    given as `section__key=value`, for example `topics__partitions=4`.
    `open_objects` makes the object store: give another one to see what
    happens when it fails.
    """
    config = _config(data, settings)
    started, stop = threading.Event(), threading.Event()
    outcome: list[TestBroker | BaseException] = []
    arguments = (config, open_objects, started, stop, outcome)
    thread = threading.Thread(target=_run, args=arguments, name="dray-broker", daemon=True)
    thread.start()
    try:
        if not started.wait(START_LIMIT_S) or not outcome:
            raise Unavailable("the broker did not start", limit_s=START_LIMIT_S)
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        yield outcome[0]
    finally:
        stop.set()
        thread.join(START_LIMIT_S)


def _config(data: Path | None, settings: dict[str, object]) -> Config:
    given: dict[str, object] = {
        "kafka.listen": "127.0.0.1:0",
        "http.listen": "127.0.0.1:0",
        "grpc.listen": "127.0.0.1:0",
        "topics.auto_create": "true",
        "groups.initial_delay": "0s",
    }
    if data is None:
        given |= {"log.url": "memory:", "objects.url": "memory:"}
    else:
        given |= {"broker.data": str(data)}
    given |= {key.replace("__", "."): value for key, value in settings.items()}
    return load(SECTIONS, environ={}, overrides=[parse_set(f"{key}={value}") for key, value in given.items()])


def _run(
    config: Config,
    open_objects: OpenStore,
    started: threading.Event,
    stop: threading.Event,
    outcome: list[TestBroker | BaseException],
) -> None:
    async def serve() -> None:
        async with run_broker(config, open_objects) as running:
            served = TestBroker(bootstrap=str(running.kafka), http=str(running.http), grpc=str(running.grpc or ""))
            outcome.append(served)
            started.set()
            await asyncio.get_running_loop().run_in_executor(None, stop.wait)

    try:
        asyncio.run(serve())
    except BaseException as error:
        outcome.append(error)
        started.set()
