"""The log server and its client: the contract over a real socket, and what only sockets do."""

import asyncio
import stat
import struct
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dray.clock import SystemClock
from dray.errors import Invalid, Unavailable
from dray.log.client import ClientLog, Unreachable, WrongServer
from dray.log.files import FileLog
from dray.log.memory import MemoryLog
from dray.log.port import BEFORE_ALL, Log, LostReply, NotAppended, Position
from dray.log.server import IN_FLIGHT_BYTES, LogServer
from dray.log.sockets import Address
from dray.log.urls import ServedLogs
from dray.log.wire import (
    OLDEST,
    VERSION,
    Frame,
    FrameKind,
    Welcome,
    answer_hello,
    decode_welcome,
    encode_frame,
    encode_welcome,
    hello,
    read_frame,
)
from dray.offload import ThreadOffload
from tests.log.contract import (
    DEADLINE_S,
    FullLogContract,
    LogContract,
    SharedLogContract,
    aclose,
    deaf,
    fill,
    named,
    take,
)
from tests.log.proxy import Proxy
from tests.log.test_files import LimitedDisk, write_log

CLUSTER = uuid.UUID(int=0xD7A1)
DOMAIN = 3
OTHER = 4


class ServerFactory:
    """A server on a local log; clients reach it through a relay that can hurt them."""

    max_entry_bytes = 4096
    domain = DOMAIN

    def __init__(self, directory: Path, *, tcp: bool) -> None:
        self.directory = directory
        self.tcp = tcp
        self.disk = LimitedDisk()
        self.other = MemoryLog()
        self.offload = ThreadOffload(2)
        self.log: FileLog | None = None
        self.server: LogServer | None = None
        self.proxy: Proxy | None = None
        self.address: Address | None = None
        self.clients: list[ClientLog] = []

    async def start(self) -> None:
        self.log = await FileLog.open(
            self.directory,
            disk=self.disk,
            offload=self.offload,
            clock=SystemClock(),
            segment_bytes=2_000,
            max_entry_bytes=self.max_entry_bytes,
            recent_bytes=1_000,
        )
        self.other = MemoryLog()
        served = {DOMAIN: self.log, OTHER: self.other}
        self.server = LogServer(served, cluster_id=CLUSTER, max_entry_bytes=self.max_entry_bytes)
        target: Address = self.directory / "meta.sock"
        if self.tcp:
            port = await self.server.listen_tcp("127.0.0.1", 0)
            target = ("127.0.0.1", port)
        else:
            await self.server.listen_unix(target)
        if self.proxy is None:
            self.proxy = Proxy(target)
            self.address = await self.proxy.listen(target)
        self.proxy.target = target

    async def stop(self) -> None:
        assert self.server is not None
        assert self.log is not None
        await self.server.close()
        await self.log.close()
        await self.other.close()

    async def open(self) -> Log:
        assert self.address is not None
        client = ClientLog(self.address, DOMAIN, cluster_id=CLUSTER, max_entry_bytes=self.max_entry_bytes)
        self.clients.append(client)
        return client

    async def restart(self) -> None:
        await self.stop()
        for client in self.clients:
            await client.close()
        await self.start()

    async def disconnect(self) -> None:
        assert self.proxy is not None
        await self.proxy.cut()

    async def append_with_lost_reply(self, log: Log, entry: bytes) -> None:
        assert self.proxy is not None
        await log.tail()  # connected, so that the greeting is not what is lost
        self.proxy.lose_next_answer = True
        await log.append(entry)

    async def append_unheard(self, log: Log, entry: bytes) -> Position:
        assert self.log is not None
        with deaf(self.log._bell):
            return await log.append(entry)

    async def open_other(self) -> Log:
        assert self.address is not None
        self.clients.append(ClientLog(self.address, OTHER, cluster_id=CLUSTER))
        return self.clients[-1]

    async def fill_up(self) -> None:
        self.disk.full = True

    async def make_room(self) -> None:
        self.disk.full = False

    @property
    def url(self) -> str:
        assert self.address is not None
        return str(ServedLogs(self.address))

    async def go_back(self, to: Position) -> None:
        assert self.log is not None
        earlier = [entry for _, entry in await take(self.log, BEFORE_ALL, to)]
        await self.stop()
        for path in self.directory.iterdir():
            if path.is_file():
                path.unlink()
        write_log(self.directory, [[entry] for entry in earlier])
        await self.start()

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        await self.stop()
        assert self.proxy is not None
        await self.proxy.close()
        self.offload.close()


