"""Garbage: what may be deleted from the bucket, and that it is.

Topics are written, cut from the front by size, time and DeleteRecords, and
deleted; long readers hold pins; the retention of every broker looks every few
seconds; puts are hedged, and the one that comes too late is deleted again.
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
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Final

from dray.errors import DrayError
from dray.machine.command import Command
from dray.machine.garbage import Objects, Pin, Unpin
from dray.machine.names import LogId, ObjectId, SessionId, WalId, parse_wal_id, wal_id
from dray.machine.sessions import Sessions
from dray.machine.step import Applied
from dray.machine.streams import FloorReason, RaiseFloor, Streams
from dray.machine.verdict import DONE
from dray.objects.paths import WalName, owner_of
from dray.replica.replica import Replica
from dray.replica.writer import Timing
from dray.retention.orphans import Orphans
from dray.retention.settings import RetentionSettings
from dray.sim.brokers import SETTINGS, Broker, Cluster, log_id
from dray.sim.log import LogEntry
from dray.sim.nemesis import Nemesis, crash, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import garbage as bugs
from dray.sim.planted.appends import without_tail_wait
from dray.sim.planted.sessions import EXPIRED_MAY_WRITE
from dray.sim.process import EPOCH_MS
from dray.sim.scenarios.appends import PROGRESS_SECONDS, finish
from dray.sim.workload import Workload
from dray.sim.world import World
from dray.topics.errors import UnknownTopic

WORK_SECONDS: Final = 90.0
GRACE_MS: Final = 5_000
ORPHAN_TTL_MS: Final = 180_000
"""Longer than a process sleeps and a put of it is under way: what lands after its session was swept stays."""
QUICK: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=6_000)
CLEAN_SECONDS: Final = 3 * 3_600.0
OTHER_LOG: Final = LogId(b"another!")
DOOMED: Final = "doomed"
EAGER: Final = replace(
    SETTINGS,
    retention=RetentionSettings(
        interval=timedelta(seconds=2),
        grace=timedelta(milliseconds=GRACE_MS),
        sweep_interval=timedelta(seconds=5),
        orphan_ttl=timedelta(milliseconds=ORPHAN_TTL_MS),
        expiry_interval=timedelta(seconds=5),
    ),
)
"""Retention that looks every few seconds, and does not wait."""


def name_of(path: str) -> tuple[int, WalId]:
    """The domain and the walId in a path."""
    domain, object_id = owner_of(path)
    return domain, WalId(object_id)


class Warden:
    """Looks at every deletion at the moment it happens."""

    def __init__(self, cluster: Cluster) -> None:
        self._world = cluster.world
        self._truths = cluster.truths
        self._pinned: dict[tuple[int, int, str, int], set[int]] = {}
        """What each pin protects, by domain, session, name and position: one entry may end a pin and set it anew."""
        self._numbers: dict[tuple[int, WalId], int] = {}
        """Every object that was ever committed, by domain."""
        self._numbered = dict.fromkeys(cluster.truths, 0)
        self._sessions = {domain: truth.machine.sessions.newest for domain, truth in cluster.truths.items()}
        self._given_up: set[tuple[int, WalId]] = set()
        """What its own writer deleted: it must never be committed (PR4)."""
        for domain, truth in cluster.truths.items():
            truth.watchers.append(partial(self.look, domain))
        cluster.bucket.on_delete = self.deleted

    def look(self, domain: int, _entry: LogEntry, applied: Applied) -> None:
        """Remember what was ever committed, and what each pin protects when it is set."""
        objects, newest = self._truths[domain].machine.objects, self._truths[domain].machine.sessions.newest
        dense = self._sessions[domain] <= newest <= self._sessions[domain] + 1  # Q1
        self._world.check(dense, "a session id was left out", newest=newest, before=self._sessions[domain])
        self._sessions[domain] = newest
        for number in range(self._numbered[domain], objects.next):
            found = objects.find(ObjectId(number))
            if found is not None:
                name = (domain, found.wal_id)
                self._numbers[name] = number
                own = parse_wal_id(found.wal_id).session == applied.session  # Q3
                self._world.check(own, "a session committed another one's object", session=applied.session)
                self._world.check(name not in self._given_up, "a deleted object was committed", wal_id=found.wal_id)
        self._numbered[domain] = objects.next
        pins = {(domain, session, pin, position) for (session, pin), position in objects.pins.items()}
        for key in [key for key in self._pinned if key[0] == domain and key not in pins]:
            del self._pinned[key]
        for key in pins - self._pinned.keys():
            self._pinned[key] = self.referenced(domain)

    def referenced(self, domain: int) -> set[int]:
        """Objects that rows name, by the rows themselves, not by any count."""
        streams = self._truths[domain].machine.streams.all()
        return {owner for stream in streams for owner in stream.index.objects(len(stream.index))}

    def deleted(self, path: str, by: str) -> None:
        domain, name = name_of(path)
        parts = parse_wal_id(name)
        machine, check = self._truths[domain].machine, self._world.check
        check(parts.log_id == log_id(domain), "an object of another log was deleted", path=path, by=by)
        number = self._numbers.get((domain, name), -1)
        check(number not in self.referenced(domain), "an object that a row names was deleted", path=path, by=by)
        for key, protected in self._pinned.items():
            needed = key[0] == domain and number in protected
            check(not needed, "an object that a pin needs was deleted", path=path, by=by, pin=key)
        writer = machine.sessions.live.get(parts.session)
        if number < 0 and writer is not None:
            # X5: who is not its writer cannot know that it will not be committed.
            check(writer.name == by, "an object was deleted that its writer may commit", path=path, by=by)
            self._given_up.add((domain, name))


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
    cluster = Cluster(world, min_grace_ms=GRACE_MS, timing=QUICK, settings=EAGER)
    Warden(cluster)
    cluster.bucket.on_put = _Sleeper(cluster).put
    workload = Workload(cluster, pause=1.5)
    workload.may_vanish = True
    foreign = [_foreign(number) for number in range(5)]
    for path in foreign:
        await cluster.bucket.put(path, b"not ours")
    cluster.start()
    kept = cluster.create_topic(3, retention_ms="20000", retention_bytes="1200")
    await world.within(PROGRESS_SECONDS, kept, "a topic is created in fair weather")
    await world.within(PROGRESS_SECONDS, cluster.create_topic(1, DOOMED), "a second topic is created")
    workload.start(plain=3, idempotent=1, readers=1, committers=0)
    for number, client in enumerate((cut, cut, delete_topic, _pin)):
        world.network.start(client(workload, world.dice(f"garbage/{number}")))
    nemesis = Nemesis(world, [crash(), pause(), partition(), rough_weather(ROUGH)], period=10.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    workload.history.working = False
    await finish(world, cluster, workload)
    await world.within(CLEAN_SECONDS, until_clean(cluster), "the bucket is clean after heal")
    world.check(set(foreign) <= set(await cluster.bucket.names()), "objects of another log are gone")
    world.check(bool(cluster.bucket.deletions), "nothing was deleted: the run proves nothing")


def _foreign(number: int) -> str:
    """An object of another log, whose session and counter are like ours."""
    name = wal_id(OTHER_LOG, SessionId(1 + number % 3), number)
    return WalName.of(zone="", domain=0, created_ms=EPOCH_MS, wal_id=name).path()


async def until_clean(cluster: Cluster) -> None:
    """Dead objects and the orphans of ended sessions go, and nothing else (R-106, R-112)."""
    while cluster.truth.machine.objects.pins:  # a job whose unpin was lost has to say it again
        for broker in cluster.live():
            with suppress(DrayError):
                await cluster.ask(_proposing(Unpin(pin="job")), broker=broker)
    while True:
        if not any(truth.machine.objects.dead for truth in cluster.truths.values()) and not await orphans(cluster):
            return
        await asyncio.sleep(5)


async def orphans(cluster: Cluster) -> list[str]:
    """What ended sessions have put and never committed, and is still there."""
    left = []
    for path in await cluster.bucket.names():
        domain, name = name_of(path)
        parts, machine = parse_wal_id(name), cluster.truths[domain].machine
        ended = parts.log_id == machine.log_id and parts.session not in machine.sessions.live
        if ended and parts.counter not in machine.objects.counters_of(machine.log_id, parts.session):
            left.append(path)
    return left


def _proposing(*commands: Command) -> Callable[[Broker], Awaitable[object]]:
    return lambda broker: broker.replica.propose(*commands)


async def cut(workload: Workload, dice: Random) -> None:
    """Let log starts rise as DeleteRecords does; size and time are the service's."""
    cluster = workload.cluster
    while workload.history.working:
        await asyncio.sleep(dice.random() * 4)
        stream = dice.choice(cluster.streams)
        bound = dice.randint(0, workload.history.ends.get(stream, 0))
        command = RaiseFloor(
            stream=stream, reason=FloorReason.DELETE_RECORDS, bound=bound, limit=dice.choice([1, 3, 3_000])
        )
        try:
            await cluster.ask(_proposing(command))
        except DrayError:
            continue


