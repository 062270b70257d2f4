"""Brokers for the simulator: the product's replicas and services in each process, and clients that reach them.

`Broker` is what a server does with the services: hand a request on, and tell
what came of it. `Cluster` boots one per node on shared logs, one for each
domain, and a shared bucket, restarts what a supervisor would restart, and
keeps the `Truth` of each log.

Invariants
    SM15  A client never learns more than a network client could: an answer,
          a refusal, or nothing in time. A process that dies or sleeps
          answers nothing.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

from dray.errors import DrayError, Kind, Unavailable, Unknown
from dray.log.port import Log
from dray.machine import checkpoint
from dray.machine.brokers import RegisterBroker
from dray.machine.head import SUPPORTED, Genesis, founding
from dray.machine.machine import Machine
from dray.machine.names import LogId, StreamId, domain_of
from dray.machine.sessions import SessionKind
from dray.node.directory import FORMAT
from dray.node.directory import Identity as Installation
from dray.node.plane import Plane
from dray.node.registration import keep_registered
from dray.node.services import BrokerServices, ServiceSettings, run_services
from dray.objects.retry import RetryingObjects, RetryPolicy
from dray.produce.settings import FlushPolicy
from dray.replica.checkpoints import CheckpointStore, newest_machine
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.session import COUNTERS, Identity
from dray.replica.writer import Timing
from dray.sim.process import EPOCH_MS, Process
from dray.sim.requests import Requests
from dray.sim.truth import Truth
from dray.sim.world import Node, World
from dray.tasks.watch import Watch
from dray.topics.errors import TopicExists
from dray.topics.service import NewTopic

T = TypeVar("T")

CLUSTER: Final = uuid.UUID(bytes=b"cluster-of-a-sim")
TOPIC: Final = "sim"
STORE: Final = RetryPolicy(attempts=3, attempt_seconds=5, total_seconds=12)
SETTINGS: Final = ServiceSettings(
    flush=FlushPolicy(flushes=4, flush_batches=3, appends_per_second=10_000, hedge_floor_s=0.05)
)
"""Few batches in a flush, so that several are under way; and a store that is slow is soon asked twice."""
_RESTART_S: Final = 1.0


class Unreachable(Unavailable):
    """Nobody listens there; nothing happened."""


class NoAnswer(Unknown):
    """The broker did not answer in time."""


def surely_not(error: DrayError) -> bool:
    """Whether an error proves that nothing happened (E1)."""
    return error.kind is not Kind.UNKNOWN


def log_id(domain: int) -> LogId:
    return LogId(b"sim-log%d" % (domain + 1))


class StrictWatch(Watch):
    """In the simulator work that fails by a bug is not begun again: it is told."""

    def __init__(self, process: Process, world: World) -> None:
        super().__init__(process.clock)
        self._name = process.name
        self._world = world

    def failed(self, name: str, error: Exception) -> None:
        raise self._world.violate("work of a broker failed", node=self._name, work=name, error=repr(error))


class Broker(Requests):
    """One process and the requests that it answers."""

    def __init__(self, process: Process, services: BrokerServices) -> None:
        super().__init__(services)
        self.process = process
        self.domains = services.plane.domains
        self.replica = self.domains.catalog
        """Of the catalog, where the broker's own session is."""

    @property
    def serves(self) -> bool:
        """Whether it would answer from its memory now (RP5)."""
        try:
            self.replica.check_serving()
        except DrayError:
            return False
        return self.process.running


