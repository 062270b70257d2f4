"""The log in Oxia: the contract, on a double of ours or on the server that OXIA_ADDRESS names.

With `OXIA_ADDRESS=HOST:PORT make test-oxia` these tests run on a real server,
started as `oxia standalone` or leading all shards; what only the double can be
told to do is in `test_oxia_double`.
"""

import asyncio
import itertools
import os
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from dray.log.oxia import oxia_pb2 as pb
from dray.log.oxia.layout import Head, Layout
from dray.log.oxia.log import OxiaLog
from dray.log.oxia.servers import OxiaServers, Route
from dray.log.port import Log, Position
from dray.log.urls import OxiaLogs, parse_log_url
from tests.log.contract import BeginningLogContract, LogContract, SharedLogContract
from tests.log.oxia_relay import OxiaRelay
from tests.log.proxy import Proxy
from tools.peers.oxia_double import OxiaDouble, oxia_double

DOMAIN = 3
RUN = uuid.uuid4().hex[:8]
"""A real server keeps what earlier runs have left."""
NUMBERS = itertools.count(1)


def logs(text: str) -> OxiaLogs:
    found = parse_log_url(text)
    assert isinstance(found, OxiaLogs)
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[OxiaDouble | None]:
    """The double; None where there is a real one."""
    if os.environ.get("OXIA_ADDRESS"):
        yield None
        return
    with oxia_double() as running:
        yield running


class OxiaFactory:
    """Handles reach Oxia through relays that can hurt them; each test has a prefix of its own."""

    max_entry_bytes = 4096
    domain = DOMAIN

    def __init__(self, double: OxiaDouble | None) -> None:
        self.double = double
        self.address = os.environ["OXIA_ADDRESS"] if double is None else double.endpoints
        self.prefix = f"test-{RUN}-{next(NUMBERS)}"
        self.layout = Layout(self.prefix, DOMAIN)
        self.relay = OxiaRelay(self.address)
        self.proxy = Proxy(("127.0.0.1", 0))
        self.handles: list[OxiaLog] = []
        self.url = ""
        self.direct = OxiaServers(logs(f"oxia://{self.address}"), 10)

    async def start(self) -> None:
        self.proxy.target = ("127.0.0.1", await self.relay.listen())
        address = await self.proxy.listen(("127.0.0.1", 0))
        assert isinstance(address, tuple)
        self.relay.advertised = f"127.0.0.1:{address[1]}"
        self.url = f"oxia://{self.relay.advertised}/default?prefix={self.prefix}"

    async def open(self, domain: int = DOMAIN) -> OxiaLog:
        small = {"page": 8, "max_entry_bytes": self.max_entry_bytes}
        self.handles.append(await OxiaLog.open(logs(self.url), domain, **small))
        return self.handles[-1]

    async def open_other(self) -> Log:
        return await self.open(DOMAIN + 1)

    async def restart(self) -> None:
        """A real server is not ours to restart: there only the handles end."""
        for handle in self.handles:
            await handle.close()
        if self.double is not None:
            self.double.order("crash")

    async def disconnect(self) -> None:
        await self.proxy.cut()

    async def append_with_lost_reply(self, log: Log, entry: bytes) -> None:
        self.relay.lose_next_answer = True
        await log.append(entry)

    async def append_unheard(self, log: Log, entry: bytes) -> Position:
        self.relay.deaf = True
        position = await log.append(entry)
        await asyncio.sleep(0.05)
        self.relay.deaf = False
        return position

    async def route(self) -> Route:
        return await self.direct.route(self.layout.partition_key)

    async def go_back(self, to: Position) -> None:
        """Wiped, or as it was when it was shorter: the records go one by one, whatever keeps them."""
        route = await self.route()
        (found,) = await self.direct.read(route, self.layout.get_head())
        log_id = Head.decode(found.value).log_id
        gone = [pb.DeleteRange(start=self.layout.entry_key(log_id, to + 1), end=self.layout.sequence(log_id) + "-:")]
        if not to:
            gone.append(pb.DeleteRange(start=f"{self.layout.partition_key}.", end=f"{self.layout.partition_key}/"))
        await self.direct.write(route, pb.WriteRequest(shard=route.shard, delete_ranges=gone))

    async def close(self) -> None:
        for handle in self.handles:
            await handle.close()
        await self.direct.close()
        await self.proxy.close()
        await self.relay.close()


@pytest.fixture
async def log_factory(server: OxiaDouble | None) -> AsyncIterator[OxiaFactory]:
    factory = OxiaFactory(server)
    await factory.start()
    yield factory
    await factory.close()


class TestOxiaLog(LogContract, SharedLogContract, BeginningLogContract):
    pass
