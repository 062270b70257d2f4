"""Groups whose members and brokers come, sleep, move and die.

Eight model clients (`members`) share a topic through three brokers, while
crashes, pauses, cuts and outages of the log strike. A `Ledger` holds every
answer and every entry against what a group promises. After heal the group
settles within a bound, whoever died is gone, and then nothing is written any
more but signs of life (GS2).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from dray.groups.classic import ClassicService
from dray.groups.deadlines import Timetable
from dray.groups.homes import Homes
from dray.groups.settings import GroupSettings
from dray.machine.groups import told
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.names import MemberId
from dray.machine.groups.roster import Stable
from dray.replica.writer import Timing
from dray.sim.brokers import SETTINGS, Cluster
from dray.sim.ledger import Ledger
from dray.sim.members import BEAT_S, GROUP, ClassicMember, Habits, ModelMember
from dray.sim.nemesis import Nemesis, crash, half_open, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import groups as bugs
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.world import World

WORK_SECONDS: Final = 60.0
PARTITIONS: Final = 12
QUICK: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=4_000)
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 12_000
SETTLE_SECONDS: Final = 90.0
"""A broker's life twice over, a session, two phases that nobody ends early, and the latest copy in the network."""
GONE_SECONDS: Final = SESSION_MS / 1_000 + 3.0
QUIET_SECONDS: Final = 60.0
EAGER: Final = replace(
    SETTINGS,
    groups=GroupSettings(
        initial_delay=timedelta(seconds=1),
        min_session=timedelta(seconds=4),
        consumer_session=timedelta(milliseconds=SESSION_MS),
        consumer_heartbeat=timedelta(seconds=BEAT_S),
        consumer_unsettled_heartbeat=timedelta(milliseconds=500),
    ),
)


def clients() -> list[Habits]:
    """Two of them are static, and two are old: they join without being given an id first."""
    found = [
        Habits(name=f"client-{n}", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS, knows_ids=n < 4) for n in range(6)
    ]
    found += [
        Habits(name=f"static-{n}", instance=f"static-{n}", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
        for n in range(2)
    ]
    return found


async def classic(world: World) -> None:
    """G1-G5, G9, GS1-GS4, R-169"""
    members, ledger = await work(world, ClassicMember)
    await world.within(SETTLE_SECONDS, _agreed(ledger, members), "the group settles after heal")
    victim = world.dice("victim").choice([one for one in members if not one.dead])
    gone = victim.id
    victim.dead = True
    victim.die()
    await world.within(GONE_SECONDS, _gone(ledger, gone), "a member that died is removed")
    await world.within(SETTLE_SECONDS, _agreed(ledger, members), "the group settles after a death")
    await rest(world, ledger)


async def work(
    world: World, kind: Callable[[Cluster, Ledger, Habits], ModelMember]
) -> tuple[list[ModelMember], Ledger]:  # fmt: skip
    """Let members work under faults, and heal."""
    cluster = Cluster(world, data_domains=world.dice("size").choice([1, 1, 2]), timing=QUICK, settings=EAGER)
    ledger = Ledger(cluster, GROUP, partitions=PARTITIONS, beat_s=BEAT_S)
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(PARTITIONS), "a topic is created in fair weather")
    members = [kind(cluster, ledger, habits) for habits in clients()]
    for member in members:
        world.network.start(member.run())
    faults = [crash(), pause(longest=25.0), partition(longest=20.0), half_open(), rough_weather(ROUGH)]
    nemesis = Nemesis(world, faults, period=8.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    for member in members[:1]:  # a grave that heal finds
        member.dead = True
        member.die()
    nemesis.heal()
    for member in members:
        member.calm = True
    return members, ledger


async def _agreed(ledger: Ledger, members: Sequence[ModelMember]) -> None:
    """Everyone who lives, and nobody else, is in a stable generation and knows what it reads."""
    while True:
        group = ledger.classic
        alive = {one.id: one for one in members if not one.dead}
        if group is not None and isinstance(group.state, Stable) and set(group.members) == set(alive):
            told = sorted(number for one in alive.values() for number in one.held)
            if told == list(range(PARTITIONS)) and not group.pending:
                return
        await asyncio.sleep(0.5)


async def _gone(ledger: Ledger, member: MemberId) -> None:
    while True:
        if not ledger.has(member):
            return
        await asyncio.sleep(0.1)


async def rest(world: World, ledger: Ledger) -> None:
    """GS2: members that only beat write nothing."""
    await asyncio.sleep(ROUGH.copy_within)
    ledger.written.clear()
    await asyncio.sleep(QUIET_SECONDS)
    world.check(not ledger.written, "a settled group writes", commands=ledger.written[:10])
    world.check(ledger.generations > 3, "hardly anything happened: the run proves nothing", seen=ledger.generations)


BY_NAME: Final[dict[str, Scenario]] = {"groups-classic": classic}

PLANTED: Final[dict[str, Scenario]] = {
    "groups-classic/answered-before-rehome": planted(classic, (ClassicService, "_rehome", bugs.rehome_later)),
    "groups-classic/no-rehome": planted(classic, (ClassicService, "_rehome", bugs.never_rehome)),
    "groups-classic/sleep-is-silence": planted(classic, (Timetable, "_catch_up", lambda self, now_ns: None)),
    "groups-classic/any-tick": planted(classic, (ClassicGroup, "end_phase", bugs.whatever_the_tick)),
    "groups-classic/any-generation-commits": planted(classic, (told, "may_commit", bugs.in_any_generation)),
    "groups-classic/old-deadlines": planted(classic, (Homes, "_named", bugs.keeps_old_deadlines)),
    "groups-classic/answered-in-doubt": planted(
        classic, (Homes, "may_answer", lambda self, group, member, home: self.is_own(home))
    ),
}