class Cluster:
    """Nodes with a broker each, on the logs of some domains and one bucket."""

    def __init__(
        self,
        world: World,
        *,
        nodes: int = 3,
        data_domains: int = 1,
        timing: Timing | None = None,
        min_grace_ms: int = 60_000,
        checkpoints: Mapping[int, CheckpointStore] | None = None,
        machine: Callable[[], Machine] = Machine,
        counters: int = COUNTERS,
        settings: ServiceSettings = SETTINGS,
        version: int = SUPPORTED,
    ) -> None:
        self.world = world
        self.counters = counters
        self.timing = timing or Timing()
        self.settings = settings
        self.checkpoints = checkpoints or {}
        self.brokers: dict[str, Broker] = {}
        self._numbers: dict[str, int] = {}
        """Broker ids, by name."""
        self.patience = 20.0
        """How long a client waits for an answer."""
        self.expected: tuple[type[DrayError], ...] = (Unavailable,)
        """Errors by which a process may end itself: a boot that does not reach the log is one."""
        self.beside: list[Callable[[Broker], Awaitable[None]]] = []
        """What runs in each process beside the services, for as long as it lives."""
        self.new_machine: Callable[[str], Machine] = lambda _name: machine()
        """By the name of a node: the build that it runs."""
        domains = range(1 if data_domains == 1 else data_domains + 1)
        self.logs = {domain: world.log(f"log-{domain}" if domain else "log") for domain in domains}
        self.truths = {domain: Truth(world, machine()) for domain in domains}
        self.log, self.truth = self.logs[0], self.truths[0]
        """Of the catalog."""
        self.bucket = world.bucket()
        self.streams: tuple[StreamId, ...] = ()
        self._dice = world.dice("clients")
        for domain, log in self.logs.items():
            log.on_landed = self.truths[domain].landed
            log.land(genesis(min_grace_ms, domain, data_domains, version), "founder")
        for index in range(nodes):
            self.add(f"node-{index}")

    def truth_of(self, stream: StreamId) -> Machine:
        """The machine that holds a stream, as it is."""
        return self.truths[domain_of(stream)].machine

    # -- nodes -------------------------------------------------------------

    def add(self, name: str) -> Node:
        node = self.world.node(name, self.boot)
        node.restart_after = _RESTART_S
        node.may_exit = self._may_exit
        return node

    def start(self) -> None:
        for node in self.world.nodes.values():
            node.start()

    def _may_exit(self, error: BaseException | None) -> bool:
        return isinstance(error, self.expected)

    async def boot(self, process: Process) -> None:
        """The main of a process: load, follow, serve until a replica stops."""
        replicas = {}
        for domain in self.logs:
            store, machine = self.store(process, domain), self.new_machine(process.name)
            if store is not None:
                loaded = await newest_machine(store)
                machine = loaded if loaded.position else machine
            log = await self.opened(process, domain)
            replicas[domain] = self.replica(process, log, machine, domain=domain)
        await self.serve(process, replicas)

    def store(self, _process: Process, domain: int = 0) -> CheckpointStore | None:
        """Where a process keeps the checkpoints of a domain."""
        return self.checkpoints.get(domain)

    async def opened(self, process: Process, domain: int) -> Log:
        """The log of a domain, as a process that boots opens it."""
        return self.connect(process, domain)

    def connect(self, process: Process, domain: int = 0) -> Log:
        return self.world.connect(process, self.logs[domain])

    def replica(
        self, process: Process, log: Log, machine: Machine, *, name: str | None = None, domain: int = 0
    ) -> Replica:
        name = name or process.name
        return Replica(
            log=log,
            machine=machine,
            identity=Identity(
                name=name,
                instance=name.encode().ljust(16, b"-")[:16],
                kind=SessionKind.BROKER,
                owner=False,
                asks_for_lead=True,
            ),
            clock=process.clock,
            entropy=process.entropy,
            timing=self.timing,
            checkpoints=self.store(process, domain),
            counters=self.counters,
        )

    async def serve(self, process: Process, replicas: Mapping[int, Replica]) -> None:
        """Run the services of a process on its replicas until one of them stops."""
        async with AsyncExitStack() as stack:
            for replica in replicas.values():
                await stack.enter_async_context(replica.running())
            broker = await stack.enter_async_context(self.serving(process, replicas))
            tasks = [process.spawn(_run(work, broker), "beside") for work in self.beside]
            ends = [replica.failed for replica in replicas.values()]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            raise next(end.result() for end in ends if end in done)

    @asynccontextmanager
    async def serving(self, process: Process, replicas: Mapping[int, Replica]) -> AsyncIterator[Broker]:
        """The broker of a process on replicas that run, for as long as the block does."""
        plane = self.plane(process, replicas)
        async with run_services(plane, self.settings) as services:
            record = self._registration(process)
            ends = plane.domains.catalog.failed
            known = plane.watch.start("registration", lambda: keep_registered(plane.domains, record, ends))
            broker = self.brokers[process.name] = Broker(process, services)
            try:
                yield broker
            finally:
                await plane.watch.stop(known)

    def _registration(self, process: Process) -> RegisterBroker:
        name = process.name.partition("-twin")[0]
        number = self._numbers.setdefault(name, len(self._numbers))
        return RegisterBroker(
            broker_id=number, zone="", rack="", listeners=(), started_ms=process.clock.wall_ms(), build="sim"
        )

    def plane(self, process: Process, replicas: Mapping[int, Replica]) -> Plane:
        instance = uuid.UUID(bytes=process.name.encode().ljust(16, b"-")[:16])
        return Plane(
            identity=Installation(format=FORMAT, cluster_id=str(CLUSTER), instance_id=str(instance)),
            domains=Domains(replicas),
            objects=RetryingObjects(self.world.reach_bucket(process), process.clock, process.entropy, STORE),
            clock=process.clock,
            entropy=process.entropy,
            unpack=process.offload,
            watch=StrictWatch(process, self.world),
        )

    def live(self) -> list[Broker]:
        """Brokers that answer now, by name."""
        return [
            broker
            for _, broker in sorted(self.brokers.items())
            if broker.process.alive and self.world.nodes[broker.process.name].process is broker.process
        ]

    # -- clients -----------------------------------------------------------

    def any_broker(self) -> Broker | None:
        live = self.live()
        return self._dice.choice(live) if live else None

    async def ask(
        self, work: Callable[[Broker], Awaitable[T]], *, broker: Broker | None = None, hangs_up: bool = False,
        patience: float | None = None,
    ) -> T:  # fmt: skip
        """Send a request to a broker and wait for its answer (SM15); one that hangs up ends the work on it, too."""
        await asyncio.sleep(self._dice.random() * 0.01)
        broker = broker or self.any_broker()
        if broker is None or not broker.process.alive:
            raise Unreachable("no broker is up")
        answer: asyncio.Future[T] = self.world.loop.create_future()
        request = broker.process.spawn(_answer(work, broker, answer), "request")
        try:
            async with asyncio.timeout(self.patience if patience is None else patience):
                return await answer
        except TimeoutError:
            if hangs_up:
                request.cancel()
            raise NoAnswer("the broker did not answer", broker=broker.process.name) from None
        finally:
            answer.cancel()

    async def insist(self, work: Callable[[Broker], Awaitable[T]]) -> T:
        """Ask until somebody answers; for what may be repeated."""
        while True:
            try:
                return await self.ask(work)
            except DrayError:
                await asyncio.sleep(0.5)

    async def create_topic(self, partitions: int, name: str = TOPIC, **configs: str) -> tuple[StreamId, ...]:
        """A topic, whose streams the workload uses from now on."""
        given = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = NewTopic(name=name, partitions=partitions, replication_factor=1, configs=given)

        async def create(broker: Broker) -> tuple[StreamId, ...]:
            try:
                return tuple((await broker.services.topics.create(wanted)).streams)
            except TopicExists:  # by a request whose answer was lost; perhaps its saga is not finished
                return tuple((await broker.services.topics.find(name)).streams)

        streams = await self.insist(create)
        self.streams += streams
        return streams

    # -- the end -----------------------------------------------------------

    async def compare_states(self) -> None:
        """Every replica, and a fresh fold of its whole log, are in the same state at the same position."""
        for domain in self.logs:
            await self._compare_states(domain)

    async def _compare_states(self, domain: int) -> None:
        positions: dict[int, list[tuple[str, str]]] = {}
        for broker in self.live():
            if not broker.domains.has(StreamId(domain)):
                continue
            machine = broker.domains[domain].machine
            state = (broker.process.name, checkpoint.fingerprint(machine))
            positions.setdefault(machine.position, []).append(state)
        fresh = self.new_machine("fresh")
        for entry in self.logs[domain].history:
            fresh.apply(entry.position, entry.entry)
            for name, found in positions.pop(entry.position, []):
                self.world.check(
                    found == checkpoint.fingerprint(fresh),
                    "a replica and a fresh fold of its log differ",
                    node=name,
                    domain=domain,
                    position=entry.position,
                )
        self.world.check(not positions, "a replica is where the log has no entry", nodes=sorted(positions.values()))


async def _run(work: Callable[[Broker], Awaitable[None]], broker: Broker) -> None:
    await work(broker)


async def _answer(work: Callable[[Broker], Awaitable[T]], broker: Broker, answer: "asyncio.Future[T]") -> None:
    try:
        with broker.domains.request():
            result = await work(broker)
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)


def genesis(min_grace_ms: int, domain: int = 0, data_domains: int = 1, version: int = SUPPORTED) -> bytes:
    """The first entry of a simulated log."""
    command = Genesis(
        cluster_id=CLUSTER.bytes,
        log_id=log_id(domain),
        domain=domain,
        domains=data_domains,
        min_grace_ms=min_grace_ms,
        version=version,
    )
    return founding(command, EPOCH_MS)
