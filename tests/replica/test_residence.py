"""Domains that come and go."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest

from dray.clock import SystemClock
from dray.errors import Corrupt, Unavailable
from dray.log.memory import MemoryLog
from dray.machine.machine import Machine
from dray.machine.names import StreamId
from dray.machine.sessions import KeepAlive
from dray.replica.domains import SomeDomains
from dray.replica.errors import NotLoaded
from dray.replica.opening import catch_up
from dray.replica.replica import Replica
from dray.replica.residence import DomainSlot, Residence, one_request
from tests.replica.domain import new_log, replica_on, running

CLOCK = SystemClock()
NOTHING: frozenset[int] = frozenset()


@dataclass
class Home:
    """Two domains; the second may go as soon as nobody uses it."""

    residence: Residence
    domains: SomeDomains
    logs: list[MemoryLog]
    broken: list[Exception] = field(default_factory=list)
    brought: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: a load has its state and goes no further."""

    @property
    def slot(self) -> DomainSlot:
        return self.residence.slots[1]

    async def step(self, led: frozenset[int] | None = NOTHING) -> None:
        await self.residence.step(lambda: led)


@asynccontextmanager
async def home(idle_s: float = 0.0, wait_s: float = 5.0) -> AsyncIterator[Home]:
    logs = [await new_log(), await new_log()]
    residence = Residence(CLOCK, budget=1, idle_s=idle_s, wait_s=wait_s)
    broken: list[Exception] = []
    brought = asyncio.Event()
    brought.set()

    async def bring(replica: Replica, log: MemoryLog, stack: AsyncExitStack) -> None:
        if broken:
            raise broken.pop()
        replica.begin(Machine())
        await brought.wait()
        await catch_up(replica, log, CLOCK.boot_ns)
        await stack.enter_async_context(replica.running())

    for domain, log in enumerate(logs):
        replica = replica_on(log)
        slot = residence.slots[domain] = DomainSlot(domain, replica, partial(bring, replica, log), CLOCK)
        await residence.load(slot)
    try:
        yield Home(residence, SomeDomains(residence), logs, broken, brought)
    finally:
        await residence.close()


async def keep_looking(home: Home) -> None:
    await home.residence.run(lambda: NOTHING)


async def test_a_domain_that_nobody_uses_goes_and_gives_its_session_back() -> None:
    """DL2, DL4"""
    async with home() as here:
        await here.domains[1].open_session()
        await here.step()
        assert not here.slot.is_loaded
        assert [domain for domain, _ in here.domains] == [0]
        assert set(here.domains.all) == {0, 1}
        after = replica_on(here.logs[1], "looker")
        async with running(after):
            assert not after.machine.sessions.live


async def test_nothing_is_told_from_a_domain_that_went_and_who_waits_for_it_has_it_again() -> None:
    """DL3"""
    async with home() as here:
        replica = here.domains[1]
        position = replica.machine.position
        await here.step()
        with pytest.raises(NotLoaded):
            _ = replica.machine.streams
        with pytest.raises(Unavailable):
            replica.check_serving()
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(keep_looking(here))
            await replica.propose(KeepAlive())
            await replica.sync()
            assert replica.machine.position > position
            looking.cancel()


async def test_a_state_is_shown_when_it_is_as_new_as_the_log_and_not_before() -> None:
    """DL3: who synced before a domain went, and looks after it came back, must not see less."""
    async with home() as here:
        replica = here.domains[1]
        await here.step()
        here.brought.clear()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(here.step(frozenset({1})))
            await asyncio.sleep(0)
            with pytest.raises(NotLoaded):
                _ = replica.machine.position
            here.brought.set()
        assert replica.machine.position > 0


async def test_what_is_led_or_used_or_waited_for_stays() -> None:
    """DL1, DL2"""

    class Lodger:
        def is_busy(self, domain: int) -> bool:
            return domain == 1

        def leave(self, domain: int) -> None:
            raise AssertionError("it was busy")

    async with home() as here:
        await here.step(frozenset({1}))
        assert here.slot.is_loaded
        await here.step(None)  # nobody knows yet what is led here
        assert here.slot.is_loaded
        with one_request():
            assert here.domains.has(StreamId(1))
            await here.step()
            assert here.slot.is_loaded
        lodger = Lodger()
        here.domains.welcome(lodger)
        await here.step()
        assert here.slot.is_loaded


async def test_the_leader_loads_what_it_did_not_have_and_tells_while_it_cannot() -> None:
    """DL1"""
    async with home() as here:
        await here.step()
        here.broken.append(Unavailable("the store does not answer"))
        await here.step(frozenset({1}))
        assert here.residence.missing == {1}
        await here.step(frozenset({1}))
        assert not here.residence.missing
        assert here.slot.is_loaded


async def test_damage_that_a_load_finds_ends_the_process() -> None:
    """RP4"""
    async with home() as here:
        await here.step()
        here.broken.append(Corrupt("the log of a domain is gone"))
        await here.step(frozenset({1}))
        assert isinstance(here.slot.replica.failed.result(), Corrupt)


async def test_a_request_waits_for_a_load_and_no_longer_than_it_may() -> None:
    """DL3"""
    async with home(wait_s=0.01) as here:
        await here.step()
        with pytest.raises(NotLoaded, match="try again"):
            await here.domains.ready(1)  # nobody loads


async def test_work_for_a_domain_begins_when_it_comes_and_ends_before_it_goes() -> None:
    """DL2: nothing of this process looks at a domain that went."""
    at_work: list[int] = []

    async def work(domain: int) -> None:
        at_work.append(domain)
        try:
            await asyncio.Event().wait()
        finally:
            assert here.slot.replica.machine.position
            at_work.remove(domain)

    async with home() as here, asyncio.TaskGroup() as tasks:
        here.domains.tend(tasks, lambda domain: (work(domain),))
        ends = tasks.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        assert sorted(at_work) == [0, 1]
        await here.step()
        assert at_work == [0]
        await here.step(frozenset({1}))
        await asyncio.sleep(0)
        assert sorted(at_work) == [0, 1]
        ends.cancel()
        await here.residence._tenders[0].stop(0)
        await here.residence._tenders[0].stop(1)


async def test_the_state_of_a_domain_that_went_is_freed() -> None:
    """Also if it was there when the process began to serve: the collector does not look at that (`dray.memory`)."""
    async with home() as here:
        state = weakref.ref(here.slot.replica.machine)
        gc.collect()
        gc.freeze()
        try:
            await here.step()
            assert state() is None
        finally:
            gc.unfreeze()