@pytest.fixture(params=["unix", "tcp"])
async def log_factory(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ServerFactory]:
    factory = ServerFactory(tmp_path / "log", tcp=request.param == "tcp")
    await factory.start()
    yield factory
    await factory.close()


@pytest.mark.slow
class TestLogServer(LogContract, FullLogContract, SharedLogContract):
    pass


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[MemoryLog, Path]]:
    log = MemoryLog()
    server = LogServer({DOMAIN: log}, cluster_id=CLUSTER)
    await server.listen_unix(tmp_path / "meta.sock")
    yield log, tmp_path / "meta.sock"
    await server.close()


async def test_a_follower_goes_on_through_restarts_of_the_server(log_factory: ServerFactory) -> None:
    """LG17, R-048: with the same handle, no gap, nothing twice."""
    log = await log_factory.open()
    follower = asyncio.ensure_future(take(log, BEFORE_ALL, 30))
    entries: list[tuple[Position, bytes]] = []
    for round_number in range(3):
        entries += await fill(log, 10, name=f"round{round_number}")
        await log_factory.stop()
        await log_factory.start()
        await log.tail()  # the calls of this handle find the new server, too
    assert await follower == entries


@pytest.mark.slow
async def test_an_append_to_nobody_is_refused_and_says_so(tmp_path: Path) -> None:
    """LG16."""
    log = ClientLog(tmp_path / "meta.sock", DOMAIN)
    with pytest.raises(Unreachable, match="is its process running"):
        await log.append(b"entry")
    with pytest.raises(Unavailable):
        await log.tail()
    await log.close()


async def test_an_answer_that_does_not_come_in_time_is_a_lost_reply(tmp_path: Path) -> None:
    """LG16, R-044: a stopped server looks like this."""

    class Stuck(MemoryLog):
        async def append(self, entry: bytes) -> Position:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    server = LogServer({DOMAIN: Stuck()}, cluster_id=CLUSTER)
    await server.listen_unix(tmp_path / "meta.sock")
    log = ClientLog(tmp_path / "meta.sock", DOMAIN, call_seconds=0.05)
    with pytest.raises(LostReply):
        await log.append(b"entry")
    await log.close()
    await server.close()


@pytest.mark.slow
async def test_a_connection_that_went_silent_is_used_no_more(served: tuple[MemoryLog, Path]) -> None:
    """LG18: half open, it swallows what is sent; the next call finds the server by another one."""
    _, path = served
    proxy = Proxy(path)
    log = ClientLog(await proxy.listen(path), DOMAIN, cluster_id=CLUSTER, call_seconds=0.5)

    async def insist(call: Callable[[], Awaitable[Position]]) -> Position:
        while True:  # on a machine that has much to do any answer may be late
            with suppress(Unavailable, LostReply):
                return await call()

    async with asyncio.timeout(60):
        first = await insist(lambda: log.append(b"one"))
        proxy.hold_all(new=False)
        with pytest.raises(LostReply):
            await log.append(b"two")
        assert await insist(log.tail) >= first
        proxy.hold_all(new=False)
        with pytest.raises(Unavailable):
            await log.tail()
        assert await insist(lambda: log.append(b"three")) > first
    await log.close()
    await proxy.close()


async def test_a_client_of_another_cluster_or_domain_is_told(served: tuple[MemoryLog, Path]) -> None:
    _, path = served
    stranger = ClientLog(path, DOMAIN, cluster_id=uuid.UUID(int=1))
    with pytest.raises(WrongServer, match="another cluster"):
        await stranger.append(b"entry")
    with pytest.raises(WrongServer, match="another cluster"):
        await anext(stranger.follow(BEFORE_ALL))
    lost = ClientLog(path, DOMAIN + 1)
    with pytest.raises(WrongServer, match="no such domain"):
        await lost.tail()


