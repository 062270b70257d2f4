"""Heaps inside a test, without a network, on a clock that the test moves.

    from dray.testing.heaps import heaps

    async def test_a_job_that_is_forgotten_comes_back():
        async with heaps() as dray:
            await dray.client.make_heap("jobs", visibility_timeout=30)
            ...
            await dray.advance(31)

The broker's log, machine and services are the real ones, in memory; `client`
is the SDK's own, over a transport that calls the server's handlers. Leases,
delays and windows run on the test's clock; the SDK's own timeouts and its
renewals of leases run on the machine's.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Final, Generic, cast

from dray.client.client import Client
from dray.client.errors import ClientError, Disconnected, NotServed, OutcomeUnknown, error_of
from dray.client.transport import A, Method, Q, Stream
from dray.clock import ManualClock
from dray.errors import DrayError
from dray.heaps.present import due_in_ms, present
from dray.heaps.service import HeapService
from dray.ids import SeededEntropy
from dray.log.memory import MemoryLog
from dray.machine.head import SUPPORTED, Genesis, founding
from dray.machine.machine import Machine
from dray.machine.sessions import SessionKind
from dray.objects.memory import MemoryObjects
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.session import Identity
from dray.replica.writer import Timing
from dray.servers.grpc.enqueuing import EnqueueSession
from dray.servers.grpc.errors import status_of
from dray.servers.grpc.gate import GrpcCaller, OpenGate
from dray.servers.grpc.heaps import HeapsApi
from dray.servers.grpc.methods import UNARY
from dray.servers.grpc.popping import PopSession

PATIENT: Final = Timing(ttl_ms=30 * 86_400_000, keepalive_ms=5_000, settle_ms=20_000)
"""A test may let a month pass at once."""
SETTLE_S: Final = 10.0


class TestHeaps:
    """Heaps, a client of them, and their clock."""

    __test__ = False  # not a test case, whatever its name begins with

    def __init__(self, client: Client, clock: ManualClock, replica: Replica) -> None:
        self.client = client
        self.clock = clock
        self._replica = replica

    async def advance(self, span: timedelta | float) -> None:
        """Let time pass; what is due by then has happened when this returns."""
        seconds = span.total_seconds() if isinstance(span, timedelta) else span
        self.clock.advance(int(seconds * 1_000))
        async with asyncio.timeout(SETTLE_S):
            while self._something_is_due():
                self.clock.advance(1)  # wakes who looks for work
                await asyncio.sleep(0.001)

    def _something_is_due(self) -> bool:
        at = present(self._replica, self.clock)
        machine = self._replica.machine
        found = (machine.heaps.find(heap.shard) for heap in machine.heap_catalog.visible())
        due = [due_in_ms(shard, at) for shard in found if shard is not None]
        return any(ms is not None and ms <= 0 for ms in due)


@asynccontextmanager
async def heaps(*, seed: str = "test heaps") -> AsyncIterator[TestHeaps]:
    """Heaps for as long as the block runs."""
    clock = ManualClock()
    entropy = SeededEntropy(seed)
    log = MemoryLog()
    founded = Genesis(
        cluster_id=entropy.random_bytes(16), log_id=entropy.random_bytes(8), domain=0, domains=1, version=SUPPORTED
    )
    await log.append(founding(founded, clock.wall_ms()))
    who = Identity(name="test-heaps", instance=entropy.random_bytes(16), kind=SessionKind.BROKER, owner=True)
    replica = Replica(log=log, machine=Machine(), identity=who, clock=clock, entropy=entropy, timing=PATIENT)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(replica.running())
        await replica.open_session()
        service = HeapService(domains=Domains({0: replica}), objects=MemoryObjects(), clock=clock, entropy=entropy)
        await stack.enter_async_context(service.running())
        upkeep = asyncio.create_task(service.run())
        stack.push_async_callback(_end, upkeep)
        transport = InProcessTransport(HeapsApi(service, OpenGate(), clock, "memory"))
        client = await stack.enter_async_context(Client(transport=transport))
        yield TestHeaps(client, clock, replica)


class InProcessTransport:
    """Calls the handlers of a server in this process. Messages are packed and unpacked, as on a wire."""

    def __init__(self, api: HeapsApi) -> None:
        self._api = api
        self._caller = GrpcCaller(name="test", address="in process")
        self._methods = {one.name: one for one in UNARY}
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._numbers = 0

    async def call(self, method: Method[Q, A], request: Q, timeout: float) -> A:
        served = self._methods.get(method.name)
        if served is None:
            raise NotServed(f"{method.path} needs a broker: see dray.testing.broker()")
        try:
            async with asyncio.timeout(timeout):
                packed = await served.answer(self._api, self._caller, request.SerializeToString())
        except DrayError as error:
            raise told(error) from error
        except TimeoutError as late:
            raise OutcomeUnknown("no answer came in time") from late
        return method.answer.FromString(packed)

    def call_from_thread(self, method: Method[Q, A], request: Q, timeout: float) -> A:
        asked = asyncio.run_coroutine_threadsafe(self.call(method, request, timeout), self._loop)
        try:
            return asked.result(timeout)
        except TimeoutError as late:
            raise OutcomeUnknown("no answer came in time") from late

    def stream(self, method: Method[Q, A]) -> Stream[Q, A]:
        self._numbers += 1
        run: Callable[[AsyncIterator[Q], Callable[[A], Awaitable[None]]], Awaitable[None]]
        if method.name == "PopStream":
            popping = PopSession(self._api, self._caller, self._numbers, self._stopping, compress=lambda: None)
            run = cast("Callable[[AsyncIterator[Q], Callable[[A], Awaitable[None]]], Awaitable[None]]", popping.run)
        else:
            enqueuing = EnqueueSession(self._api, self._caller, self._stopping)
            run = cast("Callable[[AsyncIterator[Q], Callable[[A], Awaitable[None]]], Awaitable[None]]", enqueuing.run)
        return _InProcessStream(method, run)

    def move(self) -> None:
        """There is one broker."""

    def stop(self) -> None:
        """Tell all streams that their broker is stopping."""
        self._stopping.set()

    async def close(self) -> None:
        """Nothing is held."""


class _InProcessStream(Generic[Q, A]):
    def __init__(
        self,
        method: Method[Q, A],
        run: Callable[[AsyncIterator[Q], Callable[[A], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        self._method = method
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1_000)
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=100)
        self._error: ClientError | None = None
        self._ended = False
        self._task = asyncio.create_task(self._run(run))

    async def _run(self, run: Callable[[AsyncIterator[Q], Callable[[A], Awaitable[None]]], Awaitable[None]]) -> None:
        async def requests() -> AsyncIterator[Q]:
            while (packed := await self._requests.get()) is not None:
                yield self._method.request.FromString(packed)

        async def write(message: A) -> None:
            await self._answers.put(message.SerializeToString())

        try:
            await run(requests(), write)
        except DrayError as error:
            self._error = told(error)
        except asyncio.CancelledError:
            self._error = Disconnected("the stream was cancelled")
        self._ended = True
        await self._answers.put(None)

    async def write(self, message: Q) -> None:
        if self._ended:
            raise self._error or Disconnected("the stream has ended")
        await self._requests.put(message.SerializeToString())

    async def read(self) -> A | None:
        packed = None if self._ended and self._answers.empty() else await self._answers.get()
        if packed is not None:
            return self._method.answer.FromString(packed)
        if self._error is not None:
            raise self._error
        return None

    async def done_writing(self) -> None:
        await self._requests.put(None)

    def cancel(self) -> None:
        self._task.cancel()


def told(error: DrayError) -> ClientError:
    """As a client hears of it."""
    status = status_of(error)
    return error_of(status.code.name, status.message, dict(status.trailing))


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
