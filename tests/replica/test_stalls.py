"""A follower that shows nothing any more: nobody waits for ever, and the way is made anew (RP5, RP11)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dray.clock import ManualClock
from dray.errors import DrayError, Unavailable, Unknown
from dray.log.client import ClientLog
from dray.log.memory import MemoryLog
from dray.log.port import Position
from dray.log.server import LogServer
from dray.machine.sessions import KeepAlive
from dray.machine.verdict import Done
from dray.replica.errors import Behind, CommitUnknown, NotServing
from dray.replica.replica import Replica
from dray.replica.stall import StallWatch
from dray.replica.writer import Timing
from tests.log.proxy import Proxy
from tests.log.test_server import CLUSTER, DOMAIN
from tests.replica.domain import new_log, replica_on
from tests.replica.test_closing import until

QUICK = Timing(ttl_ms=6_000, keepalive_ms=800, settle_ms=2_000, wait_ms=2_000)
"""A follower counts as cut off after a second; long enough for a machine that has much to do."""
HANG_S = 60
"""Only a hang takes so long."""


@asynccontextmanager
async def behind_a_proxy(home: Path) -> AsyncIterator[tuple[Replica, Proxy]]:
    """A replica that reaches the server of its log through a relay."""
    log = await new_log()
    server = LogServer({DOMAIN: log}, cluster_id=CLUSTER)
    await server.listen_unix(home / "meta.sock")
    proxy = Proxy(home / "meta.sock")
    client = ClientLog(
        await proxy.listen(home / "meta.sock"), DOMAIN, cluster_id=CLUSTER, call_seconds=QUICK.settle_ms / 2_000
    )
    replica = replica_on(client, timing=QUICK)
    try:
        async with asyncio.timeout(HANG_S), replica.running():
            await soon(replica)
            yield replica, proxy
    finally:
        await client.close()
        await proxy.close()
        await server.close()


async def soon(replica: Replica) -> None:
    """Until the replica commits, sees everything and serves again."""
    while True:
        try:
            assert await replica.propose(KeepAlive()) == [Done()]
            await replica.sync()
            replica.check_serving()
        except (Unavailable, Unknown):
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.slow
async def test_a_follower_on_a_half_open_connection_is_connected_anew(tmp_path: Path) -> None:
    """RP11: the connection stays open and says nothing, while calls are answered as ever."""
    async with behind_a_proxy(tmp_path) as (replica, proxy):
        assert proxy.hold_followers() >= 1
        await soon(replica)
        assert not replica.failed.done()


@pytest.mark.slow
async def test_with_every_connection_half_open_callers_are_told_in_time_and_nothing_is_served(tmp_path: Path) -> None:
    """RP5, RP11: and when something passes again, it goes on without a restart."""
    async with behind_a_proxy(tmp_path) as (replica, proxy):
        proxy.hold_all()
        with pytest.raises(DrayError) as caught:
            await replica.propose(KeepAlive())
        assert isinstance(caught.value, Unavailable | Unknown)
        with pytest.raises(Unavailable):
            await replica.sync()
        while True:
            try:
                replica.check_serving()
            except NotServing:
                break
            await asyncio.sleep(0.05)
        proxy.release()
        await soon(replica)


class LateLog:
    """A handle whose follower shows nothing while the gate is closed."""

    def __init__(self, inner: MemoryLog) -> None:
        self._inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self.follows = 0
        self.ends = False

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        self.follows += 1
        if self.ends:
            return
        async for position, entry in self._inner.follow(after):
            await self.gate.wait()
            if self.ends:
                return
            yield position, entry

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


@pytest.mark.slow
async def test_an_entry_that_the_log_took_and_never_shows_stays_unknown_in_time() -> None:
    """RP11, E1: it is in the log, but nobody here knows what became of it."""
    log = LateLog((await new_log()).handle())
    replica = replica_on(log, timing=QUICK)
    async with asyncio.timeout(HANG_S), replica.running():
        await replica.open_session()
        log.gate.clear()
        with pytest.raises(CommitUnknown):
            await replica.propose(KeepAlive())
        with pytest.raises(Behind):
            await replica.sync()
        with pytest.raises(NotServing):
            replica.check_serving()
        log.gate.set()
        await soon(replica)


@pytest.mark.slow
async def test_a_follower_that_ends_is_begun_again_without_haste() -> None:
    """RP11: it neither spins nor hangs, and goes on when the log does."""
    log = LateLog((await new_log()).handle())
    replica = replica_on(log, timing=QUICK)
    async with asyncio.timeout(HANG_S), replica.running():
        await replica.open_session()
        log.ends = True
        log.follows = 0
        await log.append(b"an entry that nobody wrote")  # wakes the follower, which then ends
        with pytest.raises(Behind):
            await replica.sync()
        assert 0 < log.follows < 100
        log.ends = False
        await soon(replica)


async def test_a_session_is_as_old_as_the_newest_entry_that_was_sent_not_seen() -> None:
    """RP5: a verdict that comes late does not make the entry newer for those who may expire its session."""
    clock = ManualClock()
    log = LateLog((await new_log()).handle())
    timing = Timing(ttl_ms=15_000, keepalive_ms=5_000, settle_ms=10_000)
    replica = replica_on(log, clock=clock, timing=timing)
    async with replica.running():
        await replica.open_session()
        log.gate.clear()
        before = await log.tail()
        sent = asyncio.ensure_future(replica.propose(KeepAlive()))
        while await log.tail() == before:
            await asyncio.sleep(0)
        clock.advance(9_000)
        log.gate.set()
        assert await sent == [Done()]
        replica.check_serving()
        log.gate.clear()  # the beat that is due now is not seen
        clock.advance(1_500)
        with pytest.raises(NotServing):
            replica.check_serving()
        log.gate.set()


async def test_a_long_history_is_caught_up_with_however_long_it_takes() -> None:
    """RP11: what goes on is not given up at the start."""

    class Slow(LateLog):
        async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
            async for found in self._inner.follow(after):
                clock.advance(QUICK.settle_ms * 2 // 3)
                await asyncio.sleep(0)
                yield found

    clock = ManualClock()
    inner = await new_log()
    for number in range(20):
        await inner.append(b"an entry that nobody wrote %d" % number)
    replica = replica_on(Slow(inner.handle()), clock=clock, timing=QUICK)
    async with asyncio.timeout(HANG_S), replica.running():
        assert replica.machine.position == await inner.tail()


def test_silence_alone_is_no_stall_and_neither_is_progress() -> None:
    watch = StallWatch(limit_ns=10)
    assert not any(watch.stalled(5, now) for now in range(0, 100, 5)), "nothing was promised"
    watch.expect(9)
    assert not any(watch.stalled(5 + now // 10, now) for now in range(0, 40, 5)), "it goes on"
    assert [now for now in range(40, 75, 5) if watch.stalled(8, now)] == [40, 50, 60, 70], "tried again and again"
    assert not watch.stalled(9, 100)


async def test_a_replica_whose_follower_dies_stops() -> None:
    """A follower that nobody misses would answer old truths."""

    class Dying(LateLog):
        async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
            async for found in self._inner.follow(after):
                if self.ends:
                    raise ZeroDivisionError
                yield found

    log = Dying((await new_log()).handle())
    replica = replica_on(log, timing=QUICK)
    async with asyncio.timeout(HANG_S), replica.running():
        await replica.open_session()
        log.ends = True
        with pytest.raises(DrayError):
            await replica.propose(KeepAlive())
        await until(replica.failed.done)
