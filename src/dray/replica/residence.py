"""Which domains a process has loaded: they come when they are led or asked for here, and go when nobody uses them.

    absent ──► loading ──► loaded ──► leaving ──► absent

A domain that is absent has its replica all the same, so that nobody has to
give one back: it has no state to look at, follows nothing and has no session.
Whoever waits for it (`propose`, `sync`, `ready`) waits until it is loaded;
whoever looks is told that it is not (DL3). What works for a domain with nobody
asking is begun when it is loaded and ended before it goes (`Tender`).

All changes are made by one task, one after another (`Residence.run`).

Invariants
    DL1  A broker has the domains that it leads: whatever is to be done for a
         domain, asked or not, is done by its leader at least.
    DL2  A domain goes only where this broker does not lead it, no request
         that has looked at it goes on, no service holds anything of it,
         nothing waits for its log, and it was not used for a while.
    DL4  A domain that goes gives its session back first; one that could not
         be given back in time is for its leader to expire.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Final, Protocol

from dray.clock import Clock
from dray.errors import DrayError, Unavailable, Unknown
from dray.replica import telemetry
from dray.replica.errors import NotLoaded
from dray.replica.leaving import leave
from dray.replica.replica import Replica
from dray.telemetry import logger

LOOK_S: Final = 1.0
"""How often it is looked what is led here, and what may go."""
SHORTEST_NS: Final = 2_000_000_000
"""What was used so lately is not dropped, however many are loaded: it may be used again."""
CLOSE_S: Final = 2.0
"""What a session has to be given back (DL4): other domains wait meanwhile to be loaded."""


class Stage(Enum):
    """Where a domain is between the log and memory."""

    ABSENT = "absent"
    LOADING = "loading"
    LOADED = "loaded"
    LEAVING = "leaving"


class Bring(Protocol):
    """Loads the state of a domain into its replica, which runs until the stack ends."""

    async def __call__(self, stack: AsyncExitStack) -> None: ...


class Guest(Protocol):
    """A service that may hold something of a domain between two requests."""

    def is_busy(self, domain: int) -> bool:
        """Whether it does (DL2)."""
        ...

    def leave(self, domain: int) -> None:
        """The domain goes: nothing of it is taken from now on."""
        ...


Works = Callable[[int], Iterable[Coroutine[None, None, None]]]
"""What is done for a domain for as long as it is loaded."""


class DomainSlot:
    """One domain of a process."""

    __slots__ = ("bring", "clock", "domain", "generation", "replica", "stack", "stage", "used_ns", "users", "waiting")

    def __init__(self, domain: int, replica: Replica, bring: Bring, clock: Clock) -> None:
        self.domain = domain
        self.clock = clock
        self.replica = replica
        self.bring = bring
        self.stage = Stage.ABSENT
        self.stack: AsyncExitStack | None = None
        self.users = 0
        """Requests that go on and have looked at it."""
        self.used_ns = 0
        self.generation = 0
        """Of its log: it changes only while nobody runs."""
        self.waiting: list[asyncio.Future[None]] = []

    @property
    def is_loaded(self) -> bool:
        return self.stage is Stage.LOADED

    def answer(self, error: DrayError | None = None) -> None:
        """Tell whoever waits for it."""
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            if not one.done():
                if error is None:
                    one.set_result(None)
                else:
                    one.set_exception(error)


class _Request:
    """What one request has looked at, until it ends."""

    __slots__ = ("over", "slots")

    def __init__(self) -> None:
        self.slots: dict[DomainSlot, None] = {}
        self.over = False

    def hold(self, slot: DomainSlot) -> None:
        if not self.over and slot not in self.slots:
            self.slots[slot] = None
            slot.users += 1


_REQUEST: Final[ContextVar[_Request | None]] = ContextVar("request", default=None)


@contextmanager
def one_request() -> Iterator[None]:
    """What is looked at in this block, by whatever it calls, does not go before its end (DL2)."""
    request = _Request()
    token = _REQUEST.set(request)
    try:
        yield
    finally:
        _REQUEST.reset(token)
        request.over = True
        for slot in request.slots:
            slot.users -= 1
            slot.used_ns = slot.clock.boot_ns()


class Residence:
    """The domains of a process, and which of them are loaded."""

    def __init__(self, clock: Clock, *, budget: int, idle_s: float, wait_s: float) -> None:
        """`budget`: so many domains, the catalog not counted, may be loaded though nobody uses them; 0: all."""
        self.slots: dict[int, DomainSlot] = {}
        self.budget = budget
        self._clock = clock
        self._idle_ns = int(idle_s * 1e9)
        self._wait_s = wait_s
        self._asked = asyncio.Event()
        self._guests: list[Guest] = []
        self._tenders: list[Tender] = []
        self.missing: frozenset[int] = frozenset()
        """Domains that are led here and could not be loaded when it was last tried (DL1)."""

    @property
    def replicas(self) -> dict[int, Replica]:
        return {domain: slot.replica for domain, slot in self.slots.items()}

    # -- what requests and services say -------------------------------------

    def touch(self, slot: DomainSlot) -> None:
        """Somebody is about to look at a domain."""
        request = _REQUEST.get()
        if request is not None:
            request.hold(slot)

    async def ready(self, domain: int) -> None:
        """Return when a domain is loaded.

        Raises:
            NotLoaded, Unavailable: it is not, in time; nothing happened.
        """
        slot = self.slots[domain]
        self.touch(slot)
        slot.used_ns = self._clock.boot_ns()
        if slot.is_loaded:
            return
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        slot.waiting.append(answer)
        slot.users += 1  # until this very task goes on: it may be dropped in the turn in which it came
        self._asked.set()
        try:
            async with asyncio.timeout(self._wait_s):
                await answer
        except TimeoutError:
            raise NotLoaded("the domain is being loaded: try again", domain=domain) from None
        finally:
            slot.users -= 1
            if answer in slot.waiting:
                slot.waiting.remove(answer)  # nobody waits any more

    def welcome(self, guest: Guest) -> None:
        self._guests.append(guest)

    def tend(self, tasks: asyncio.TaskGroup, works: Works) -> None:
        """Let tasks of the group work for each domain while it is loaded; the catalog always is."""
        tender = Tender(tasks, works, self._tenders)
        self._tenders.append(tender)
        for slot in self.slots.values():
            if slot.is_loaded:
                tender.start(slot.domain)

    # -- coming and going ----------------------------------------------------

    async def run(self, led: Callable[[], frozenset[int] | None]) -> None:
        """Load and drop, for ever; `led` tells what this broker leads, None: it is not known to the cluster yet."""
        while True:
            self._asked.clear()
            await self.step(led)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()

    async def step(self, led: Callable[[], frozenset[int] | None]) -> None:
        """One look at what is wanted here and what is not."""
        missing = []
        for slot in self.slots.values():
            is_led = slot.domain in (led() or ())
            if slot.stage is Stage.ABSENT and (is_led or slot.waiting):
                await self._try_load(slot)
            if is_led and not slot.is_loaded:
                missing.append(slot.domain)  # DL1
        self.missing = frozenset(missing)
        while not self._asked.is_set() and (slot_to_go := self._ripe(led())) is not None:
            await self.drop(slot_to_go)

    async def load(self, slot: DomainSlot) -> None:
        """Load a domain, whoever wants it; raises what hindered it."""
        slot.stage = Stage.LOADING
        slot.replica.load = partial(self.ready, slot.domain)
        try:
            async with AsyncExitStack() as stack:
                await slot.bring(stack)
                slot.generation = slot.replica.machine.head.generation
                slot.stack = stack.pop_all()
        finally:
            if slot.stack is None:
                slot.replica.end()
                slot.stage = Stage.ABSENT
        slot.stage, slot.used_ns = Stage.LOADED, self._clock.boot_ns()
        slot.replica.load = None
        for tender in list(self._tenders):
            tender.start(slot.domain)
        self._count()
        slot.answer()

    async def _try_load(self, slot: DomainSlot) -> None:
        try:
            await self.load(slot)
        except (Unavailable, Unknown) as error:
            logger().warning(telemetry.DOMAIN_NOT_LOADED, domain=slot.domain, error=str(error))
            slot.answer(NotLoaded("the domain could not be loaded: try again", domain=slot.domain))
        except DrayError as error:
            slot.answer(slot.replica.fail(error))  # damage is damage, whenever it is found: the process ends
        else:
            telemetry.LOADS.inc()
            logger().info(telemetry.DOMAIN_LOADED, domain=slot.domain, position=slot.replica.machine.position)

    def _ripe(self, led: frozenset[int] | None) -> DomainSlot | None:
        """The domain that was not used for longest, if one is to go."""
        if led is None or not self.budget:
            return None
        loaded = [slot for slot in self.slots.values() if slot.is_loaded and slot.domain]
        now_ns, over = self._clock.boot_ns(), len(loaded) > self.budget
        patience_ns = min(SHORTEST_NS, self._idle_ns) if over else self._idle_ns
        for slot in sorted(loaded, key=lambda one: one.used_ns):
            if now_ns - slot.used_ns >= patience_ns and self.may_go(slot, led):
                return slot
        return None

    def may_go(self, slot: DomainSlot, led: frozenset[int]) -> bool:
        """DL2, but for how long it was not used."""
        return (
            slot.domain not in led  # DL1
            and not slot.users
            and not slot.waiting
            and slot.replica.is_idle
            and not any(guest.is_busy(slot.domain) for guest in self._guests)
        )

    async def drop(self, slot: DomainSlot) -> None:
        """Let a domain go (DL2 was looked at)."""
        replica, stack = slot.replica, slot.stack
        assert stack is not None, "what is loaded has a stack"
        slot.stage = Stage.LEAVING
        replica.load = partial(self.ready, slot.domain)  # DL3
        for guest in self._guests:
            guest.leave(slot.domain)
        for tender in list(self._tenders):
            await tender.stop(slot.domain)
        await self._give_back(replica)
        await stack.aclose()
        slot.stack = None
        left = replica.end()
        slot.stage = Stage.ABSENT
        self._count()
        telemetry.DROPS.inc()
        logger().info(telemetry.DOMAIN_DROPPED, domain=slot.domain)
        await leave(left)

    async def _give_back(self, replica: Replica) -> None:
        """DL4"""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await replica.close_session()

    def _count(self) -> None:
        telemetry.LOADED_DOMAINS.set(sum(slot.is_loaded for slot in self.slots.values()))

    async def end(self, finish: Callable[[int], Awaitable[None]]) -> None:
        """A clean stop: every domain that is loaded is finished, and its session given back."""
        for slot in self.slots.values():
            if slot.stack is not None:
                await finish(slot.domain)
                await slot.replica.close_session()

    async def close(self) -> None:
        """Nothing runs any more."""
        for slot in reversed(self.slots.values()):
            if slot.stack is not None:
                await slot.stack.aclose()


class Tender:
    """Tasks of a group that work for each domain that is loaded."""

    def __init__(self, tasks: asyncio.TaskGroup, works: Works, tenders: "list[Tender]") -> None:
        self._tasks = tasks
        self._works = works
        self._tenders = tenders
        self._at_work: dict[int, list[asyncio.Task[None]]] = {}

    def start(self, domain: int) -> None:
        begun: list[asyncio.Task[None]] = []
        self._at_work[domain] = begun
        for work in self._works(domain):
            try:
                task = self._tasks.create_task(work)
            except RuntimeError:  # the group is ending: who begins it again begins this, too
                work.close()
                continue
            begun.append(task)
            task.add_done_callback(partial(self._ended, domain))

    async def stop(self, domain: int) -> None:
        tasks = self._at_work.pop(domain, [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, domain: int, _task: "asyncio.Task[None]") -> None:
        """Work that ends by itself takes its group with it: nothing more is begun there."""
        if domain in self._at_work and self in self._tenders:
            self._tenders.remove(self)
