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
from typing import Final, TypeAlias

from dray.groups.classic import ClassicService
from dray.groups.consumer import ConsumerService
from dray.groups.deadlines import Timetable
from dray.groups.homes import Homes
from dray.groups.keeper import GroupKeeper
from dray.groups.settings import GroupSettings
from dray.machine.groups import consumer as machine_consumer
from dray.machine.groups import reconcile as rules
from dray.machine.groups import removal, told
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.members import ConsumerState
from dray.machine.groups.names import MemberId
from dray.machine.groups.roster import Stable
from dray.machine.groups.subscriptions import Subscriptions
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import MemoryCheckpoints
from dray.replica.fold import InlineFolder
from dray.replica.writer import Timing
from dray.sim.brokers import SETTINGS, TOPIC, Broker, Cluster
from dray.sim.consumers import ConsumerMember
from dray.sim.cooperative import CooperativeMember
from dray.sim.folding import TimedFolder
from dray.sim.ledger import Ledger
from dray.sim.members import BEAT_S, GROUP, ClassicMember, Habits, ModelMember
from dray.sim.nemesis import Nemesis, crash, half_open, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import groups as bugs
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.world import World

Kind: TypeAlias = Callable[[Cluster, Ledger, Habits], ModelMember]

WORK_SECONDS: Final = 60.0
PARTITIONS: Final = 12
QUICK: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=4_000)
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 12_000
SETTLE_SECONDS: Final = 40.0
"""After heal. Whoever asked a broker that died waits until it gives up, 18 seconds for a join; meanwhile a phase is not
over before its time, 12 seconds; who died is missed a session, two steps and a restart later, 14 seconds."""
AGREE_SECONDS: Final = 10.0
"""When all are well: a beat until everyone knows, a round, a beat."""
GONE_SECONDS: Final = SESSION_MS / 1_000 + 3.0
QUIET_SECONDS: Final = 60.0
GROWTHS: Final = 3
DUE_BYTES: Final = 3_000
KEPT_MS: Final = 2_000
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
        Habits(
            name=f"client-{n}", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS, knows_ids=n < 4, has_pattern=n == 3
        )
        for n in range(6)
    ]  # fmt: skip
    found += [
        Habits(name=f"static-{n}", instance=f"static-{n}", session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
        for n in range(2)
    ]
    return found


async def classic(world: World) -> None:
    """G1-G5, G9, G10, GS1-GS4, R-169"""
    await play(world, ClassicMember, is_stable=lambda ledger: _is_stable(ledger.classic))


async def cooperative(world: World) -> None:
    """G1-G5, G9, G10, GS1-GS4, R-169"""
    await play(world, CooperativeMember, is_stable=lambda ledger: _is_stable(ledger.classic))


async def consumer(world: World) -> None:
    """G1, G4-G10, GS1-GS3, GS8, R-169, R-179"""
    await play(world, ConsumerMember, is_stable=lambda ledger: _is_stable(ledger.consumer), grows=True)


async def play(world: World, kind: Kind, *, is_stable: Callable[[Ledger], bool], grows: bool = False) -> None:
    """Members work under faults; after heal they agree, miss one that dies, agree again, and come to rest."""
    members, ledger, growing = await work(world, kind, grows=grows)
    await world.within(SETTLE_SECONDS, _agreed(ledger, members, is_stable), "the group settles after heal")
    victim = world.dice("victim").choice([one for one in members if not one.dead])
    gone = victim.id
    victim.dead = True
    victim.die()
    await world.within(GONE_SECONDS, _gone(ledger, gone), "a member that died is removed")
    await world.within(AGREE_SECONDS, _agreed(ledger, members, is_stable), "the group settles after a death")
    if growing is not None and not growing.done():  # faults held it up
        await world.within(WORK_SECONDS, growing, "the topic grows")
        await world.within(AGREE_SECONDS, _agreed(ledger, members, is_stable), "the group settles after the topic grew")
    await rest(world, ledger)


async def work(
    world: World, kind: Kind, *, grows: bool
) -> "tuple[list[ModelMember], Ledger, asyncio.Task[None] | None]":
    """Let members work under faults, and heal; the topic may still be growing."""
    cluster = _cluster(world)
    ledger = Ledger(cluster, GROUP, partitions=PARTITIONS, beat_s=BEAT_S)
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(PARTITIONS), "a topic is created in fair weather")
    members = [kind(cluster, ledger, habits) for habits in clients()]
    for member in members:
        world.network.start(member.run())
    growing = world.network.start(_grow(cluster, ledger)) if grows else None
    faults = [
        crash(),
        pause(longest=60.0 if cluster.checkpoints else 25.0),
        partition(longest=20.0),
        half_open(),
        rough_weather(ROUGH),
    ]
    nemesis = Nemesis(world, faults, period=8.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    for member in members[:1]:  # a grave that heal finds
        member.dead = True
        member.die()
    nemesis.heal()
    for member in members:
        member.calm = True
    return members, ledger, growing


def _cluster(world: World) -> Cluster:
    """In one run of three, brokers make checkpoints, and a log so short that who was away must jump."""
    dice = world.dice("size")
    data_domains = dice.choice([1, 1, 2])
    domains = range(1 if data_domains == 1 else data_domains + 1) if dice.random() < 1 / 3 else ()
    stores = {domain: MemoryCheckpoints() for domain in domains}
    cluster = Cluster(world, data_domains=data_domains, timing=QUICK, settings=EAGER, checkpoints=stores)

    async def make_checkpoints(broker: Broker) -> None:
        async with asyncio.TaskGroup() as tasks:
            for domain, store in stores.items():
                folder = TimedFolder(InlineFolder(cluster.connect(broker.process, domain), store))
                tasks.create_task(
                    Checkpointer(
                        broker.domains[domain], store, folder, broker.process.clock, due_bytes=DUE_BYTES,
                        kept_ms=KEPT_MS,
                    ).run()
                )  # fmt: skip

    cluster.beside.append(make_checkpoints)
    return cluster


async def _grow(cluster: Cluster, ledger: Ledger) -> None:
    """Let the topic have more partitions, every now and then."""
    dice = cluster.world.dice("growth")
    for _ in range(GROWTHS):
        await asyncio.sleep(dice.uniform(0.3, 1.0) * WORK_SECONDS / GROWTHS)
        wanted = ledger.partitions + dice.randint(1, 3)

        async def grow(broker: Broker, wanted: int = wanted) -> None:
            topic = await broker.services.topics.find(TOPIC)
            if topic.visible < wanted:
                await broker.services.topics.add_partitions(topic, wanted)

        await cluster.insist(grow)
        ledger.partitions = wanted


def _is_stable(group: ClassicGroup | ConsumerGroup | None) -> bool:
    match group:
        case ClassicGroup(state=Stable(), pending=pending):
            return not pending
        case ConsumerGroup():
            return group.state is ConsumerState.STABLE
        case _:
            return False


async def _agreed(ledger: Ledger, members: Sequence[ModelMember], is_stable: Callable[[Ledger], bool]) -> None:
    """Everyone who lives, and nobody else, is in a stable group and knows what it reads."""
    began = ledger.world.loop.time()
    while True:
        alive = {one.id: one for one in members if not one.dead}
        if is_stable(ledger) and ledger.members() == set(alive):
            read = sorted(number for one in alive.values() for number in one.held)
            if read == list(range(ledger.partitions)):
                ledger.world.trace.add("group", "agreed", after=round(ledger.world.loop.time() - began, 1))
                return
        await asyncio.sleep(0.5)


async def _gone(ledger: Ledger, member: MemberId) -> None:
    while True:
        if not ledger.has(member):
            return
        await asyncio.sleep(0.1)


async def rest(world: World, ledger: Ledger) -> None:
    """GS2: members that only beat write nothing."""
    await asyncio.sleep(BEAT_S * 2)
    ledger.written.clear()
    await asyncio.sleep(QUIET_SECONDS)
    world.check(not ledger.written, "a settled group writes", commands=ledger.written[:10])
    world.check(ledger.generations > 3, "hardly anything happened: the run proves nothing", seen=ledger.generations)


SCENARIOS: Final[dict[str, Scenario]] = {
    "groups-classic": classic,
    "groups-consumer": consumer,
    "groups-cooperative": cooperative,
}

PLANTED: Final[dict[str, Scenario]] = {
    "groups-classic/answered-before-rehome": planted(classic, (ClassicService, "_rehome", bugs.rehome_later)),
    "groups-classic/no-rehome": planted(classic, (ClassicService, "_rehome", bugs.never_rehome)),
    "groups-classic/sleep-is-silence": planted(classic, (Timetable, "_catch_up", lambda self, now_ns: None)),
    "groups-classic/any-tick": planted(classic, (ClassicGroup, "end_phase", bugs.whatever_the_tick)),
    "groups-classic/marks-by-tick": planted(classic, (ClassicGroup, "end_phase", bugs.marks_by_tick)),
    "groups-classic/any-generation-commits": planted(classic, (told, "may_commit", bugs.in_any_generation)),
    "groups-classic/old-deadlines": planted(classic, (Homes, "_named", bugs.keeps_old_deadlines)),
    "groups-classic/removed-by-anyone": planted(
        classic, (removal, "may_judge", bugs.anyone_may_judge), (removal, "is_late", bugs.is_never_late)
    ),
    "groups-classic/dies-with-its-broker": planted(classic, (GroupKeeper, "look_at_home", bugs.gone_at_once)),
    "groups-classic/given-ids-stay": planted(classic, (GroupKeeper, "_look_at_homes", bugs.forgets_given_ids)),
    "groups-cooperative/keeps-its-first-wish": planted(cooperative, (ClassicGroup, "_update", bugs.keeps_its_wish)),
    "groups-consumer/told-at-wake": planted(consumer, (ConsumerService, "_join", bugs.tells_the_target_at_wake)),
    "groups-consumer/own-revoking-is-anothers": planted(consumer, (rules, "_advance", bugs.own_is_anothers)),
    "groups-consumer/no-rehome": planted(consumer, (Homes, "may_answer", bugs.anyone_may_answer)),
    "groups-consumer/sleep-is-silence": planted(consumer, (Timetable, "_catch_up", lambda self, now_ns: None)),
    "groups-consumer/removed-by-anyone": planted(
        consumer,
        (machine_consumer, "may_judge", bugs.anyone_may_judge),
        (machine_consumer, "is_late", bugs.is_never_late),
    ),
    "groups-consumer/dies-with-its-broker": planted(consumer, (GroupKeeper, "look_at_home", bugs.gone_at_once)),
    "groups-consumer/any-epoch-commits": planted(consumer, (ConsumerGroup, "may_commit", bugs.at_any_epoch)),
    "groups-consumer/revoking-is-free": planted(consumer, (machine_consumer, "put", bugs.put_assigned_only)),
    "groups-consumer/epoch-moves-unrevoked": planted(
        consumer, (machine_consumer, "reconcile", bugs.moves_on_unrevoked)
    ),
    "groups-consumer/silence-lets-go": planted(consumer, (rules, "_may_own", bugs.silence_lets_go)),
    "groups-consumer/older-target": planted(consumer, (ConsumerGroup, "set_target", bugs.target_of_any_epoch)),
    "groups-consumer/older-view": planted(consumer, (Subscriptions, "see", bugs.see_anything)),
}
