"""Brokers whose log is the delta log, kept in the simulated bucket: the product's own engine on the faulty store.

The truth is what the bucket has: a commit counts when its object is there. It
is held against what it foretold at that very moment, before anybody reads it.

Invariants
    SM20  The log of a cluster is, position after position, what its bucket
          was given: no version is passed over, and none counts twice. What
          lands under a name that was trimmed and deleted is nobody's entry.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from dray.buffers import Buffer
from dray.errors import DrayError
from dray.log.delta.commits import Commit, commit_name, commits_prefix, decode, encode
from dray.log.delta.engine import DeltaLog
from dray.log.port import Log, Position
from dray.machine import checkpoint
from dray.machine.names import StreamId
from dray.objects.port import Objects
from dray.objects.retry import RetryingObjects
from dray.replica.checkpoints import MemoryCheckpoints
from dray.sim.brokers import STORE, Broker, Cluster
from dray.sim.log import LogEntry, SharedLog
from dray.sim.process import EPOCH_MS, Process
from dray.sim.world import World

GRACE_S: Final = 8.0
"""Of what was trimmed: short, so that it is deleted while writers sleep."""
LOOK_S: Final = (0.05, 0.5)
CHECK_S: Final = 3.0
TRIM_S: Final = 5.0
Dozes: TypeAlias = Callable[[], float]
"""For how many seconds, each time."""


class DenseLog(SharedLog):
    """A log as the delta log orders it: without holes."""

    def land(self, entry: bytes, who: str) -> Position:
        return self.land_at(Position(self.tail() + 1), entry)

    def land_at(self, position: Position, entry: bytes) -> Position:
        landed = LogEntry(position=position, entry=bytes(entry))
        self._entries.append(landed)
        self.history.append(landed)
        if self.on_landed is not None:
            self.on_landed(landed)
        return position


class DozingObjects(RetryingObjects):
    """Of a process that falls asleep when it has decided to put something, and puts it when it wakes."""

    def __init__(self, inner: Objects, process: Process, dozes: Dozes) -> None:
        super().__init__(inner, process.clock, process.entropy, STORE)
        self._process = process
        self._dozes = dozes

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._process.clock.sleep(self._dozes())
        await super().put(path, parts)


class WatchedDelta(DeltaLog):
    """The engine, and a checker beside its caller."""

    cluster: "DeltaCluster"

    async def append(self, entry: bytes) -> Position:
        position = await super().append(entry)
        history = self.cluster.log.history
        self.cluster.world.check(
            position <= len(history) and history[position - 1].entry == bytes(entry),
            "an entry was acknowledged that is not in the log",
            position=position, entries=len(history),
        )  # fmt: skip
        return position


class DeltaCluster(Cluster):
    """Brokers on one delta log, which every one of them trims."""

    def __init__(self, world: World, nodes: int, *, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self.shared = MemoryCheckpoints()
        name = "log"
        world.logs[name] = DenseLog(world.loop, world.trace, world.dice(f"log/{name}"), name)
        super().__init__(world, nodes=nodes, checkpoints={0: self.shared})
        self.foretold = 0
        """Batches whose offsets were told before they were given."""
        self.trims = 0
        self.late = 0
        """Commits that landed under a name that others had had, and that was deleted."""
        self._engines: list[WatchedDelta] = []
        self.bucket.on_content = self._put
        self.beside.append(self._trim)

    async def found(self) -> None:
        """The first version, in the bucket as in the truth."""
        (first,) = self.log.history
        body = encode(version=0, now_ms=EPOCH_MS, txn_id="founder", operations=(), entry=first.entry)
        await self.bucket.put(commit_name(0, 0), body)

    async def opened(self, process: Process, domain: int) -> Log:
        return await self.delta(process).open()

    def delta(self, process: Process, *, dozes: Dozes | None = None) -> WatchedDelta:
        reached = self.world.reach_bucket(process)
        objects = (
            RetryingObjects(reached, process.clock, process.entropy, STORE)
            if dozes is None
            else DozingObjects(reached, process, dozes)
        )
        log = WatchedDelta(
            objects, 0, clock=process.clock, entropy=process.entropy, grace_s=self._grace_s, idle_s=LOOK_S,
            check_s=CHECK_S,
        )  # fmt: skip
        log.cluster = self
        self._engines.append(log)
        return log

    @property
    def races(self) -> int:
        """How often somebody was faster."""
        return sum(log.conflicts for log in self._engines)

    # -- the truth ---------------------------------------------------------

    def _put(self, path: str, content: bytes, by: str) -> None:
        if not path.startswith(commits_prefix(0)):
            return
        version = int(path.removeprefix(commits_prefix(0)).removesuffix(".json"))
        tail = self.log.tail()
        if version < tail:  # the same bytes again, or a name that was trimmed and deleted: the store refuses others
            self.world.trace.add("log", "late", version=version, sender=by)
            self.late += decode(content, version).entry != self.log.history[version].entry
            return
        self.world.check(version == tail, "a version was passed over", version=version, tail=tail)  # SM20
        self._land(decode(content, version), by)

    def _land(self, commit: Commit, by: str) -> None:
        """What the commit says of its batches is what the machine does with it (M20)."""
        ends = _ends(self)
        assert isinstance(self.log, DenseLog)
        self.log.land_at(Position(commit.version + 1), commit.entry)
        for told in commit.operations:
            stream = StreamId(told.stream)
            self.world.check(
                told.offset_start == ends.get(stream, 0), "a commit foretold other offsets than its batches got",
                version=commit.version, stream=stream, foretold=told.offset_start, got=ends.get(stream, 0), sender=by,
            )  # fmt: skip
            ends[stream] = told.offset_end + 1
            self.foretold += 1
        got = _ends(self)
        same = all(ends.get(stream, 0) == got.get(stream, 0) for stream in {*ends, *got})
        self.world.check(
            same, "a commit does not tell of all that it does", version=commit.version, told=ends, got=got, sender=by
        )

    # -- trimming ----------------------------------------------------------

    async def _trim(self, broker: Broker) -> None:
        """Now and then up to where everybody can load the state from, which may be the very end."""
        log, dice = broker.replica.log, self.world.dice(f"trim/{broker.process.name}/{self.world.loop.time()}")
        while True:
            await broker.process.clock.sleep(TRIM_S * (0.5 + dice.random()))
            machine = self.truth.machine
            position = Position(machine.position)
            if position not in self.shared.loadable():
                await self.shared.write(position, checkpoint.dump(machine))
                await self.shared.confirm(position)
            with suppress(DrayError):  # the store does not answer: the next turn does it
                await log.trim(position)
                self.trims += 1


def _ends(cluster: Cluster) -> dict[StreamId, int]:
    return {stream.id: stream.end for stream in cluster.truth.machine.streams.all()}
