"""Sessions: who may write when processes sleep, die, are cut off, copied, or read the wrong time.

Three kinds of runs, one by each seed:

    mixed    all faults, clocks that jump by years and drift
    outage   the log is away for everyone at once, and nothing else is wrong
    clones   a running process is copied with its session, again and again

Checked at every entry of the log: an ended session executes nothing (Q2);
whoever was expired had been silent for a ttl, and whoever serves was not (Q5,
RP5); machine time never runs back, nor further than an hour beyond what has
passed (Q7). In the end: an outage of the log expired nobody, no two processes
hold one session, retention by time took nothing, and a dead holder's session
ends within four ttl (R-049).
"""

import asyncio
import copy
from dataclasses import replace
from random import Random
from typing import Final

from dray.errors import DrayError
from dray.machine import checkpoint
from dray.machine.step import Applied, EndReason
from dray.machine.streams import FloorReason, RaiseFloor
from dray.machine.timeline import Timeline
from dray.replica.errors import Superseded
from dray.replica.writer import Timing, Writer
from dray.sim.brokers import Broker, Cluster
from dray.sim.log import LogEntry
from dray.sim.nemesis import Fault, Nemesis, Undo, clock_drift, clock_jump, crash, partition, pause, rough_weather
from dray.sim.network import FAIR, ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import sessions as bugs
from dray.sim.process import EPOCH_MS, YEAR_MS, Process
from dray.sim.scenarios.appends import PROGRESS_SECONDS, finish
from dray.sim.workload import Workload
from dray.sim.world import Boot, World

