"""The log in etcd, on real servers: the contract, and what only etcd does."""

import asyncio
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from dray.clock import SystemClock
from dray.errors import Conflict, Corrupt, Unavailable
from dray.log.etcd import etcd_pb2 as pb
from dray.log.etcd.log import EtcdLog
from dray.log.etcd.members import Members
from dray.log.etcd.survey import survey
from dray.log.port import BEFORE_ALL, Log, LostReply, NotAppended, Position, Trimmed
from dray.log.urls import EtcdLogs, parse_log_url
from tests.log.contract import (
    DEADLINE_S,
    BeginningLogContract,
    FullLogContract,
    LogContract,
    NeighbourLogContract,
    SharedLogContract,
    aclose,
    fill,
    named,
    take,
)
from tests.log.etcd_relay import EtcdRelay
from tests.log.proxy import Proxy
from tools.peers.etcd import Etcd, etcd, newest, packaged
from tools.peers.process import free_ports

pytestmark = pytest.mark.peers

DOMAIN = 3
SMALL = 8
QUOTA = 32 << 20
FLAGS = ("--quota-backend-bytes", str(QUOTA))
NUMBERS = itertools.count(1)


def logs(text: str) -> EtcdLogs:
    found = parse_log_url(text)
    assert isinstance(found, EtcdLogs)
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[Etcd]:
    """As the system has it."""
    with etcd(program=packaged(), flags=FLAGS) as running:
        yield running


@pytest.fixture(scope="module")
def trio() -> Iterator[Etcd]:
    with etcd(3, program=newest(), flags=FLAGS) as running:
        yield running


class EtcdFactory:
    """Handles reach etcd through relays that can hurt them; each test has a prefix of its own."""

    max_entry_bytes = 4096
    domain = DOMAIN

    def __init__(self, server: Etcd) -> None:
        self.server = server
        self.prefix = f"test-{next(NUMBERS)}"
        self.relay = EtcdRelay(server.members[0].endpoint)
        self.proxy = Proxy(("127.0.0.1", 0))
        self.handles: list[EtcdLog] = []
        self.url = ""
        self.direct = Members(logs(server.url(self.prefix)), 10)

    async def start(self) -> None:
        self.proxy.target = ("127.0.0.1", await self.relay.listen())
        address = await self.proxy.listen(("127.0.0.1", 0))
        assert isinstance(address, tuple)
        self.url = f"etcd://127.0.0.1:{address[1]}/{self.prefix}"

    async def open(self, domain: int = DOMAIN, **options) -> EtcdLog:
        small = {"bucket_entries": SMALL, "max_entry_bytes": self.max_entry_bytes, **options}
        self.handles.append(await EtcdLog.open(logs(self.url), domain, clock=SystemClock(), **small))
        return self.handles[-1]

    async def open_other(self) -> Log:
        return await self.open(DOMAIN + 1)

    async def open_neighbour(self) -> Log:
        self.handles.append(await EtcdLog.open(logs(f"{self.url}-b"), DOMAIN, clock=SystemClock()))
        return self.handles[-1]

    async def restart(self) -> None:
        for handle in self.handles:
            await handle.close()
        self.server.members[0].kill()
        self.server.start()

    async def disconnect(self) -> None:
        await self.proxy.cut()

    async def append_with_lost_reply(self, log: Log, entry: bytes) -> None:
        self.relay.lose_next_answer = True
        await log.append(entry)

    async def append_unheard(self, log: Log, entry: bytes) -> Position:
        self.relay.deaf = True
        position = await log.append(entry)
        await self.relay.dropped.wait()
        self.relay.deaf = False
        return position

    async def txn(self, *operations: pb.RequestOp) -> None:
        await self.direct.call(lambda member: member.txn, pb.TxnRequest(success=operations))

    async def delete(self, prefix: bytes) -> None:
        range_end = prefix[:-1] + bytes([prefix[-1] + 1])
        await self.txn(pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=prefix, range_end=range_end)))

    async def go_back(self, to: Position) -> None:
        source = await self.open()
        earlier = [entry for _, entry in await take(source, BEFORE_ALL, to)]
        await self.delete(f"{self.prefix}/".encode())
        again = await self.open()
        for entry in earlier:
            await again.append(entry)

    async def fill_up(self) -> None:
        """Somebody else's data: all of etcd shares one quota."""

        async def put_all() -> None:
            for number in range(QUOTA >> 19):
                put = pb.PutRequest(key=b"others/%d" % number, value=bytes(1 << 20))
                await self.txn(pb.RequestOp(request_put=put))

        with pytest.raises(grpc.aio.AioRpcError, match="space exceeded"):
            await put_all()

    async def make_room(self) -> None:
        await self.delete(b"others/")
        await self.compact()
        log = await self.open()
        async with asyncio.timeout(DEADLINE_S):
            while True:  # etcd gives back pages when it likes: a file that was written anew too early is still full
                await log._room.look()
                try:
                    await self.txn(pb.RequestOp(request_put=pb.PutRequest(key=b"others/again", value=b"")))
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.1)
                else:
                    return

    async def compact(self) -> None:
        status = await self.direct.call(lambda member: member.status, pb.StatusRequest())
        request = pb.CompactionRequest(revision=status.header.revision, physical=True)
        await self.direct.call(lambda member: member.compact, request)

    async def close(self) -> None:
        for handle in self.handles:
            await handle.close()
        await self.direct.close()
        await self.proxy.close()
        await self.relay.close()


