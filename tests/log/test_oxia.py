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

from dray.errors import Corrupt, Invalid, Unavailable
from dray.log.oxia import oxia_pb2 as pb
from dray.log.oxia.layout import LARGEST_PUT, Layout, LogHead
from dray.log.oxia.log import OxiaLog
from dray.log.oxia.servers import LeaderRoute, OxiaServers
from dray.log.oxia.shards import hash_of, place_of
from dray.log.oxia.survey import survey
from dray.log.port import BEFORE_ALL, Log, NotAppended, Position
from dray.log.urls import OxiaLogs, parse_log_url
from tests.log.contract import (
    DEADLINE_S,
    BeginningLogContract,
    LogContract,
    NeighbourLogContract,
    SharedLogContract,
    aclose,
    fill,
    take,
)  # fmt: skip
from tests.log.oxia_relay import OxiaRelay
from tests.log.proxy import Proxy
from tools.peers.oxia_double import OxiaDouble, oxia_double
from tools.peers.process import free_ports

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

    async def open_neighbour(self) -> Log:
        self.handles.append(await OxiaLog.open(logs(f"{self.url}-b"), DOMAIN))
        return self.handles[-1]

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

    async def route(self) -> LeaderRoute:
        return await self.direct.route(self.layout.partition_key)

    async def go_back(self, to: Position) -> None:
        """Wiped, or as it was when it was shorter: the records go one by one, whatever keeps them."""
        route = await self.route()
        (found,) = await self.direct.read(route, self.layout.get_head())
        log_id = LogHead.decode(found.value).log_id
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


@pytest.mark.slow
class TestOxiaLog(LogContract, SharedLogContract, NeighbourLogContract, BeginningLogContract):
    pass


async def test_a_log_that_is_gone_takes_nothing_and_the_one_in_its_place_is_not_touched(
    log_factory: OxiaFactory,
) -> None:
    """LG53: who still knows the old one is told; nothing of it lands in the new one, and no trim of it either."""
    old = await log_factory.open()
    await fill(old, 5)
    await log_factory.go_back(BEFORE_ALL)
    new = await log_factory.open()
    entries = await fill(new, 3, name="new")
    with pytest.raises(Corrupt, match="backup"):
        await old.append(b"late")
    for refused in (old.tail(), old.trim(Position(4))):
        with pytest.raises(Corrupt, match="gone"):
            await refused
    assert await take(new, BEFORE_ALL, 3) == entries
    assert await new.tail() == entries[-1][0]


async def test_an_empty_log_that_is_begun_anew_under_a_handle_is_told(log_factory: OxiaFactory) -> None:
    """LG53: there is no position to tell it by; the id does."""
    old = await log_factory.open()
    await log_factory.go_back(BEFORE_ALL)
    await fill(await log_factory.open(), 1)
    with pytest.raises(Corrupt, match="gone"):
        await old.tail()
    with pytest.raises(Corrupt, match="gone"):
        await take(old, BEFORE_ALL, 1)


async def test_an_entry_that_is_missing_is_told_and_not_passed_over(log_factory: OxiaFactory) -> None:
    """LG53."""
    log = await log_factory.open()
    await fill(log, 5)
    route = await log_factory.route()
    await log_factory.direct.write(route, log._layout.delete(route.shard, log._log_id, 3, 4))
    with pytest.raises(Corrupt, match="missing"):
        await take(log, BEFORE_ALL, 5)


async def test_the_newest_entry_stays_and_a_cut_never_goes_back(log_factory: OxiaFactory) -> None:
    """LG51, LG54, R-051: of two who trim, the one that slept takes nothing back; positions go on."""
    log, sleeper = await log_factory.open(), await log_factory.open()
    entries = await fill(log, 20)
    await log.trim(entries[-1][0])
    await sleeper.trim(entries[9][0])
    route = await log_factory.route()
    head, first, last = await log_factory.direct.read(
        route, log._layout.get_head(), log._layout.get_first(log._log_id), log._layout.get_last(log._log_id)
    )
    assert LogHead.decode(head.value).cut == 20
    assert first.key == last.key == log._layout.entry_key(log._log_id, 20)
    assert await sleeper.append(b"next") == 21


