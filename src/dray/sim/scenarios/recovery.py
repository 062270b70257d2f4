"""Recovery: a log is damaged, rolled back or whole, and an operator begins a new one with what it tells.

A backup of the log is taken while the machine is off; clients go on; then the
backup is put back, a byte of the log decays, or nothing is wrong. `recover`
runs, the power goes at any of its calls, and it runs again.

Checked: no producer id is ever given twice, though the log that gave it is
lost (Q6); what a recovery keeps is what was acked, at its offset; of a log
that was whole, or up to the backup, that is all of it; a broker opens nothing
between (RC1): it starts as before, or is refused, or starts as recovered; and
what is acked afterwards survives the next power cut (R-017).
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Final

from dray.errors import Corrupt, DrayError, Unavailable
from dray.log.reader import LogDamaged, segment_firsts
from dray.log.segment import HEADER, segment_name
from dray.machine.names import StreamId
from dray.machine.producer_ids import ProducerIds
from dray.produce.batches import Stored
from dray.replica.errors import Diverged
from dray.sim.directories import home_of_log, log_of, recover_log
from dray.sim.hosted import KEEPER, ROOTS, HostCluster, restart_all, until
from dray.sim.planted import Scenario, planted
from dray.sim.planted import disks as bugs
from dray.sim.process import EPOCH_MS, Process
from dray.sim.requests import make_batch
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.workload import PATCHED
from dray.sim.world import World

WORK_SECONDS: Final = 8.0
BEGINNING_BYTES: Final = 1_500
"""In these the log and its topic begin."""
OPERATOR: Final = "operator"
WHOLE, OLD_COPY, DECAYED = "whole", "old copy", "decayed"


@dataclass(slots=True)
class Seen:
    """What clients were told."""

    ids: set[int] = field(default_factory=set)
    acked: dict[tuple[StreamId, int], bytes] = field(default_factory=dict)
    """By the offset of its first record."""
    sent: int = 0
    working: bool = True
    waiting: bool = False
    """They wait until the operator is done."""


async def recovery(world: World) -> None:
    """Q6, RC1, R-017"""
    dice = world.dice("recovery")
    cluster, seen = HostCluster(world, joiners=()), Seen()
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created")
    for number in range(3):
        world.network.start(_client(cluster, seen, world.dice(f"client/{number}")))
    home = home_of_log(ROOTS / KEEPER)
    for _ in range(dice.randint(1, 2)):
        await asyncio.sleep(WORK_SECONDS)
        cluster.host.cut_power()
        backup, sure = cluster.host.disk.copied(home), dict(seen.acked)
        cluster.start()
        await asyncio.sleep(WORK_SECONDS)
        seen.waiting = True
        cluster.host.cut_power()
        await asyncio.sleep(cluster.patience)  # whoever still waits for an answer hears of none
        disaster = dice.choice([WHOLE, OLD_COPY, OLD_COPY, DECAYED, DECAYED])
        world.trace.add("world", f"the log is {disaster}")
        if disaster == OLD_COPY:
            cluster.host.disk.mount(home, backup)
            damaged = False
        elif damaged := disaster == DECAYED and _decay(cluster, dice):
            sure = {}
        else:
            sure = dict(seen.acked)
        await _operate(world, cluster, dice, look=damaged)
        await _compare(world, cluster, seen, sure)
        seen.waiting = False
    await asyncio.sleep(WORK_SECONDS)
    seen.working = False
    await asyncio.sleep(cluster.patience)
    await restart_all(world, cluster)
    await _compare(world, cluster, seen, dict(seen.acked))
    world.check(len(seen.ids) > 2, "no ids were given: the run proves nothing")


def _decay(cluster: HostCluster, dice: Random) -> bool:
    """A byte in the older half of the log, behind its beginning, so that there is something before it and behind."""
    disk, log = cluster.host.disk, log_of(ROOTS / KEEPER)
    firsts = segment_firsts(disk, log)
    first = firsts[dice.randrange((len(firsts) + 1) // 2)]
    file = log / segment_name(first)
    low, high = BEGINNING_BYTES if first == 1 else HEADER.size, (disk.size(file) or 0) * 2 // 3
    if low < high:
        disk.flip(file, dice.randrange(low, high))
    return low < high


async def _operate(world: World, cluster: HostCluster, dice: Random, *, look: bool) -> None:
    """An operator recovers, again and again for as long as the power goes, and then starts the broker.

    With `look` the broker is started between too. Not on an old copy: nothing there says that it is one.
    """
    host, generation = cluster.host, cluster.generation
    cluster.witness.active = False
    cluster.forget_shown()
    cluster.refusals = (Corrupt, LogDamaged, Diverged)
    keeper = world.nodes[KEEPER]
    keeper.restart_after = None
    done: list[int] = []

    async def recover(process: Process) -> None:
        try:
            done.append((await recover_log(cluster.home(process, KEEPER))).generation)
        except Unavailable:  # an earlier one was cut short and is finished now
            done.append(generation + 1)

    operator = host.add(f"{OPERATOR}-{world.loop.time():.0f}", recover)
    operator.restart_after = None
    for attempt in range(20):
        if attempt < dice.randrange(6):
            host.disk.only_kill = dice.random() < 0.3
            host.disk.crash_at = host.disk.calls + dice.randrange(80)
        operator.start()
        await asyncio.sleep(2)
        host.disk.crash_at = None
        if done:
            break
        operator.crash()
        if dice.random() < 0.5:
            cluster.host.cut_power()
        if look and dice.random() < 0.5:
            await _look(world, cluster, generation)
    world.check(bool(done), "a log cannot be recovered")
    host.nodes.remove(operator)
    cluster.refusals = ()
    keeper.restart_after = 1.0
    keeper.start()
    await world.within(PROGRESS_SECONDS, until(lambda: bool(cluster.live())), "a broker starts after a recovery")
    world.check(cluster.generation >= done[-1], "a recovery begins no new log", generation=cluster.generation)


async def _look(world: World, cluster: HostCluster, damaged: int) -> None:
    """Started while a recovery is half done, a broker is refused or finds a new log: not the damaged one, cut (RC1).

    A recovery that was cut short behind its last step has begun the new log all the same.
    """
    world.nodes[KEEPER].start()
    await asyncio.sleep(3)
    if cluster.live():
        world.check(
            cluster.generation > damaged, "a log that lost entries is opened as if it had not", generation=damaged
        )
    cluster.host.cut_power()


async def _compare(world: World, cluster: HostCluster, seen: Seen, sure: dict[tuple[StreamId, int], bytes]) -> None:
    """What is there was acked so, or never acked; what must be there is."""
    (broker,) = cluster.live()
    ends = {stream: await broker.latest(stream) for stream in cluster.streams}
    for (stream, base), payload in sorted(seen.acked.items()):
        if base < ends[stream]:
            found = await broker.read(stream, base)
            known = seen.acked.get((stream, base)) == payload
            world.check(not known or found == (base, payload), "an acked record is not at its offset", base=base)
        else:
            world.check((stream, base) not in sure, "an acked record is lost", stream=stream, base=base)
            seen.acked.pop((stream, base), None)  # its offset may be given again


async def _client(cluster: HostCluster, seen: Seen, dice: Random) -> None:
    """Asks for producer ids, and writes without."""
    while seen.working:
        await asyncio.sleep(dice.random() * 0.8)
        if seen.waiting:
            continue
        try:
            if dice.random() < 0.4:
                _note_id(cluster, seen, await cluster.ask(lambda broker: broker.new_producer()))
            else:
                await _produce(cluster, seen, dice)
        except DrayError:
            continue


def _note_id(cluster: HostCluster, seen: Seen, number: int) -> None:
    cluster.world.check(number not in seen.ids, "a producer id was given twice", id=number)
    seen.ids.add(number)


async def _produce(cluster: HostCluster, seen: Seen, dice: Random) -> None:
    seen.sent += 1
    stream = dice.choice(cluster.streams)
    now_ms = EPOCH_MS + int(cluster.world.loop.time() * 1000)
    batch = make_batch(stream, f"record {seen.sent}".encode(), dice.randint(1, 3), now_ms)
    (answer,) = await cluster.ask(lambda broker: broker.produce([batch]))
    if isinstance(answer, Stored):
        seen.acked[stream, answer.base_offset] = batch.data[PATCHED:]


SCENARIOS: Final[dict[str, Scenario]] = {"recovery": recovery}

PLANTED: Final[dict[str, Scenario]] = {
    "recovery/ids-again": planted(recovery, (ProducerIds, "begin", bugs.ids_go_on)),
}