@pytest.fixture
async def log_factory(server: Etcd) -> AsyncIterator[EtcdFactory]:
    factory = EtcdFactory(server)
    await factory.start()
    yield factory
    await factory.close()


class TestEtcdLog(LogContract, FullLogContract, SharedLogContract, NeighbourLogContract, BeginningLogContract):
    pass


@pytest.mark.parametrize("position", [1, 5, SMALL, SMALL + 3])
async def test_a_log_that_goes_on_in_the_midst_of_a_bucket_counts_on(log_factory: EtcdFactory, position: int) -> None:
    """LG60, LG27: pages, events and what is missing, over the ends of buckets; and so after a restart of etcd."""
    log, other = await log_factory.open(), await log_factory.open()
    await log.begin_behind(Position(position))
    entries = await fill(other, 3 * SMALL)
    assert [at for at, _ in entries] == [position + 1 + number for number in range(3 * SMALL)]
    late = await log_factory.open(bucket_entries=2 * SMALL)  # as whoever began it had it
    for handle in (log, other, late):
        assert await take(handle, position, len(entries)) == entries
        assert await take(handle, position + SMALL, len(entries) - SMALL) == entries[SMALL:]
        with pytest.raises(Trimmed):
            await take(handle, position - 1, 1)
    await log_factory.restart()
    again = await log_factory.open()
    await again.trim(entries[SMALL][0])
    assert await take(again, entries[SMALL][0], 1) == entries[SMALL + 1 : SMALL + 2]
    one = pb.RangeRequest(key=again._entries, range_end=again._entries_end, limit=1)
    answer = await log_factory.direct.call(lambda member: member.txn, _look(one))
    await log_factory.delete(answer.responses[0].response_range.kvs[0].key)
    with pytest.raises(Corrupt, match="missing"):
        await take(again, entries[SMALL][0], SMALL)


async def test_of_an_import_and_a_first_entry_one_wins(log_factory: EtcdFactory) -> None:
    """LG60, MV2: whoever looked at an empty log cannot change what another one has begun meanwhile."""
    early, mover = await log_factory.open(), await log_factory.open()
    assert (await early.tail(), await mover.tail()) == (0, 0)
    await mover.begin_behind(Position(1_000))
    early._meet = _nothing  # type: ignore[method-assign]  # it looked just before
    assert await early.append(b"entry") == 1_001
    with pytest.raises(Conflict):
        await mover.begin_behind(Position(1_000))
    again = await log_factory.open_other()
    await again.append(b"first")
    with pytest.raises(Conflict):
        await again.begin_behind(Position(1))  # type: ignore[attr-defined]


async def _nothing() -> None:
    pass


def _look(*requests: pb.RangeRequest) -> pb.TxnRequest:
    return pb.TxnRequest(success=[pb.RequestOp(request_range=one) for one in requests])


async def test_an_etcd_that_is_restored_from_older_files_is_told(log_factory: EtcdFactory, server: Etcd) -> None:
    """LG25: the same log under the same name, only shorter."""
    log = await log_factory.open()
    entries = await fill(log, 3)
    member = server.members[0]
    member.stop()
    backup = member.root.with_name("backup")
    shutil.copytree(member.root, backup)
    server.start()
    stream = log.follow(BEFORE_ALL)
    async with asyncio.timeout(DEADLINE_S):
        entries += await again_and_again(log, 3)
        assert [await anext(stream) for _ in entries] == entries
        member.stop()
        shutil.rmtree(member.root)
        backup.rename(member.root)
        server.start()
        with pytest.raises(Corrupt, match="backup"):
            await anext(stream)


async def again_and_again(log: Log, count: int) -> list[tuple[Position, bytes]]:
    """Entries, appended as soon as somebody is there to take them."""
    found = []
    for entry in named("late", count):
        while True:
            try:
                found.append((await log.append(entry), entry))
                break
            except NotAppended:
                await asyncio.sleep(0.05)
    return found