async def test_what_was_acknowledged_here_is_not_read_from_oxia(log_factory: OxiaFactory) -> None:
    """LG53: position after position all the same, and what others wrote between is read."""
    log, other = await log_factory.open(), await log_factory.open()
    stream = log.follow(BEFORE_ALL)
    async with asyncio.timeout(DEADLINE_S):
        for entry in await fill(log, 1):
            assert await anext(stream) == entry
        log_factory.relay.deaf = True  # nobody is told anything but by the answers to its own appends
        scans = log_factory.relay.scans
        for number in range(20):
            (entry,) = await fill(log, 1, name=f"own-{number}")
            assert await anext(stream) == entry
        assert log_factory.relay.scans == scans
        mixed = await fill(other, 2, name="other") + await fill(log, 1, name="own") + await fill(other, 1, name="late")
        mixed += await fill(log, 1, name="last")
        assert [await anext(stream) for _ in mixed] == mixed
    await aclose(stream)


async def test_who_slept_between_reading_the_cut_and_writing_it_takes_nothing_back(log_factory: OxiaFactory) -> None:
    """LG54: the cut is written over the version that was read."""
    log, sleeper = await log_factory.open(), await log_factory.open()
    entries = await fill(log, 20)
    route = await sleeper._servers.route(sleeper._key)
    seen = [await sleeper._head(route)]
    await log.trim(entries[14][0])
    look = sleeper._head

    async def as_it_was(route: LeaderRoute) -> tuple[LogHead, int]:
        return seen.pop() if seen else await look(route)

    sleeper._head = as_it_was  # type: ignore[method-assign]
    await sleeper.trim(entries[9][0])
    head, _ = await look(route)
    assert (head.cut, seen) == (15, [])


async def test_handles_that_begin_a_log_at_once_begin_the_same(log_factory: OxiaFactory) -> None:
    """LG53."""
    handles = await asyncio.gather(*(log_factory.open() for _ in range(5)))
    positions = [await handle.append(b"entry") for handle in handles]
    assert (positions, len({handle._log_id for handle in handles})) == ([1, 2, 3, 4, 5], 1)


@pytest.mark.slow
async def test_a_namespace_that_is_not_there_is_told_by_who_opens_it(log_factory: OxiaFactory) -> None:
    with pytest.raises(Unavailable, match="namespace not found"):
        await OxiaLog.open(logs(f"oxia://{log_factory.address}/nobody-has-this"), DOMAIN, call_seconds=1.0)


@pytest.mark.slow
async def test_an_append_to_nobody_is_refused_and_says_what_to_do() -> None:
    (port,) = free_ports(1)
    log = OxiaLog(logs(f"oxia://127.0.0.1:{port}"), DOMAIN, call_seconds=0.5)
    with pytest.raises(NotAppended, match="is it running"):
        await log.append(b"entry")
    await log.close()


async def test_doctor_tells_who_answers_and_whether_every_shard_is_led(log_factory: OxiaFactory) -> None:
    (port,) = free_ports(1)
    found = await survey(logs(f"oxia://{log_factory.address},127.0.0.1:{port}"))
    assert "shards of default" in found.said[0]
    assert "does not answer" in found.said[1]
    assert (found.failed, found.next) == ("", "start the server, or correct log.url")
    nobody = await survey(logs(f"oxia://127.0.0.1:{port}"))
    assert nobody.failed == "start the server, or correct log.url"
    elsewhere = await survey(logs(f"oxia://{log_factory.address}/nobody-has-this"))
    assert "namespace" in elsewhere.failed


