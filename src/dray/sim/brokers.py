"""Brokers for the simulator: a whole replica in each process, and clients that reach it.

`Broker` is the least that a service does with a replica: put an object, then
append it; sync, then answer. `Cluster` boots one per node on a shared log and
a shared bucket, restarts what a supervisor would restart, and keeps `Truth`:
an own fold of the log, moved at the moment an entry is ordered.

Invariants
    SM15  A client never learns more than a network client could: an answer,
          a refusal, or nothing in time. A process that dies or sleeps
          answers nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from dray.errors import DrayError, Kind, Unavailable, Unknown
from dray.log.port import Log
from dray.machine import checkpoint
from dray.machine.append import Append, Appended, BatchVerdict, pack_rows
from dray.machine.command import Command
from dray.machine.head import Genesis, founding
from dray.machine.index import LENGTH_BYTES
from dray.machine.machine import Machine
from dray.machine.names import LogId, StreamId, TopicId, WalId, wal_id
from dray.machine.offsets import CommitOffsets, OffsetRow, OffsetsCommitted
from dray.machine.sessions import SessionKind
from dray.machine.step import Applied
from dray.machine.streams import OpenStream
from dray.machine.topics import CreateTopic, TopicCreated, TopicReady
from dray.machine.verdict import Refused, Verdict
from dray.objects.port import Objects, PutUnknown
from dray.replica.checkpoints import CheckpointStore, newest_machine
from dray.replica.replica import Replica
from dray.replica.session import COUNTERS, Identity
from dray.replica.writer import Timing
from dray.sim.log import LogEntry
from dray.sim.process import EPOCH_MS, Process
from dray.sim.world import Node, World

T = TypeVar("T")

LOG_ID: Final = LogId(b"sim-log1")
TOPIC: Final = TopicId(b"topic-of-the-sim")
PREFIX: Final = "wal/"
_PUTS: Final = 3
_RESTART_S: Final = 1.0


class NotTaken(Unavailable):
    """The broker did not take the request; nothing happened."""


class Unreachable(Unavailable):
    """Nobody listens there; nothing happened."""


class NoAnswer(Unknown):
    """The broker did not answer in time."""


def path_of(name: WalId) -> str:
    """Where an object lies; the simulator needs no zones."""
    return PREFIX + name.hex()


def surely_not(error: DrayError) -> bool:
    """Whether an error proves that nothing happened (E1)."""
    return error.kind is not Kind.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a client sends: bytes that no other batch has, and its place in a producer's sequence."""

    stream: StreamId
    payload: bytes
    records: int
    producer: int = -1
    sequence: int = -1
    epoch: int = 0


class Broker:
    """One process' replica and the requests that it answers."""

    def __init__(self, process: Process, replica: Replica, objects: Objects) -> None:
        self.process = process
        self.replica = replica
        self.objects = objects

    async def produce(self, batches: list[Batch]) -> list[BatchVerdict]:
        """Object first, then one Append; the verdicts are the fold's.

        Raises:
            Unknown: it may have happened.
            anything else: nothing happened.
        """
        try:
            session = await self.replica.open_session()
        except Unknown as error:
            raise NotTaken("no session") from error
        name = wal_id(self.replica.machine.log_id, session.id, session.take_counter())
        content, rows = _pack(batches)
        await self._put(path_of(name), content)
        command = Append(
            wal_id=name, size=len(content), created_ms=self.replica.machine.time_ms, zone="", packed=pack_rows(rows)
        )
        match await self.replica.propose(command):
            case [Appended() as appended]:
                return list(appended)
            case [Refused(why=why, reason=reason)]:
                raise NotTaken("the append was refused", why=why.name, reason=reason)
            case verdicts:
                raise AssertionError(f"an append has one verdict: {verdicts}")

    async def _put(self, path: str, content: bytes) -> None:
        for _ in range(_PUTS):
            try:
                await self.objects.put(path, [content])
                return
            except PutUnknown:
                continue
        raise NotTaken("the store does not answer")  # an orphan at most

    async def latest(self, stream: StreamId) -> int:
        """The end of a stream: newest truth, so not from memory alone."""
        await self.replica.sync()
        found = self.replica.machine.streams.find(stream)
        return -1 if found is None else found.end

    async def read(self, stream: StreamId, offset: int) -> tuple[int, bytes] | None:
        """The start and the bytes of the batch that holds an offset, as any reader finds it."""
        await self.replica.sync()
        machine = self.replica.machine
        found = machine.streams.find(stream)
        number = None if found is None or offset < found.start else found.index.find(offset)
        if found is None or number is None:
            return None
        row = found.index.row(number)
        owner = machine.objects.find(row.object)
        assert owner is not None, "a row names an object that the machine does not know"
        content = await self.objects.get(path_of(owner.wal_id), row.position, row.position + row.size)
        return row.start, bytes(content)

    async def commit(self, group: str, offset: int) -> None:
        """Remember how far a group has come, unless this process may not serve: its clients may be elsewhere."""
        self.replica.check_serving()
        row = OffsetRow(topic_id=TOPIC, partition=0, offset=offset)
        (verdict,) = await self.replica.propose(CommitOffsets(group=group, rows=(row,)))
        assert isinstance(verdict, OffsetsCommitted), verdict

    async def committed(self, group: str) -> int:
        await self.replica.sync()
        found = self.replica.machine.offsets.find(group, TOPIC, 0)
        return -1 if found is None else found.offset