async def test_several_domains_are_apart(tmp_path: Path) -> None:
    server = LogServer({0: MemoryLog(), 1: MemoryLog()}, cluster_id=CLUSTER)
    await server.listen_unix(tmp_path / "meta.sock")
    zero, one = ClientLog(tmp_path / "meta.sock", 0), ClientLog(tmp_path / "meta.sock", 1)
    await zero.append(b"zero")
    assert await one.tail() == BEFORE_ALL
    await one.append(b"one")
    assert await take(zero, 0, 1) == [(1, b"zero")]
    assert await take(one, 0, 1) == [(1, b"one")]
    for log in (zero, one):
        await log.close()
    await server.close()


async def test_the_socket_is_its_owners_alone_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "meta.sock"
    for _ in range(2):
        server = LogServer({DOMAIN: MemoryLog()}, cluster_id=CLUSTER)
        await server.listen_unix(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        log = ClientLog(path, DOMAIN)
        assert await log.append(b"entry") == 1
        await log.close()
        path.rename(tmp_path / "kept")  # a killed server leaves its socket behind
        await server.close()
        (tmp_path / "kept").rename(path)


async def test_a_file_in_the_place_of_the_socket_is_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "meta.sock"
    path.write_text("precious")
    with pytest.raises(Invalid, match="move it away"):
        await LogServer({}, cluster_id=CLUSTER).listen_unix(path)
    assert path.read_text() == "precious"


async def test_a_path_longer_than_a_socket_address_works(tmp_path: Path) -> None:
    directory = tmp_path / ("deep" * 20) / ("deeper" * 20)
    directory.mkdir(parents=True)
    path = directory / "meta.sock"
    assert len(str(path)) > 200
    server = LogServer({DOMAIN: MemoryLog()}, cluster_id=CLUSTER)
    await server.listen_unix(path)
    log = ClientLog(path, DOMAIN)
    assert await log.append(b"entry") == 1
    await log.close()
    await server.close()
    with pytest.raises(Invalid, match="too long"):
        await LogServer({}, cluster_id=CLUSTER).listen_unix(directory / ("s" * 150))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
async def test_only_loopback_is_served_without_authentication(host: str) -> None:
    with pytest.raises(Invalid, match="loopback only"):
        await LogServer({}, cluster_id=CLUSTER).listen_tcp(host, 0)


GREETING = b"".join(encode_frame(FrameKind.HELLO, 0, hello()))
BAD_BYTES = {
    "no hello": b"GET / HTTP/1.1\r\n\r\n" + bytes(64),
    "wrong magic": b"".join(encode_frame(FrameKind.HELLO, 0, b"NOTDRAY!\x01\x00")),
    "no version": b"".join(encode_frame(FrameKind.HELLO, 0, b"DRAYMETA\x00\x00")),
    "huge length": GREETING + struct.pack("<IBQ", 0xFFFFFFFF, 2, 1),
    "length below its head": GREETING + struct.pack("<IBQ", 3, 2, 1),
    "unknown kind": GREETING + b"".join(encode_frame(FrameKind.WELCOME, 1, bytes(4))),
    "no domain": GREETING + b"".join(encode_frame(FrameKind.APPEND, 1, b"x")),
    "trim without position": GREETING + b"".join(encode_frame(FrameKind.TRIM, 1, struct.pack("<I", DOMAIN))),
    "follow without position": GREETING + b"".join(encode_frame(FrameKind.FOLLOW, 1, struct.pack("<I", DOMAIN))),
    "call while following": GREETING
    + b"".join(encode_frame(FrameKind.FOLLOW, 1, struct.pack("<IQ", DOMAIN, 0)))
    + b"".join(encode_frame(FrameKind.TAIL, 2, struct.pack("<I", DOMAIN))),
}


@pytest.mark.parametrize("name", BAD_BYTES)
async def test_malformed_frames_close_their_connection_and_no_other(served: tuple[MemoryLog, Path], name: str) -> None:
    log, path = served
    good = ClientLog(path, DOMAIN)
    await good.append(b"before")
    follower = asyncio.ensure_future(take(good, 1, 1))
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(BAD_BYTES[name])
    async with asyncio.timeout(DEADLINE_S):
        await reader.read()  # until the server closes
    writer.close()
    position = await good.append(b"after")
    assert await follower == [(position, b"after")]
    assert log.sequence.entries == [b"before", b"after"]
    await good.close()


async def test_a_newer_client_is_answered_in_the_version_that_both_know(served: tuple[MemoryLog, Path]) -> None:
    """LG19"""
    _, path = served
    reader, writer = await asyncio.open_unix_connection(path)
    writer.writelines(encode_frame(FrameKind.HELLO, 0, hello(VERSION + 7)))
    async with asyncio.timeout(DEADLINE_S):
        welcome = decode_welcome((await read_frame(reader, 0)).payload)
    writer.close()
    assert welcome.version == VERSION
    frame = Frame(kind=FrameKind.HELLO, id=0, payload=hello(VERSION))
    assert answer_hello(frame, newest=VERSION + 7) == VERSION, "a newer server speaks as its client does"


@pytest.mark.parametrize("version", [OLDEST - 1, VERSION + 1])
async def test_a_server_that_speaks_no_version_of_ours_is_refused(tmp_path: Path, version: int) -> None:
    """LG19"""
    welcome = Welcome(version=version, cluster_id=CLUSTER, max_entry_bytes=4096, domains=(DOMAIN,))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await read_frame(reader, 0)
        writer.writelines(encode_frame(FrameKind.WELCOME, frame.id, encode_welcome(welcome)))
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(answer, tmp_path / "meta.sock")
    log = ClientLog(tmp_path / "meta.sock", DOMAIN, call_seconds=1)
    with pytest.raises(WrongServer, match="upgrade the older one"):
        await log.append(b"entry")
    await log.close()
    server.close()


async def test_a_slow_follower_grows_no_memory_and_stops_nobody(tmp_path: Path) -> None:
    """LG15: a follower that does not read holds the server's iterator still; others get everything."""
    taken = {"slow": 0}

    class Counting(MemoryLog):
        async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
            async for position, entry in super().follow(after):
                if after == 1:  # the slow one says so by where it begins
                    taken["slow"] = position
                yield position, entry

    log = Counting()
    count, size = 400, 64 << 10
    server = LogServer({DOMAIN: log}, cluster_id=CLUSTER)
    await server.listen_unix(tmp_path / "meta.sock")
    slow, quick = ClientLog(tmp_path / "meta.sock", DOMAIN), ClientLog(tmp_path / "meta.sock", DOMAIN)
    first = await quick.append(b"first")
    stream = slow.follow(first)
    await quick.append(bytes(size))
    await anext(stream)
    for _ in range(count):
        await quick.append(bytes(size))
    seen = await take(quick, BEFORE_ALL, count + 2)
    assert len(seen) == count + 2
    assert taken["slow"] < 100, "buffers of a few hundred kB are all that runs ahead of a reader that stands still"
    async for position, _ in stream:  # and it misses nothing when it wakes
        if position == count + 2:
            break
    await aclose(stream)
    for client in (slow, quick):
        await client.close()
    await server.close()


async def test_a_client_that_never_reads_its_answers_is_not_read_from(tmp_path: Path) -> None:
    """LG15: calls in flight are bounded by bytes."""
    gate = asyncio.Event()
    begun = 0

    class Gated(MemoryLog):
        async def append(self, entry: bytes) -> Position:
            nonlocal begun
            begun += 1
            await gate.wait()
            return await super().append(entry)

    server = LogServer({DOMAIN: Gated()}, cluster_id=CLUSTER)
    await server.listen_unix(tmp_path / "meta.sock")
    log = ClientLog(tmp_path / "meta.sock", DOMAIN)
    await log.tail()
    size = 512 << 10
    appends = [asyncio.ensure_future(log.append(bytes([number]) * size)) for number in range(30)]
    other = ClientLog(tmp_path / "meta.sock", DOMAIN)
    for _ in range(50):
        await other.tail()
    assert begun <= IN_FLIGHT_BYTES // size + 1
    gate.set()
    assert sorted(await asyncio.gather(*appends)) == list(range(1, 31))
    for client in (log, other):
        await client.close()
    await server.close()


async def test_a_closed_client_refuses_and_a_log_too_large_for_the_server_is_refused_by_the_client(
    served: tuple[MemoryLog, Path],
) -> None:
    """LG4, R-053: the smaller of both limits holds."""
    _, path = served
    log = ClientLog(path, DOMAIN, max_entry_bytes=8 << 20)
    with pytest.raises(NotAppended, match="too large"):
        await log.append(bytes((1 << 20) + 1))
    assert [await log.append(entry) for entry in named("e", 2)] == [1, 2]
    await log.close()
    with pytest.raises(NotAppended):
        await log.append(b"late")
