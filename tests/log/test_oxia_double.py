"""The log in Oxia where servers fail, move, forget and lie: on the double, which can be told to."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from dray.errors import Corrupt, Unavailable
from dray.log.oxia import oxia_pb2 as pb
from dray.log.oxia.log import OxiaLog
from dray.log.oxia.shards import hash_of
from dray.log.port import BEFORE_ALL, LostReply, Position
from tests.log.contract import DEADLINE_S, aclose, fill, take
from tests.log.test_oxia import logs
from tools.peers.oxia_double import OxiaDouble, oxia_double
from tools.peers.oxia_double.shard import CannotApply, Shard, hierarchical
from tools.peers.process import PeerError

DOMAIN = 3
NUMBERS = itertools.count(1)
NODES = 3


@pytest.fixture(scope="module")
def running() -> Iterator[OxiaDouble]:
    with oxia_double(nodes=NODES, shards=2) as double:
        yield double


@pytest.fixture
def trio(running: OxiaDouble) -> Iterator[OxiaDouble]:
    """Three nodes, two shards; whatever a test did to it, the next one finds it whole."""
    yield running
    running.order(
        "fault", lose_answers=0, drop_writes=0, early_s=0.0, deaf=False, old_name=False, uninitialized=False
    )  # fmt: skip
    running.order("full", on=False)
    for node in range(NODES):
        with suppress(PeerError):
            running.order("up", node=node)
    running.order("heal")
    running.order("lead", node=0)


class Handles:
    """On one log; each test has a prefix of its own."""

    def __init__(self, double: OxiaDouble, number: int) -> None:
        self.double = double
        self.prefix = f"double-{number}"
        self._open: list[OxiaLog] = []

    async def open(self, domain: int = DOMAIN, *, first: int = 0, call_seconds: float = 5.0) -> OxiaLog:
        """`first`: the node that is asked first who leads."""
        ports = self.double.ports[first:] + self.double.ports[:first]
        endpoints = ",".join(f"127.0.0.1:{port}" for port in ports)
        url = logs(f"oxia://{endpoints}?prefix={self.prefix}")
        self._open.append(await OxiaLog.open(url, domain, call_seconds=call_seconds))
        return self._open[-1]

    async def close(self) -> None:
        for log in self._open:
            await log.close()


@pytest.fixture
async def handles(trio: OxiaDouble) -> AsyncIterator[Handles]:
    made = Handles(trio, next(NUMBERS))
    yield made
    await made.close()


class Writers:
    """Several, each with one entry in flight: what is unknown is appended again, and what was acknowledged is kept."""

    def __init__(self, logs: list[OxiaLog]) -> None:
        self.acked: dict[bytes, Position] = {}
        self._stop = asyncio.Event()
        self._tasks = [asyncio.ensure_future(self._write(log, f"w{n}")) for n, log in enumerate(logs)]

    async def _write(self, log: OxiaLog, name: str) -> None:
        number = 0
        while not self._stop.is_set():
            entry = f"{name}-{number}".encode()
            try:
                self.acked[entry] = await log.append(entry)
                number += 1
            except (LostReply, Unavailable):
                await asyncio.sleep(0.02)

    async def more(self, count: int) -> None:
        """Wait for so many that are acknowledged from now on."""
        until = len(self.acked) + count
        async with asyncio.timeout(DEADLINE_S):
            while len(self.acked) < until:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def check(self, log: OxiaLog) -> None:
        """None missing, none at another place, no position left out."""
        order = await take(log, BEFORE_ALL, await log.tail())
        assert [position for position, _ in order] == list(range(1, len(order) + 1))
        by_position = dict(order)
        assert all(by_position[position] == entry for entry, position in self.acked.items())


@pytest.mark.slow
async def test_leaders_move_and_die_and_nothing_that_was_acknowledged_is_missing(
    handles: Handles, trio: OxiaDouble
) -> None:
    """LG52, LG53, R-051: three writers and a follower, whoever leads."""
    opened = [await handles.open(first=node) for node in range(NODES)]
    writers = Writers(opened)
    follower = asyncio.ensure_future(take(opened[2], BEFORE_ALL, 120))
    await writers.more(30)
    for node in (1, 2, 0):
        trio.order("lead", node=node)
        await writers.more(20)
    trio.order("down", node=0)
    trio.order("lead", node=1)
    await writers.more(30)
    trio.order("up", node=0)
    await writers.stop()
    await writers.check(opened[0])
    assert await follower == await take(opened[1], BEFORE_ALL, 120)


@pytest.mark.slow
async def test_a_deposed_leader_that_does_not_know_it_is_not_believed_about_the_tail(
    handles: Handles, trio: OxiaDouble
) -> None:
    """LG3, LG53: what it still shows is old, but no reason to call the log lost."""
    behind = await handles.open(first=0, call_seconds=1.0)
    entries = await fill(behind, 3)
    stream = behind.follow(BEFORE_ALL)
    async with asyncio.timeout(DEADLINE_S):
        assert [await anext(stream) for _ in entries] == entries
        trio.order("depose", node=1)
        ahead = await handles.open(first=1)
        more = await fill(ahead, 3, name="ahead")
        assert await behind.tail() == more[-1][0]
        assert [await anext(stream) for _ in more] == more
        after = await behind.append(b"awake")
        assert await anext(stream) == (after, b"awake")
    await aclose(stream)


async def test_a_follower_that_read_more_than_a_deposed_leader_has_waits_for_the_right_one(
    handles: Handles, trio: OxiaDouble
) -> None:
    """LG53: a log is not called shorter by who was not asked by a quorum."""
    entries = await fill(await handles.open(), 2)
    trio.order("depose", node=1)
    ahead = await handles.open(first=1)
    entries += await fill(ahead, 3, name="ahead")
    behind = await handles.open(first=1, call_seconds=1.0)
    route = await behind._servers.route(behind._key)
    old = behind._servers._peer(f"127.0.0.1:{trio.ports[0]}")
    assert await old.is_ready(DEADLINE_S)
    await behind._examine(type(route)(route.shard, old), entries[-1][0])
    assert await behind.tail() == entries[-1][0]


async def test_a_request_or_an_answer_that_is_lost_is_unknown(handles: Handles, trio: OxiaDouble) -> None:
    """LG4, LG52."""
    log = await handles.open()
    for fault, there in (("lose_answers", 1), ("drop_writes", 1)):
        trio.order("fault", **{fault: 1})
        with pytest.raises(LostReply):
            await log.append(fault.encode())
        assert await log.tail() == there
    assert await log.append(b"again") == 2
    assert [entry for _, entry in await take(log, BEFORE_ALL, 2)] == [b"lose_answers", b"again"]


async def test_an_entry_that_is_told_of_before_it_can_be_read_is_waited_for(handles: Handles, trio: OxiaDouble) -> None:
    """LG53: and what a failed put tells of, which never comes, holds nobody up."""
    log, other = await handles.open(), await handles.open()
    trio.order("fault", early_s=0.03)
    follower = asyncio.ensure_future(take(other, BEFORE_ALL, 12))
    entries = await fill(log, 10)
    sequence = log._layout.sequence(log._log_id)
    for key in ("", f"{sequence}-{99:020d}", "somebody-elses-1", f"{sequence}-{3:020d}"):
        trio.order("announce", sequence=sequence, key=key)
    entries += await fill(log, 2, name="more")
    assert await follower == entries


async def test_what_a_failed_put_tells_of_is_asked_for_once_and_then_forgotten(
    handles: Handles, trio: OxiaDouble
) -> None:
    """LG53: a follower does not look for ever for what will not come."""
    log, other = await handles.open(), await handles.open()
    (last,) = await fill(log, 1)
    stream = other.follow(BEFORE_ALL)
    async with asyncio.timeout(DEADLINE_S):
        assert await anext(stream) == last
        waiting = asyncio.ensure_future(anext(stream))
        while not trio.order("ears"):
            await asyncio.sleep(0.01)
        tail, asked_tail = other.tail, asyncio.Event()

        async def noticed() -> Position:
            asked_tail.set()
            return await tail()

        other.tail = noticed  # type: ignore[method-assign]
        (ear,) = other._ears
        sequence = log._layout.sequence(log._log_id)
        trio.order("announce", sequence=sequence, key=f"{sequence}-{99:020d}")
        await asked_tail.wait()
        while ear.heard != last[0]:
            await asyncio.sleep(0.01)
        more = await log.append(b"more")
        assert await waiting == (more, b"more")
    await aclose(stream)


async def test_who_is_sent_to_a_server_that_leads_no_more_finds_the_one_that_does(
    handles: Handles, trio: OxiaDouble
) -> None:
    """LG52: such an entry is surely not there, and goes to another one."""
    log = await handles.open()
    await fill(log, 1)
    servers, old = log._servers, log._servers._assignments
    trio.order("lead", node=1)
    async with asyncio.timeout(DEADLINE_S):
        while servers._assignments is old:
            await asyncio.sleep(0.01)
    servers._assignments = old
    assert await log.append(b"moved") == 2
    assert (await servers.route(log._key)).peer.endpoint.endswith(str(trio.ports[1]))


@pytest.mark.slow
async def test_a_follower_that_is_told_of_nothing_looks_by_itself(handles: Handles, trio: OxiaDouble) -> None:
    """LG53: with nobody who writes through the same handle."""
    log, other = await handles.open(), await handles.open()
    trio.order("fault", deaf=True)
    follower = asyncio.ensure_future(take(other, BEFORE_ALL, 5))
    await asyncio.sleep(0.1)
    assert await fill(log, 5) == await follower


@pytest.mark.parametrize("told", ["by following", "by appending"])
async def test_a_server_that_lost_its_end_in_a_restart_is_told_by_position(
    handles: Handles, trio: OxiaDouble, told: str
) -> None:
    """LG25, LG53: what was acknowledged is not there; nobody goes on as if it were."""
    log = await handles.open()
    entries = await fill(log, 6)
    stream = log.follow(BEFORE_ALL)
    async with asyncio.timeout(DEADLINE_S):
        assert [await anext(stream) for _ in entries] == entries
        trio.order("crash", lose=3)
        with pytest.raises(Corrupt, match="backup"):
            await anext(stream) if told == "by following" else await _append_at_last(log)
    await aclose(stream)


async def _append_at_last(log: OxiaLog) -> None:
    while True:
        with suppress(LostReply, Unavailable):
            await log.append(b"entry")
            raise AssertionError("an entry has the place of another one")
        await asyncio.sleep(0.02)


async def test_a_server_without_room_takes_nothing_shows_what_it_has_and_goes_on(
    handles: Handles, trio: OxiaDouble
) -> None:
    """LG52: it cannot say whether an entry is in its log, so it is unknown; nothing is acknowledged."""
    log = await handles.open()
    entries = await fill(log, 3)
    trio.order("full", on=True)
    for _ in range(3):
        with pytest.raises(LostReply):
            await log.append(b"no room")
    assert await take(log, BEFORE_ALL, 3) == entries
    trio.order("full", on=False)
    entries += await fill(log, 2, name="more")
    assert await take(log, BEFORE_ALL, 5) == entries


async def test_a_server_of_before_the_service_was_renamed_is_asked_by_its_older_name(
    handles: Handles, trio: OxiaDouble
) -> None:
    trio.order("fault", old_name=True)
    trio.order("crash")
    log = await handles.open()
    entries = await fill(log, 3)
    assert await take(log, BEFORE_ALL, 3) == entries


async def test_servers_that_do_not_know_yet_who_leads_are_asked_again(handles: Handles, trio: OxiaDouble) -> None:
    trio.order("fault", uninitialized=True)
    opening = asyncio.ensure_future(handles.open())
    await asyncio.sleep(0.1)
    assert not opening.done()
    trio.order("fault", uninitialized=False)
    log = await opening
    assert await log.append(b"entry") == 1


async def test_each_domain_is_in_the_shard_of_its_hash(handles: Handles, trio: OxiaDouble) -> None:
    for shard in (0, 1):
        hashes = {domain: hash_of(f"{handles.prefix}.{domain:05d}") for domain in range(100)}
        domain = next(domain for domain, found in hashes.items() if found >> 31 == shard)
        log = await handles.open(domain)
        assert await log.append(b"entry") == 1
        assert (await log._servers.route(log._key)).shard == shard
    assert not any("/" in key for key in trio.order("keys"))


@pytest.mark.slow
async def test_a_server_that_is_killed_under_writers_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    """LG2, LG52: kill -9 and a pause longer than a call, three times."""
    double = OxiaDouble(tmp_path)
    double.start()
    handles = Handles(double, 0)
    try:
        opened = [await handles.open(call_seconds=0.5) for _ in range(2)]
        writers = Writers(opened)
        for _ in range(2):
            await writers.more(20)
            await asyncio.to_thread(double.kill)
            await asyncio.to_thread(double.start)
        await writers.more(20)
        double.pause()
        await asyncio.sleep(1.0)
        double.resume()
        await writers.more(20)
        await writers.stop()
        await writers.check(await handles.open())
    finally:
        await handles.close()
        double.stop()


# -- that the double does what Oxia was seen to do ---------------------------------


async def asked(double: OxiaDouble, *puts: pb.Put) -> pb.WriteResponse:
    """A write as no client of ours makes it."""
    address = double.endpoints.partition(",")[0]
    async with grpc.aio.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        write = channel.unary_unary(
            "/io.oxia.proto.v1.OxiaClient/Write", pb.WriteRequest.SerializeToString, pb.WriteResponse.FromString
        )
        return await write(pb.WriteRequest(shard=0, puts=puts), timeout=DEADLINE_S)


def in_sequence(deltas: list[int], **more) -> pb.Put:
    return pb.Put(**{"key": "s", "value": b"x", "partition_key": "s", "sequence_deltas": deltas, **more})


@pytest.mark.parametrize(
    "poison", [in_sequence([0]), pb.Put(key="s", value=b"x", sequence_deltas=[1]), in_sequence([1])]
)
def test_the_double_keeps_what_it_can_never_apply(tmp_path: Path, poison: pb.Put) -> None:
    """A delta of 0, no partition key, fewer deltas than before: a clean stop hides it, a crash does not."""

    def shard() -> Shard:
        return Shard(tmp_path, 0, is_natural=False, segment_bytes=1 << 20)

    one = shard()
    for put in (in_sequence([1, 1]), poison):
        request = pb.WriteRequest(shard=0, puts=[pb.Put(key="beside"), put])
        one.append(request.SerializeToString())
        with suppress(CannotApply):
            one.commit(one.prepare(request))
    one.flush()
    assert shard().between("", "") == ["beside", f"s-{1:020d}-{1:020d}"]
    with pytest.raises(CannotApply):
        shard()


@pytest.mark.slow
async def test_the_double_never_starts_again_after_what_it_cannot_apply(tmp_path: Path) -> None:
    """The deadly one."""
    double = OxiaDouble(tmp_path)
    double.start()
    try:
        with pytest.raises(grpc.aio.AioRpcError, match="failed to apply batch"):
            await asked(double, pb.Put(key="beside"), in_sequence([0]))
        assert double.order("keys") == [], "the whole batch is dropped"
        await asked(double, in_sequence([1]))
        double.kill()
        with pytest.raises(PeerError, match="failed to applies wal entries"):
            double.start()
    finally:
        double.stop()


async def test_the_double_takes_no_write_after_one_that_is_too_large(tmp_path: Path) -> None:
    double = OxiaDouble(tmp_path, flags=("--segment-bytes", "100000"))
    double.start()
    try:
        for size, says in ((100_001, "larger than a segment"), (1, "invalid next offset")):
            with pytest.raises(grpc.aio.AioRpcError, match=says):
                await asked(double, pb.Put(key="k", value=bytes(size)))
        double.order("crash")
        assert (await asked(double, pb.Put(key="k", value=b"x"))).puts[0].version.version == 0
    finally:
        double.stop()


async def test_the_double_judges_each_put_of_a_batch_and_counts_versions_and_sequences(trio: OxiaDouble) -> None:
    prefix = f"facts-{time.monotonic_ns()}"
    first = await asked(
        trio,
        pb.Put(key=prefix, expected_version=-1),
        pb.Put(key=prefix, expected_version=-1),
        in_sequence([10, 1000], key=f"{prefix}-s"),
        in_sequence([10, 1001], key=f"{prefix}-s"),
        in_sequence([10, 1], key=f"{prefix}-s", expected_version=1),
    )
    assert [put.status for put in first.puts] == [0, pb.UNEXPECTED_VERSION, 0, 0, pb.UNEXPECTED_VERSION]
    assert [put.key.removeprefix(prefix) for put in first.puts[2:4]] == [
        f"-s-{10:020d}-{1000:020d}",
        f"-s-{20:020d}-{2001:020d}",
    ]
    given = [put.version.version for put in first.puts if put.status == pb.OK]
    assert given == list(range(given[0], given[0] + 3))
    again = await asked(trio, pb.Put(key=prefix, expected_version=given[0]), in_sequence([5, 5, 5], key=f"{prefix}-s"))
    assert [put.status for put in again.puts] == [0, 0]
    assert again.puts[1].key.endswith(f"-{25:020d}-{2006:020d}-{5:020d}"), "more deltas than before are taken"


def test_the_double_sorts_keys_by_the_parts_between_slashes() -> None:
    assert sorted(["a/b/c", "a/b", "b", "a", "a/", "a-1"], key=hierarchical) == ["a", "a-1", "b", "a/", "a/b", "a/b/c"]