def test_a_key_is_in_the_shard_whose_range_has_its_hash() -> None:
    """As servers and other clients count: the lower half of XXH3, both ends of a range included."""
    assert hash_of("foo") == 125730186
    shards = pb.Shards(router=pb.XXHASH3)
    for number, (first, last) in enumerate([(0, 125730185), (125730186, 125730186), (125730187, (1 << 32) - 1)]):
        hashes = pb.HashRange(first=first, last=last)
        shards.shards.append(pb.Shard(shard=number, leader=f"o{number}:6648", hashes=hashes))
    found = place_of("foo", pb.Assignments(namespaces={"default": shards}), "default")
    assert found is not None
    assert (found.shard, found.leader) == (1, "o1:6648")
    assert place_of("foo", pb.Assignments(namespaces={"default": shards}), "other") is None
    shards.router = pb.ROUTER_UNKNOWN
    with pytest.raises(Unavailable, match="does not know"):
        place_of("foo", pb.Assignments(namespaces={"default": shards}), "default")


def test_what_goes_over_the_wire_is_what_oxia_has() -> None:
    """The numbers of fields, spelled out: the double reads with the same module that the client writes with."""
    layout = Layout("p", 3)
    sent = layout.put_entry(7, "00112233aabbccdd", b"hi").SerializeToString()
    put = b"\x0a\x18p.00003.00112233aabbccdd" + b"\x12\x02hi" + b"\x32\x07p.00003" + b"\x3a\x01\x01"
    assert sent == b"\x08\x07" + b"\x12" + bytes([len(put)]) + put
    head = layout.put_head(0, LogHead(log_id="00112233aabbccdd", cut=9), 5).SerializeToString()
    kept = b"\x0a\x0cp.00003.head" + b"\x12\x141 00112233aabbccdd 9" + b"\x18\x05" + b"\x32\x07p.00003"
    assert head == b"\x08\x00" + b"\x12" + bytes([len(kept)]) + kept
    gone = layout.delete(0, "00112233aabbccdd", 1, 2).SerializeToString()
    ends = b"".join(
        tag + b"\x2dp.00003.00112233aabbccdd-" + b"%020d" % number for tag, number in ((b"\x0a", 1), (b"\x12", 2))
    )
    assert gone == b"\x08\x00" + b"\x22" + bytes([len(ends)]) + ends
    last = layout.get_last("00112233aabbccdd").SerializeToString()
    assert last == b"\x0a\x1ap.00003.00112233aabbccdd-:" + b"\x18\x03"
    answered = pb.WriteResponse.FromString(b"\x0a\x09\x12\x02\x08\x05\x1a\x03k-1")
    assert (answered.puts[0].status, answered.puts[0].version.version, answered.puts[0].key) == (pb.OK, 5, "k-1")
    told = b"\x0a\x1d\x0a\x07default\x12\x12\x0a\x0e\x08\x01\x12\x03a:1\x1a\x05\x15\xff\xff\x00\x00\x10\x01"
    shards = pb.Assignments.FromString(told).namespaces["default"]
    assert (shards.router, shards.shards[0].shard, shards.shards[0].leader) == (pb.XXHASH3, 1, "a:1")
    assert (shards.shards[0].hashes.first, shards.shards[0].hashes.last) == (0, 0xFFFF)


@pytest.mark.parametrize(("log_id", "entry"), [("", b"x"), ("00112233aabbccdd", b"")])
def test_a_put_that_would_break_the_server_is_never_made(log_id: str, entry: bytes) -> None:
    """LG50."""
    with pytest.raises(Invalid, match="break"):
        Layout("p", 3).put_entry(0, log_id, entry)


def test_a_put_above_what_the_server_survives_is_never_made() -> None:
    """LG50: however large `log.max_entry_bytes` is."""
    with pytest.raises(Invalid, match="break"):
        Layout("p", 3).put_entry(0, "00112233aabbccdd", bytes(LARGEST_PUT + 1))


def test_a_head_of_another_layout_is_refused() -> None:
    with pytest.raises(Invalid, match="layout"):
        LogHead.decode(b"2 00112233aabbccdd 0 more")