async def delete_topic(workload: Workload, dice: Random) -> None:
    """Delete the second topic at some moment."""
    await asyncio.sleep(dice.uniform(20, WORK_SECONDS))
    cluster = workload.cluster
    cluster.streams = cluster.streams[:-1]

    async def delete(broker: Broker) -> None:
        await broker.services.topics.delete(await broker.services.topics.find(DOOMED))

    while workload.history.working:
        try:
            await cluster.ask(delete)
        except UnknownTopic:
            return
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


SCENARIOS: Final[dict[str, Scenario]] = {"garbage": garbage}

PLANTED: Final[dict[str, Scenario]] = {
    "garbage/session-from-nonce": planted(garbage, (Sessions, "new_id", bugs.id_from_nonce)),
    "garbage/expired-may-write": planted(garbage, *EXPIRED_MAY_WRITE),
    "garbage/object-of-an-older-session": planted(garbage, (Streams, "owns", bugs.owns_any_session)),
    "garbage/sweep-without-log-id": planted(garbage, (Orphans, "_sort", bugs.sorts_by_session_alone)),
    "garbage/forgotten-row": planted(garbage, (Objects, "release", bugs.release_too_much)),
    "garbage/no-tail-wait": planted(garbage, (Replica, "sync", without_tail_wait)),
}