WORK_SECONDS: Final = 90.0
WEEK_MS: Final = 7 * 86_400_000
HOUR_MS: Final = 3_600_000
DRIFT: Final = 0.1
SLACK_MS: Final = 2_000
DEAD_TTLS: Final = 4
BOOT_JUMPS_MS: Final = (-10 * YEAR_MS, -HOUR_MS, HOUR_MS // 2, 24 * HOUR_MS, 10 * YEAR_MS)


class Watch:
    """Holds the log to what sessions promise, entry by entry."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._time_ms = 0
        self.expired = 0
        cluster.truth.watchers.append(self.look)

    def look(self, _entry: LogEntry, applied: Applied) -> None:
        now = self._world.loop.time()
        time_ms = self._cluster.truth.machine.time_ms
        self._world.check(time_ms >= self._time_ms, "machine time ran back", before=self._time_ms, after=time_ms)
        most = EPOCH_MS + now * 1000 * (1 + DRIFT) + HOUR_MS + SLACK_MS
        self._world.check(time_ms <= most, "machine time ran away", hours=(time_ms - EPOCH_MS) / HOUR_MS)
        self._time_ms = time_ms
        self._check_serving(now)
        for end in applied.ended:
            if end.reason is EndReason.EXPIRED:
                self.expired += 1
                silent = now - self._cluster.truth.last_heard.get(end.session, 0.0)
                self._world.check(
                    silent >= self._cluster.timing.ttl_ms / 1000 * (1 - DRIFT),
                    "a session was expired too early",
                    session=end.session,
                    silent=silent,
                )

    def _check_serving(self, now: float) -> None:
        """Whoever serves was heard within a ttl, by whichever clock (RP5)."""
        for broker in self._cluster.live():
            session = broker.replica.session
            if session is None or not broker.serves:
                continue
            silent = now - self._cluster.truth.last_heard.get(session.id, now)
            self._world.check(
                silent <= self._cluster.timing.ttl_ms / 1000,
                "a broker serves though nobody has heard it for a ttl",
                node=broker.process.name,
                silent=silent,
            )


async def sessions(world: World) -> None:
    """R-042..R-044, R-049, R-050"""
    kind = world.dice("kind").choice(["mixed", "mixed", "outage", "clones"])
    quick = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=6_000)
    cluster = Cluster(world, timing=quick if kind == "mixed" and world.dice("timing").random() < 0.5 else None)
    watch = Watch(cluster)
    workload = Workload(cluster)
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created in fair weather")
    workload.start(plain=2, idempotent=1, readers=1, committers=1)
    world.network.start(_retain(workload))
    if kind == "outage":
        faults = [outage(cluster)]
    elif kind == "clones":
        cluster.expected = (*cluster.expected, Superseded)
        faults = [clones(cluster), rough_weather(ROUGH), pause(longest=20.0)]
    else:
        clocks = [clock_jump(), wrong_clock_at_boot(), clock_drift(most=DRIFT)]
        faults = [crash(), pause(), partition(), rough_weather(ROUGH), *clocks]
    nemesis = Nemesis(world, faults, period=15.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    workload.history.working = False
    await finish(world, cluster, workload)
    world.check(kind != "outage" or not watch.expired, "an outage of the log expired a session")
    _check_holders(world, cluster)
    for stream in cluster.streams:
        found = cluster.truth.machine.streams.find(stream)
        world.check(found is not None and found.start == 0, "retention took what is minutes old", stream=stream)
    await _check_dead_holder(world, cluster)


async def _retain(workload: Workload) -> None:
    """Retention of a week, again and again, through anyone."""
    cluster = workload.cluster
    while workload.history.working:
        await asyncio.sleep(3)
        for stream in cluster.streams:
            command = RaiseFloor(stream=stream, reason=FloorReason.TIME, bound=WEEK_MS)
            try:
                await cluster.ask(lambda broker: broker.replica.propose(command))  # noqa: B023
            except DrayError:
                continue


def _check_holders(world: World, cluster: Cluster) -> None:
    held = [broker.replica.session.id for broker in cluster.live() if broker.replica.session is not None]
    world.check(len(held) == len(set(held)), "two processes hold one session", held=held)


async def _check_dead_holder(world: World, cluster: Cluster) -> None:
    """R-049: the session of a process that never comes back ends within a bound."""
    node = world.nodes[world.dice("victim").choice(sorted(broker.process.name for broker in cluster.live()))]
    node.restart_after = None
    node.crash()
    await asyncio.sleep(DEAD_TTLS * cluster.timing.ttl_ms / 1000)
    names = [session.name for session in cluster.truth.machine.sessions.live.values()]
    world.check(node.name not in names, "a dead holder's session does not end", node=node.name)


def wrong_clock_at_boot() -> Fault:
    """A machine loses power and comes up with another time: a dead battery, a bad image."""

    def strike(world: World, dice: Random) -> Undo | None:
        alive = [node for node in world.nodes.values() if node.alive]
        if not alive:
            return None
        node = dice.choice(alive)
        jump = dice.choice(BOOT_JUMPS_MS)
        node.crash(power=True)
        node.clock.jump_wall(jump)
        world.trace.add(node.name, "comes up at another time", ms=jump)

        def undo() -> None:
            if not node.alive:
                node.start()

        return undo

    return Fault(name="wrong clock", strike=strike, weight=1.5, longest=20.0)


def outage(cluster: Cluster) -> Fault:
    """The log is away for everyone at once."""

    def strike(world: World, dice: Random) -> Undo | None:
        links = world.network.links(service=cluster.log.name)
        if not all(link.is_up() for link in links):
            return None
        world.trace.add("nemesis", "the log is away")
        for link in links:
            link.weather = replace(FAIR, timeout=2.0)  # a caller that waits longer than a beat is slow by itself
            link.cut()

        def undo() -> None:
            world.trace.add("nemesis", "the log is back")
            for link in links:
                link.join()

        return undo

    return Fault(name="outage", strike=strike, longest=90.0)


def clones(cluster: Cluster, *, most: int = 3) -> Fault:
    """Copy a running process as a hypervisor does; the copy dies when the fault is undone."""
    made: list[str] = []

    def strike(world: World, dice: Random) -> Undo | None:
        broker = dice.choice(cluster.live()) if cluster.live() else None
        if broker is None or len(made) >= most or broker.replica.session is None or broker.process.name in made:
            return None
        name = f"{broker.process.name}-twin-{len(made)}"
        made.append(name)
        world.trace.add("nemesis", "clone", of=broker.process.name, session=broker.replica.session.id)
        twin = world.nodes[broker.process.name].clone(name, _twin(cluster, broker))
        twin.may_exit = _superseded
        twin.start()
        return twin.crash

    return Fault(name="clone", strike=strike, weight=3.0, longest=60.0)


def _superseded(error: BaseException | None) -> bool:
    return isinstance(error, DrayError)


def _twin(cluster: Cluster, broker: Broker) -> Boot:
    state = checkpoint.dump(broker.replica.machine)
    session, confirmed_ns = copy.copy(broker.replica.session), broker.replica._writer._confirmed_ns
    name = broker.process.name

    async def boot(process: Process) -> None:
        replica = cluster.replica(process, cluster.connect(process), checkpoint.load(state), name=name)
        replica._writer._session = copy.copy(session)
        replica._writer._confirmed_ns = confirmed_ns  # by the clock that was copied too: who slept was not heard
        await cluster.serve(process, {0: replica})

    return boot


SCENARIOS: Final[dict[str, Scenario]] = {"sessions": sessions}

PLANTED: Final[dict[str, Scenario]] = {
    "sessions/expired-may-write": planted(sessions, *bugs.EXPIRED_MAY_WRITE),
    "sessions/verdict-by-number": planted(sessions, (Writer, "is_mine", bugs.mine_by_number)),
    "sessions/time-is-believed": planted(sessions, (Timeline, "open", bugs.time_is_believed)),
    "sessions/serves-too-long": planted(sessions, (Writer, "fresh", bugs.fresh_for_too_long)),
    "sessions/expire-in-an-outage": bugs.wall_time_observer(sessions),
}
