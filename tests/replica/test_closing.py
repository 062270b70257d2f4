"""A session that was given back stays given back."""

import asyncio

from dray.clock import ManualClock
from dray.log.memory import MemoryLog
from dray.log.port import Position
from dray.machine.sessions import KeepAlive
from tests.replica.domain import FAST, new_log, replica_on


class SlowLog:
    """A handle whose appends wait for a gate."""

    def __init__(self, inner: MemoryLog) -> None:
        self.inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def append(self, entry: bytes) -> Position:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return await self.inner.append(entry)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_a_beat_that_falls_due_while_the_session_is_closed_does_not_open_it_again() -> None:
    clock = ManualClock()
    log = SlowLog((await new_log()).handle())
    replica = replica_on(log, clock=clock)
    async with replica.running():
        await replica.propose(KeepAlive())
        log.gate.clear()
        closing = asyncio.create_task(replica.close_session())
        await until(lambda: log.waiting == 1)
        for _ in range(8):  # two beats long
            clock.advance(FAST.keepalive_ms // 4)
            for _ in range(10):
                await asyncio.sleep(0)
        log.gate.set()
        await closing
        for _ in range(8):
            clock.advance(FAST.keepalive_ms // 4)
            for _ in range(10):
                await asyncio.sleep(0)
        await replica.sync()
        assert replica.session is None
        assert not replica.machine.sessions.live
