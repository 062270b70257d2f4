"""Garbage: what may be deleted from the bucket, and that it is.

Streams are written, cut from the front by size, time and DeleteRecords, and
closed; long readers hold pins; a collector in every broker marks, deletes and
reports; a sweeper looks for orphans by the log id and session in their names.
Everything crashes, sleeps and is cut off at any step, and another log's
objects lie in the same bucket.

Checked at every deletion, against the log at that moment: no row names the
object, no live pin may need it, and nobody can commit it any more (R-107,
R-108, R-113). In the end: the orphans of ended sessions and the dead objects
are gone (R-106, R-112), and nothing of another log was touched.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Final

from dray.errors import DrayError
from dray.machine.command import Command
from dray.machine.garbage import Gone, MarkDeleting, Pin, Unpin
from dray.machine.machine import Machine
from dray.machine.names import LogId, ObjectId, SessionId, WalId, parse_wal_id, wal_id
from dray.machine.sessions import Swept
from dray.machine.step import Applied
from dray.machine.streams import CloseStream, FloorReason, RaiseFloor
from dray.machine.verdict import DONE
from dray.replica.writer import Timing
from dray.sim.brokers import LOG_ID, PREFIX, Broker, Cluster, path_of
from dray.sim.log import LogEntry
from dray.sim.nemesis import Nemesis, crash, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.scenarios.appends import PROGRESS_SECONDS, finish
from dray.sim.workload import Workload
from dray.sim.world import World

WORK_SECONDS: Final = 90.0
GRACE_MS: Final = 5_000
ORPHAN_TTL_MS: Final = 5_000
QUICK: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=6_000)
CLEAN_SECONDS: Final = 3 * 3_600.0
OTHER_LOG: Final = LogId(b"another!")
COLLECT_EVERY: Final = 2.0
_BATCH: Final = 50


def name_of(path: str) -> WalId:
    """The walId in a path."""
    return WalId(bytes.fromhex(path.removeprefix(PREFIX)))


class Collector:
    """The least that a garbage service does; any broker goes on where another stopped."""

    def __init__(self, broker: Broker) -> None:
        self._replica = broker.replica
        self._objects = broker.objects
        self._clock = broker.process.clock

    async def run(self) -> None:
        """All steps, each at its own pace: none waits for the log on behalf of another."""
        async with asyncio.TaskGroup() as group:
            for step in (self.mark, self.delete, self.sweep):
                group.create_task(self._repeat(step))

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(COLLECT_EVERY)
            with suppress(DrayError):  # whatever was done stays done; the rest is found again
                await step()

    async def mark(self) -> None:
        due = self._replica.machine.objects.due(GRACE_MS, _BATCH)
        if due:
            await self._replica.propose(MarkDeleting(objects=tuple(due), grace_ms=GRACE_MS))

    async def delete(self) -> None:
        """Only what the log calls deleting is deleted (X4), and only while it is the log that was read (Q6)."""
        await self._replica.sync()
        known = self._replica.machine.objects
        gone = []
        for number in known.deleting(_BATCH):
            found = known.find(number)
            if found is not None:
                await self._objects.delete(path_of(found.wal_id))
                gone.append(number)
        if gone:
            await self._replica.propose(Gone(objects=tuple(gone)))

    async def sweep(self) -> None:
        """Delete what ended sessions of this log put and never committed (R-106)."""
        await self._replica.sync()  # a log that was rolled back is noticed before anything goes (Q6)
        machine = self._replica.machine
        left: set[SessionId] = set()
        names = [name_of(found.path) async for found in self._objects.list(PREFIX)]
        for name in names:
            parts = parse_wal_id(name)
            if self.is_orphan(machine, name):
                if self.is_old(machine, parts.session):
                    await self._objects.delete(path_of(name))
                else:
                    left.add(parts.session)
        done = [number for number in sorted(machine.sessions.ended) if self.is_old(machine, number)]
        swept = tuple(number for number in done if number not in left)
        if swept:
            await self._replica.propose(Swept(sessions=swept))

    def is_orphan(self, machine: Machine, name: WalId) -> bool:
        """Of this log, of an ended session, and unknown: it can never be committed (design 4)."""
        parts = parse_wal_id(name)
        if parts.log_id != machine.log_id or not machine.sessions.is_ended(parts.session):
            return False
        return parts.counter not in machine.objects.counters_of(machine.log_id, parts.session)

    def is_old(self, machine: Machine, session: SessionId) -> bool:
        """A session that was swept before is old enough."""
        ended = machine.sessions.ended.get(session)
        return ended is None or machine.time_ms - ended.time_ms >= ORPHAN_TTL_MS


class Warden:
    """Sees every deletion and holds it against the log as it is at that moment."""

    def __init__(self, cluster: Cluster) -> None:
        self._world = cluster.world
        self._truth = cluster.truth
        self._pinned: dict[tuple[int, str], set[int]] = {}
        self._numbers: dict[WalId, int] = {}
        """Every object that was ever committed."""
        self._numbered = 0
        cluster.truth.watchers.append(self.look)
        cluster.bucket.on_delete = self.deleted

    def look(self, entry: LogEntry, _applied: Applied) -> None:
        """Remember what was ever committed, and what each pin protects when it is set."""
        objects = self._truth.machine.objects
        for number in range(self._numbered, objects.next):
            found = objects.find(ObjectId(number))
            if found is not None:
                self._numbers[found.wal_id] = number
        self._numbered, pins = objects.next, objects.pins
        for key in [key for key in self._pinned if key not in pins]:
            del self._pinned[key]
        for key in pins:
            if key not in self._pinned:
                self._pinned[key] = self.referenced()

    def referenced(self) -> set[int]:
        """Objects that rows name, by the rows themselves, not by any count."""
        streams = self._truth.machine.streams.all()
        return {owner for stream in streams for owner in stream.index.objects(len(stream.index))}

    def deleted(self, path: str, by: str) -> None:
        name = name_of(path)
        parts = parse_wal_id(name)
        machine = self._truth.machine
        check = self._world.check
        check(parts.log_id == LOG_ID, "an object of another log was deleted", path=path, by=by)
        number = self._numbers.get(name, -1)
        check(number not in self.referenced(), "an object that a row names was deleted", path=path, by=by)
        for key, protected in self._pinned.items():
            check(number not in protected, "an object that a pin needs was deleted", path=path, by=by, pin=key)
        over = number >= 0 or parts.session not in machine.sessions.live  # X5: never committed again
        check(over, "an object was deleted that its writer may commit", path=path, by=by)


class _Sleeper:
    """Puts a process to sleep right after one of its objects landed: before the append leaves (R-108)."""

    def __init__(self, cluster: Cluster) -> None:
        self._world = cluster.world
        self._dice = cluster.world.dice("sleeper")

    def put(self, _path: str, by: str) -> None:
        process = self._world.nodes[by].process
        if process is not None and self._dice.random() < 0.015 and self._world.loop.time() < WORK_SECONDS:
            process.pause()
            self._world.loop.call_later(self._dice.random() * 50, process.resume)


async def garbage(world: World) -> None:
    """R-106..R-113, R-199, R-200"""
    cluster = Cluster(world, min_grace_ms=GRACE_MS, timing=QUICK)
    Warden(cluster)
    cluster.bucket.on_put = _Sleeper(cluster).put
    workload = Workload(cluster, pause=1.5)
    workload.may_vanish = True
    cluster.beside.append(lambda broker: Collector(broker).run())
    for number in range(5):
        await cluster.bucket.put(path_of(wal_id(OTHER_LOG, SessionId(1 + number % 3), number)), b"not ours")
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(4), "a topic is created in fair weather")
    workload.start(plain=3, idempotent=1, readers=1, committers=0)
    for number, client in enumerate((_cut, _cut, _close_one, _pin)):
        world.network.start(client(workload, world.dice(f"garbage/{number}")))
    nemesis = Nemesis(world, [crash(), pause(), partition(), rough_weather(ROUGH)], period=10.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    workload.history.working = False
    await finish(world, cluster, workload)
    await world.within(CLEAN_SECONDS, _until_clean(world, cluster), "the bucket is clean after heal")
    world.check(len(await cluster.bucket.names(path_of(WalId(OTHER_LOG)))) == 5, "objects of another log are gone")
    world.check(bool(cluster.bucket.deletions), "nothing was deleted: the run proves nothing")


async def _until_clean(world: World, cluster: Cluster) -> None:
    """Dead objects and the orphans of ended sessions go, and nothing else (R-106, R-112)."""
    while cluster.truth.machine.objects.pins:  # a job whose unpin was lost has to say it again
        for broker in cluster.live():
            with suppress(DrayError):
                await cluster.ask(_proposing(Unpin(pin="job")), broker=broker)
    while True:
        machine = cluster.truth.machine
        left = []
        for path in await cluster.bucket.names():
            parts = parse_wal_id(name_of(path))
            own = parts.log_id == LOG_ID
            if own and parts.session not in machine.sessions.live:
                known = machine.objects.counters_of(LOG_ID, parts.session)
                if parts.counter not in known:
                    left.append(path)
        if not left and not machine.objects.dead:
            return
        await asyncio.sleep(5)


def _proposing(*commands: Command) -> Callable[[Broker], Awaitable[object]]:
    return lambda broker: broker.replica.propose(*commands)


async def _cut(workload: Workload, dice: Random) -> None:
    """Let log starts rise, for every reason there is."""
    cluster = workload.cluster
    while workload.history.working:
        await asyncio.sleep(dice.random() * 4)
        stream = dice.choice(cluster.streams)
        end = workload.history.ends.get(stream, 0)
        reason = dice.choice(list(FloorReason))
        bound = {
            FloorReason.TIME: 20_000,
            FloorReason.SIZE: 600,
            FloorReason.DELETE_RECORDS: dice.randint(0, end),
        }[reason]
        command = RaiseFloor(stream=stream, reason=reason, bound=bound, limit=dice.choice([1, 3, 3_000]))
        try:
            await cluster.ask(_proposing(command))
        except DrayError:
            continue


async def _close_one(workload: Workload, dice: Random) -> None:
    """Close the last stream in slices, at some moment."""
    await asyncio.sleep(dice.uniform(20, WORK_SECONDS))
    cluster = workload.cluster
    stream = cluster.streams[-1]
    cluster.streams = cluster.streams[:-1]
    while workload.history.working and cluster.truth.machine.streams.find(stream) is not None:
        try:
            await cluster.ask(_proposing(CloseStream(stream=stream, limit=5)))
        except DrayError:
            await asyncio.sleep(1)


async def _pin(workload: Workload, dice: Random) -> None:
    """Hold a pin for a while, as a Spark job does."""
    cluster = workload.cluster
    while workload.history.working:
        await asyncio.sleep(dice.random() * 5)
        broker = cluster.any_broker()
        try:
            await cluster.ask(_proposing(Pin(pin="job")), broker=broker)
            await asyncio.sleep(dice.random() * 25)
            answer = await cluster.ask(_proposing(Unpin(pin="job")), broker=broker)
            workload.world.check(answer == [DONE], "an unpin was refused", answer=answer)
        except DrayError:
            continue
