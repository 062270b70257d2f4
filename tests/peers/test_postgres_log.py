"""The log in PostgreSQL, on a real server: the contract, and what only databases do."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from dray.errors import Corrupt, Unavailable
from dray.log.port import BEFORE_ALL, Log, LostReply, NotAppended, Position
from dray.log.postgres import PostgresLog
from dray.log.urls import PostgresLogs
from tests.log.contract import (
    BeginningLogContract,
    FullLogContract,
    LogContract,
    NeighbourLogContract,
    SharedLogContract,
    fill,
    take,
)
from tests.log.proxy import Proxy
from tools.peers.postgres import Postgres, postgres
from tools.peers.process import free_ports

pytestmark = pytest.mark.peers

DOMAIN = 3


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


class PostgresFactory:
    """Handles reach the server through a relay that can hurt them; each test has a schema of its own."""

    max_entry_bytes = 4096
    domain = DOMAIN

    def __init__(self, server: Postgres, schema: str) -> None:
        self.server = server
        self.schema = schema
        self.proxy = Proxy(("127.0.0.1", server.port))
        self.handles: list[PostgresLog] = []
        self.logs = PostgresLogs("")

    async def start(self) -> None:
        address = await self.proxy.listen(("127.0.0.1", 0))
        assert isinstance(address, tuple)
        connection = await asyncpg.connect(self.server.url)
        await connection.execute(f"create schema {self.schema}")
        await connection.close()
        self.logs = PostgresLogs(
            f"postgresql://dray@127.0.0.1:{address[1]}/postgres?sslmode=disable&options=-csearch_path%3D{self.schema}"
        )

    @property
    def url(self) -> str:
        return str(self.logs)

    async def open(self) -> Log:
        self.handles.append(await PostgresLog.open(self.logs, DOMAIN, max_entry_bytes=self.max_entry_bytes))
        return self.handles[-1]

    async def restart(self) -> None:
        for handle in self.handles:
            await handle.close()
        self.server.kill()
        self.server.start()  # not in another thread: it ends with the thread that began it

    async def disconnect(self) -> None:
        await self.proxy.cut()

    async def append_with_lost_reply(self, log: Log, entry: bytes) -> None:
        await log.tail()  # connected, so that the greeting is not what is lost; the statement is prepared by now
        self.proxy.lose_next_answer = True
        await log.append(entry)

    async def append_unheard(self, log: Log, entry: bytes) -> Position:
        for handle in self.handles:
            for own in handle._following:
                await own.execute("unlisten *")
        return await log.append(entry)

    async def open_other(self) -> Log:
        self.handles.append(await PostgresLog.open(self.logs, DOMAIN + 1))
        return self.handles[-1]

    async def open_neighbour(self) -> Log:
        """Clusters have a database each."""
        name = f"{self.schema}_b"
        connection = await asyncpg.connect(self.server.url)
        await connection.execute(f"create database {name}")
        await connection.close()
        theirs = PostgresLogs(self.server.url.removesuffix("postgres") + name)
        self.handles.append(await PostgresLog.open(theirs, DOMAIN))
        return self.handles[-1]

    async def fill_up(self) -> None:
        await self.execute("""
            create function full_disk() returns trigger language plpgsql as
            $$ begin raise exception 'no space left' using errcode = 'disk_full'; end $$;
            create trigger full_disk before insert on dray_entry execute function full_disk();
        """)

    async def make_room(self) -> None:
        await self.execute("drop trigger full_disk on dray_entry")

    async def go_back(self, to: Position) -> None:
        await self.execute(f"delete from dray_entry where position > {to}; update dray_log set tail = {to}")

    async def execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.server.url, server_settings={"search_path": self.schema})
        await connection.execute(statement)
        await connection.close()

    async def close(self) -> None:
        for handle in self.handles:
            await handle.close()
        await self.proxy.close()


@pytest.fixture
async def log_factory(server: Postgres, request: pytest.FixtureRequest) -> AsyncIterator[PostgresFactory]:
    factory = PostgresFactory(server, f"s{abs(hash(request.node.nodeid))}")
    await factory.start()
    yield factory
    await factory.close()


class TestPostgresLog(LogContract, FullLogContract, SharedLogContract, NeighbourLogContract, BeginningLogContract):
    pass


async def test_an_entry_that_is_missing_is_told_and_not_passed_over(log_factory: PostgresFactory) -> None:
    """LG24."""
    log = await log_factory.open()
    entries = await fill(log, 5)
    await log_factory.execute("delete from dray_entry where position = 3")
    with pytest.raises(Corrupt, match="missing"):
        await take(log, BEFORE_ALL, 5)
    assert await take(log, 3, 2) == entries[3:]


async def test_a_log_that_is_gone_takes_nothing(log_factory: PostgresFactory) -> None:
    log = await log_factory.open()
    await fill(log, 2)
    await log_factory.execute("delete from dray_log")
    with pytest.raises(NotAppended, match="gone"):
        await log.append(b"late")
    with pytest.raises(Corrupt):
        await log.tail()


async def test_an_append_to_nobody_is_refused_and_says_what_to_do() -> None:
    (port,) = free_ports(1)
    log = PostgresLog(PostgresLogs(f"postgresql://dray@127.0.0.1:{port}/postgres"), DOMAIN)
    with pytest.raises(NotAppended, match="is its server running"):
        await log.append(b"entry")
    with pytest.raises(Unavailable):
        await log.tail()


async def test_a_server_that_does_not_answer_in_time_is_a_lost_reply(log_factory: PostgresFactory) -> None:
    """LG23: a lock that somebody holds looks like this."""
    log = await PostgresLog.open(log_factory.logs, DOMAIN, call_seconds=0.5)
    log_factory.handles.append(log)
    await fill(log, 1)
    holder = await asyncpg.connect(log_factory.server.url, server_settings={"search_path": log_factory.schema})
    async with holder.transaction():
        await holder.execute("select * from dray_log for update")
        with pytest.raises(Exception, match="may be in the log"):
            await log.append(b"unsure")
    await holder.close()
    again = await log.append(b"unsure")
    assert again in (Position(2), Position(3))


async def test_a_connection_that_ends_between_two_steps_of_a_call_is_a_lost_one(
    log_factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LG23: asyncpg trips over it, and we do not."""
    log = await log_factory.open()
    entries = await fill(log, 3)
    prepare, ends = asyncpg.Connection._get_statement, [0]

    async def prepared(self, *arguments, **more):
        found = await prepare(self, *arguments, **more)
        if ends[0]:
            ends[0] -= 1
            self.terminate()
        return found

    monkeypatch.setattr(asyncpg.Connection, "_get_statement", prepared)
    ends[0] = 1
    assert await log.tail() == entries[-1][0]
    ends[0] = 2
    assert await take(log, BEFORE_ALL, 3) == entries
    ends[0] = 1
    with pytest.raises(LostReply):
        await log.append(b"x")
    assert ends == [0]