async def test_an_entry_that_is_missing_is_told_and_not_passed_over(log_factory: EtcdFactory) -> None:
    """LG27."""
    log = await log_factory.open()
    await fill(log, 5)
    one = pb.RangeRequest(key=log._entries, range_end=log._entries_end, limit=1)
    answer = await log_factory.direct.call(lambda member: member.txn, _look(one))
    await log_factory.delete(answer.responses[0].response_range.kvs[0].key)
    with pytest.raises(Corrupt, match="missing"):
        await take(log, BEFORE_ALL, 5)


async def test_a_log_that_is_gone_takes_nothing(log_factory: EtcdFactory) -> None:
    """LG27: nobody begins it anew behind the back of who knows better."""
    log = await log_factory.open()
    await fill(log, 2)
    await log_factory.delete(f"{log_factory.prefix}/".encode())
    with pytest.raises(NotAppended, match="gone"):
        await log.append(b"late")
    with pytest.raises(Corrupt, match="gone"):
        await log.tail()


async def test_an_append_is_one_transaction_of_two_puts_whoever_else_writes(log_factory: EtcdFactory) -> None:
    """K-052: one round trip."""
    handles = [await log_factory.open(bucket_entries=4096) for _ in range(2)]
    for log in handles:
        await log.append(b"the first one")
    log_factory.relay.asked.clear()
    positions = [await log.append(b"entry") for log in handles * 3]
    assert positions == [3, 4, 5, 6, 7, 8]
    assert [method for method, _ in log_factory.relay.asked] == ["Txn"] * 6
    for _, request in log_factory.relay.asked:
        assert [one.WhichOneof("request") for one in pb.TxnRequest.FromString(request).success] == ["request_put"] * 2


async def test_a_follower_goes_on_when_history_is_compacted_under_its_watch(log_factory: EtcdFactory) -> None:
    """K-051, LG27: whoever compacts; a follower that was away reads on from the keys."""
    log, other = await log_factory.open(), await log_factory.open()
    entries = await fill(log, 20)
    stream = other.follow(BEFORE_ALL)
    async with asyncio.timeout(DEADLINE_S):
        assert [await anext(stream) for _ in entries] == entries
        log_factory.proxy.hold_all(new=False)
        direct = EtcdLog(logs(log_factory.server.url(log_factory.prefix)), DOMAIN, clock=SystemClock())
        more = await fill(direct, 20, name="more")
        await log_factory.compact()
        log_factory.proxy.release()
        await log_factory.disconnect()
        assert [await anext(stream) for _ in more] == more
    await aclose(stream)
    await direct.close()