class Truth:
    """The log as it is, folded at the moment it changes: what checkers compare with."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.machine = machine
        self.last_heard: dict[int, float] = {}
        """When the last executed entry of a session was ordered."""
        self.ended: set[int] = set()
        self.watchers: list[Callable[[LogEntry, Applied], None]] = []
        self._world = world

    def landed(self, entry: LogEntry) -> None:
        applied = self.machine.apply(entry.position, entry.entry, want_verdicts=True)
        self._world.check(
            applied.session not in self.ended or applied.verdicts is None,
            "an entry of an ended session was executed",
            session=applied.session,
        )
        if applied.verdicts is not None:
            self.last_heard[applied.session] = self._world.loop.time()
        for watcher in self.watchers:
            watcher(entry, applied)
        for end in applied.ended:
            self.ended.add(end.session)


class Cluster:
    """Nodes with a broker each, on one log and one bucket."""

    def __init__(
        self,
        world: World,
        *,
        nodes: int = 3,
        timing: Timing | None = None,
        min_grace_ms: int = 60_000,
        checkpoints: CheckpointStore | None = None,
        machine: Callable[[], Machine] = Machine,
        counters: int = COUNTERS,
    ) -> None:
        self.world = world
        self.counters = counters
        self.timing = timing or Timing()
        self.checkpoints = checkpoints
        self.brokers: dict[str, Broker] = {}
        self.patience = 20.0
        """How long a client waits for an answer."""
        self.expected: tuple[type[DrayError], ...] = (Unavailable,)
        """Errors by which a process may end itself: a boot that does not reach the log is one."""
        self.beside: list[Callable[[Broker], Awaitable[None]]] = []
        """What runs in each process beside the replica, for as long as it lives."""
        self.log = world.log()
        self.bucket = world.bucket()
        self.streams: tuple[StreamId, ...] = ()
        self._dice = world.dice("clients")
        self.truth = Truth(world, machine())
        self.log.on_landed = self.truth.landed
        self.log.land(genesis(min_grace_ms), "founder")
        for index in range(nodes):
            self.add(f"node-{index}")

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
        """The main of a process: load, follow, serve until the replica stops."""
        machine = Machine() if self.checkpoints is None else await newest_machine(self.checkpoints)
        await self.serve(process, self.replica(process, self.connect(process), machine))

    def connect(self, process: Process) -> Log:
        return self.world.connect(process, self.log)

    def replica(self, process: Process, log: Log, machine: Machine, *, name: str | None = None) -> Replica:
        name = name or process.name
        return Replica(
            log=log,
            machine=machine,
            identity=Identity(
                name=name,
                instance=name.encode().ljust(16, b"-"),
                kind=SessionKind.BROKER,
                owner=False,
                asks_for_lead=True,
            ),
            clock=process.clock,
            entropy=process.entropy,
            timing=self.timing,
            checkpoints=self.checkpoints,
            counters=self.counters,
        )

    async def serve(self, process: Process, replica: Replica) -> None:
        async with replica.running():
            broker = Broker(process, replica, self.world.reach_bucket(process))
            self.brokers[process.name] = broker
            tasks = [process.spawn(_run(work, broker), "beside") for work in self.beside]
            error = await replica.failed
            for task in tasks:
                task.cancel()
            raise error

    def live(self) -> list[Broker]:
        """Brokers that answer now, by name."""
        return [
            broker
            for _, broker in sorted(self.brokers.items())
            if broker.process.alive and self.world.nodes[broker.process.name].process is broker.process
        ]

    def any_broker(self) -> Broker | None:
        live = self.live()
        return self._dice.choice(live) if live else None

    async def ask(self, work: Callable[[Broker], Awaitable[T]], *, broker: Broker | None = None) -> T:
        """Send a request to a broker and wait for its answer (SM15)."""
        await asyncio.sleep(self._dice.random() * 0.01)
        broker = broker or self.any_broker()
        if broker is None or not broker.process.alive:
            raise Unreachable("no broker is up")
        answer: asyncio.Future[T] = self.world.loop.create_future()
        broker.process.spawn(_answer(work, broker, answer), "request")
        try:
            async with asyncio.timeout(self.patience):
                return await answer
        except TimeoutError:
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

    async def create_topic(self, partitions: int) -> None:
        """One topic, whose streams the workload uses."""

        async def create(broker: Broker) -> tuple[StreamId, ...]:
            machine = broker.replica.machine
            await broker.replica.sync()
            found = machine.topics.find(TOPIC)
            if found is None:
                command = CreateTopic(topic_id=TOPIC, name="sim", partitions=partitions)
                verdict = await _one(broker, command)
                streams = verdict.streams if isinstance(verdict, TopicCreated) else ()
            else:
                streams = tuple(found.streams)
            opening = [
                OpenStream(stream=stream, topic_id=TOPIC, partition=number) for number, stream in enumerate(streams)
            ]
            await broker.replica.propose(*opening, TopicReady(topic_id=TOPIC))
            return streams

        while not self.streams:
            self.streams = await self.insist(create)

    async def compare_states(self) -> None:
        """Every replica, and a fresh fold of the whole log, are in the same state at the same position."""
        positions: dict[int, list[tuple[str, str]]] = {}
        for broker in self.live():
            state = (broker.process.name, checkpoint.fingerprint(broker.replica.machine))
            positions.setdefault(broker.replica.machine.position, []).append(state)
        fresh = Machine()
        for entry in self.log.history:
            fresh.apply(entry.position, entry.entry)
            for name, found in positions.pop(entry.position, []):
                self.world.check(
                    found == checkpoint.fingerprint(fresh),
                    "a replica and a fresh fold of its log differ",
                    node=name,
                    position=entry.position,
                )
        self.world.check(not positions, "a replica is where the log has no entry", nodes=sorted(positions.values()))


async def _one(broker: Broker, command: Command) -> Verdict:
    (verdict,) = await broker.replica.propose(command)
    return verdict


async def _run(work: Callable[[Broker], Awaitable[None]], broker: Broker) -> None:
    await work(broker)


async def _answer(work: Callable[[Broker], Awaitable[T]], broker: Broker, answer: "asyncio.Future[T]") -> None:
    try:
        result = await work(broker)
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)


def _pack(batches: list[Batch]) -> tuple[bytes, list[tuple[int, int, int, int, int, int, int, int, int]]]:
    """The bytes of an object, each batch behind its length, and the rows of its Append."""
    content = bytearray()
    rows: list[tuple[int, int, int, int, int, int, int, int, int]] = []
    for batch in batches:
        content += len(batch.payload).to_bytes(LENGTH_BYTES, "big")
        rows.append((
            batch.stream, -1, -1, batch.producer, batch.sequence, batch.records, len(batch.payload), len(content),
            batch.epoch,
        ))  # fmt: skip
        content += batch.payload
    return bytes(content), rows


def genesis(min_grace_ms: int) -> bytes:
    """The first entry of the simulated log."""
    command = Genesis(cluster_id=b"cluster-of-a-sim", log_id=LOG_ID, domain=0, domains=1, min_grace_ms=min_grace_ms)
    return founding(command, EPOCH_MS)