async def test_wrong_credentials_are_told_and_nothing_is_retried_for_ever(server: Etcd, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("right\n")
    url = logs(f"etcd://root@{server.endpoints}/locked?password_file={secret}")
    member = server.members[0]
    member.ask("/v3/auth/user/add", {"name": "root", "password": "right"})
    member.ask("/v3/auth/role/add", {"name": "root"})
    member.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
    member.ask("/v3/auth/enable", {})
    try:
        log = await EtcdLog.open(url, DOMAIN, clock=SystemClock())
        entries = await fill(log, 3)
        log._members._token = "expired.1"  # as etcd answers when its tokens have run out
        entries += await fill(log, 2, name="renewed")
        assert await take(log, BEFORE_ALL, 5) == entries
        secret.write_text("wrong")
        with pytest.raises(Unavailable, match="does not let us in"):
            await EtcdLog.open(url, DOMAIN, clock=SystemClock())
        with pytest.raises(Unavailable, match="user name is empty"):
            await EtcdLog.open(logs(f"etcd://{server.endpoints}/locked"), DOMAIN, clock=SystemClock())
    finally:
        await log._members.call(lambda one: one.channel.unary_unary("/etcdserverpb.Auth/AuthDisable"), b"")
        await log.close()


async def test_an_append_to_nobody_is_refused_and_says_what_to_do() -> None:
    (port,) = free_ports(1)
    log = EtcdLog(logs(f"etcd://127.0.0.1:{port}/dray"), DOMAIN, clock=SystemClock())
    with pytest.raises(NotAppended, match="is it running"):
        await log.append(b"entry")
    await log.close()


async def test_etcd_that_the_log_itself_has_filled_is_healed_by_a_trim_alone(trio: Etcd) -> None:
    """LG29, LG28: slowed before it is full; once full, deletes pass, files are written anew, the alarm goes."""
    log = await EtcdLog.open(logs(trio.url("filled")), DOMAIN, clock=SystemClock(), bucket_entries=SMALL)
    pauses: list[float] = []

    async def append_until_full() -> None:
        while True:
            await log._room.look()
            pauses.append(log._room.pause_s)
            log._room.fill = 0.0  # a writer that is never told: the last guard is etcd's own
            await log.append(bytes(1 << 20))

    with pytest.raises(NotAppended, match="space exceeded"):
        await append_until_full()
    assert (pauses[0], pauses[-1] > 0, log.is_crowded) == (0, True, True)
    await log.trim(Position(await log.tail() - 1))
    async with asyncio.timeout(DEADLINE_S):
        while log._room.is_full:
            await log._room.look()
            await asyncio.sleep(0.1)
    position = await log.append(b"room again")
    assert (await take(log, position - 1, 1))[0] == (position, b"room again")
    with pytest.raises(Trimmed):
        await take(log, BEFORE_ALL, 1)
    await log.close()


async def test_the_leader_dies_and_nothing_that_was_acknowledged_is_missing_or_doubled(trio: Etcd) -> None:
    """K-050, K-051, LG26, LG27: three members, three writers, kill -9 of the leader; the unknown is appended again."""
    handles = [await EtcdLog.open(logs(trio.url("killed")), DOMAIN, clock=SystemClock()) for _ in range(3)]
    acked: dict[bytes, Position] = {}
    stop = asyncio.Event()

    async def writer(log: EtcdLog, name: str) -> None:
        number = 0
        while not stop.is_set():
            entry = f"{name}-{number}".encode()
            try:
                acked[entry] = await log.append(entry)
                number += 1
            except (LostReply, Unavailable):
                await asyncio.sleep(0.05)

    follower = handles[0].follow(BEFORE_ALL)
    async with asyncio.timeout(4 * DEADLINE_S), asyncio.TaskGroup() as group:
        for number, log in enumerate(handles):
            group.create_task(writer(log, f"w{number}"))
        while len(acked) < 100:
            await asyncio.sleep(0.01)
        leader = trio.leader()
        leader.kill()
        at = len(acked)
        while len(acked) < at + 100:
            await asyncio.sleep(0.01)
        leader.launch()
        await asyncio.to_thread(leader.wait)
        stop.set()
    async with asyncio.timeout(DEADLINE_S):
        tail = await handles[1].tail()
        order = [await anext(follower) for _ in range(tail)]
    await aclose(follower)
    assert [position for position, _ in order] == list(range(1, tail + 1))
    by_position = dict(order)
    assert all(by_position[position] == entry for entry, position in acked.items())
    for log in handles:
        await log.close()


async def test_doctor_tells_who_answers_how_full_it_is_and_what_compacts_it(server: Etcd) -> None:
    """LG29: 3.4 does not tell its quota, its command line does."""
    (port,) = free_ports(1)
    found = await survey(logs(f"etcd://{server.endpoints},127.0.0.1:{port}/dray"))
    assert "is etcd 3." in found.said[0]
    assert f"of its quota of {QUOTA >> 20} MiB used, compaction: by the log's trims alone" in found.said[0]
    assert "does not answer" in found.said[1]
    assert (found.failed, found.next) == ("", "start the member, or correct log.url")
    nobody = await survey(logs(f"etcd://127.0.0.1:{port}/dray"))
    assert nobody.failed == "start the member, or correct log.url"


def certificates(root: Path) -> Path:
    """A CA, a server's certificate for this machine and a client's, made by openssl."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=root, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    (root / "names").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    for name in ("server", "dray"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-extfile", "names")  # fmt: skip
    return root


async def test_a_log_over_tls_is_for_who_has_a_certificate(tmp_path: Path) -> None:
    """Both sides prove themselves; whoever cannot is told, and nothing is taken of him."""
    made = certificates(tmp_path)
    plain, secure = free_ports(2)
    server = Etcd(tmp_path, program=packaged(), flags=[
        "--listen-client-urls", f"http://127.0.0.1:{plain},https://127.0.0.1:{secure}",
        "--cert-file", str(made / "server.pem"), "--key-file", str(made / "server.key"),
        "--trusted-ca-file", str(made / "ca.pem"), "--client-cert-auth",
    ])  # fmt: skip
    server.members[0].client_port = plain
    server.start()
    try:
        base = f"etcds://127.0.0.1:{secure}/tls?ca={made / 'ca.pem'}"
        log = await EtcdLog.open(
            logs(f"{base}&cert={made / 'dray.pem'}&key={made / 'dray.key'}"), 0, clock=SystemClock()
        )
        entries = await fill(log, 3)
        assert await take(log, BEFORE_ALL, 3) == entries
        await log.close()
        for stranger in (base, f"etcds://127.0.0.1:{secure}/tls"):
            with pytest.raises(Unavailable):
                await EtcdLog.open(logs(stranger), 0, clock=SystemClock(), call_seconds=1.0)
    finally:
        server.stop()
