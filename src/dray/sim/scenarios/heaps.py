"""A heap whose producers repeat, whose consumers sleep, and whose brokers come and go.

Producers send messages with dedup keys until they are told that they are
durable; consumers pop through any broker, are slow now and then, ack, nack,
give back or forget. A `JobLedger` holds every answer against the others as
it comes; a history of the whole run is judged at its end, as one of real
clients is. After heal everything that was taken is delivered within a bound, every
replica is in the same state, and then nothing is written any more but signs
of life.
"""

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Final

from dray.errors import DrayError
from dray.heaps.consumers import Delivery
from dray.heaps.errors import HeapExists, LeaseLost, MessageGone
from dray.heaps.ids import format_id, format_token, parse_token
from dray.heaps.lane import HeapLane
from dray.heaps.peek import MAX_PAGE
from dray.heaps.policy import HeapPolicy
from dray.heaps.present import present
from dray.heaps.producing import TakenMessage
from dray.heaps.service import HeapMessage, Settlement
from dray.heaps.spill import Spiller
from dray.log import envelope
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.dedup import Dedup
from dray.machine.heaps.leases import Leases
from dray.machine.heaps.messages import Messages
from dray.machine.heaps.rows import State
from dray.machine.step import Applied
from dray.replica.writer import Timing
from dray.sim.brokers import SETTINGS, Broker, Cluster
from dray.sim.jobs import JobLedger
from dray.sim.log import LogEntry
from dray.sim.nemesis import Nemesis, clock_jump, crash, half_open, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import heaps as bugs
from dray.sim.process import EPOCH_MS
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.world import World
from dray.testing.history import Judgement, Limits, Recorder, check, decode_events, fold_history
from dray.testing.history.events import Nemesis as FaultNote
from dray.testing.history.events import OpId, Process
from dray.testing.history.heap_events import (
    LEASE_LOST,
    Dead,
    Enqueue,
    Enqueued,
    HeapDrained,
    HeapOpened,
    Held,
    ListDead,
    Pop,
    Popped,
    Settle,
    Settled,
    SettleKind,
)
from dray.testing.history.limits import SECOND_NS

NAME: Final = "jobs"
WORK_SECONDS: Final = 60.0
DRAIN_SECONDS: Final = 120.0
QUIET_SECONDS: Final = 10.0
LEASE_S: Final = 8.0
RETRIES: Final = 30_000
PRODUCERS: Final = 3
CONSUMERS: Final = 4
QUICK: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=4_000)
SMALL: Final = HeapPolicy(
    inline_max_bytes=200, inline_most_bytes=1_500, spill_bytes=600, spill_after_ms=3_000, cache_bytes=2_000
)
"""So little memory for bodies that they lie everywhere."""
SLOW: Final = Limits(stuck_ns=int(PROGRESS_SECONDS * SECOND_NS), progress_ns=int(DRAIN_SECONDS * SECOND_NS))
"""Brokers that come back have sessions to end first."""
KINDS: Final[dict[Settlement, SettleKind]] = {
    Settlement.ACK: "ack", Settlement.NACK: "nack", Settlement.RELEASE: "release", Settlement.REJECT: "reject",
}  # fmt: skip
CHOICES: Final = (
    (0.8, Settlement.ACK), (0.88, Settlement.NACK), (0.9, Settlement.REJECT), (1.0, Settlement.RELEASE),
)  # fmt: skip
BACK_MS: Final = 100
ROUNDING_NS: Final = 2_000_000
"""Times of a run are exact, but for milliseconds cut off."""


class Lines:
    """How far brokers' lines of time lie behind what it is: by what the opening of a session took (ADR-0189).

    No entry lies behind by less than its line, and one that arrived soon by hardly more.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._world = cluster.world
        self._behind_ms: dict[tuple[int, int], float] = {}
        for domain, truth in cluster.truths.items():
            truth.watchers.append(partial(self._look, domain))

    def _look(self, domain: int, entry: LogEntry, _: Applied) -> None:
        head = envelope.decode_head(entry.entry)
        if head.session:
            line, behind_ms = (domain, head.session), EPOCH_MS + self._world.loop.time() * 1_000 - head.time_ms
            self._behind_ms[line] = min(behind_ms, self._behind_ms.get(line, behind_ms))

    def limits(self) -> Limits:
        """With what they excuse of a delay, measured by its client: it ends by the line of another broker."""
        return replace(SLOW, clock_skew_ns=int(max(0.0, *self._behind_ms.values()) * 1e6) + ROUNDING_NS)


class JobHistory:
    """The history of a run, in memory."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lines = BytesIO()
        self.write = Recorder(self._lines, lambda: int(world.loop.time() * 1e9))

    def fault(self, name: str, number: int, start: bool) -> None:
        """A clock that jumped stays where it is."""
        if start or "clock" not in name:
            self.write.note(Process("nemesis"), FaultNote(fault=name, target=f"{name} {number}", start=start))

    def judge(self, limits: Limits) -> Judgement:
        events, _ = decode_events(self._lines.getvalue())
        return check(fold_history(events), limits)


def seen(delivery: Delivery) -> Held:
    """As a history has it."""
    payload = delivery.body.payload
    return Held(
        id=format_id(delivery.id), key=payload.decode(errors="replace").partition(":")[0], crc=zlib.crc32(payload),
        token=format_token(delivery.token), attempts=delivery.message.attempts, priority=delivery.message.priority,
    )  # fmt: skip


class Workers:
    """Producers and consumers of one heap."""

    def __init__(self, cluster: Cluster, ledger: JobLedger) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.world = cluster.world
        self.history = JobHistory(self.world)
        self.producing = True
        self.working = True
        self.sending: set[str] = set()
        """Producers that have not ended: what they still send is wanted, too."""

    async def produce(self, name: str) -> None:
        """One message after another, each until it is known to be durable."""
        dice, sent = self.world.dice(name), 0
        self.sending.add(name)
        while self.producing:
            await asyncio.sleep(dice.random() * 1.5)
            keys = [f"{name}-{sent + at}" for at in range(dice.choice((1, 1, 1, 3)))]
            sent += len(keys)
            messages = []
            for key in keys:
                payload = f"{key}:".encode() + bytes(dice.choice((0, 20, 150, 400)))
                self.ledger.asks(key, payload)
                delay_ms = dice.choice((0, 0, 0, 2_000))
                messages.append(
                    HeapMessage(payload=payload, dedup_key=key, priority=dice.randrange(3), delay_ms=delay_ms)
                )
            ops = {
                message.dedup_key: self.history.write.invoke(
                    Process(name),
                    Enqueue(
                        heap=NAME, key=message.dedup_key, crc=zlib.crc32(message.payload), priority=message.priority,
                        delay_ms=message.delay_ms,
                    ),
                )
                for message in messages
            }  # fmt: skip

            async def enqueue(
                broker: Broker, messages: list[HeapMessage] = messages, ops: dict[str, OpId] = ops
            ) -> None:
                heap = await broker.services.heaps.admin.find(NAME)
                told: Sequence[TakenMessage | DrayError]
                if len(messages) == 1:
                    told = [await broker.services.heaps.enqueue(heap, messages[0])]
                elif len(messages[0].payload) % 2:
                    told = await broker.services.heaps.enqueue_each(heap, messages)
                else:
                    told = await broker.services.heaps.enqueue_batch(heap, messages)
                for message, one in zip(messages, told, strict=True):
                    if isinstance(one, DrayError):
                        raise one
                    self.ledger.took(message.dedup_key, one.id)
                    if (op := ops.pop(message.dedup_key, None)) is not None:
                        self.history.write.ok(op, Enqueued(id=format_id(one.id)))

            await self.cluster.insist(enqueue)
        self.sending.discard(name)

    async def consume(self, name: str) -> None:
        dice = self.world.dice(name)
        while self.working:
            credits, asked = dice.choice((1, 1, 4)), self.world.loop.time()

            async def pop(broker: Broker, credits: int = credits) -> tuple[Heap, list[Delivery]]:
                heap = await broker.services.heaps.admin.find(NAME)
                return heap, await broker.services.heaps.pop(heap, most=credits, holder=name, wait_s=2.0)

            op = self.history.write.invoke(
                Process(name), Pop(heap=NAME, credits=credits, lease_ms=int(LEASE_S * 1_000))
            )
            try:
                heap, found = await self.cluster.ask(pop)
            except DrayError as error:
                self.history.write.info(op, str(error))
                await asyncio.sleep(dice.random())
                continue
            self.history.write.ok(op, Popped(jobs=[seen(delivery) for delivery in found]))
            self.ledger.popped(found, credits=credits, asked=asked, lease_s=LEASE_S)
            for delivery in found:
                if self.working:
                    await asyncio.sleep(dice.choice((0.0, 0.1, 0.1, 1.0, LEASE_S * 1.3)) if self.producing else 0.0)
                await self._settle(heap, delivery, dice.random() if self.producing else 0.0)

    async def _settle(self, heap: Heap, delivery: Delivery, luck: float) -> None:
        """Ack mostly; some fail, some are given back, some are forgotten."""
        if luck > 0.95:
            return
        kind = next(kind for share, kind in CHOICES if luck < share)
        asked = self.world.loop.time()
        self.ledger.settles(delivery, ack=kind in (Settlement.ACK, Settlement.REJECT))
        token = parse_token(format_token(delivery.token))  # as a client has it

        record, unsure = self.history.write, kind is not Settlement.ACK
        call = Settle(heap=NAME, token=format_token(token), kind=KINDS[kind], wait_ms=BACK_MS)
        op = record.invoke(Process(delivery.token.nonce.hex()), call)

        async def settle(broker: Broker) -> None:
            await broker.services.heaps.settle(heap, kind, token, argument=BACK_MS)

        for _ in range(10):
            try:
                await self.cluster.ask(settle)
            except (LeaseLost, MessageGone):
                (record.info if unsure else record.fail)(op, LEASE_LOST)
                return
            except DrayError:
                self.ledger.tried(delivery)
                await asyncio.sleep(0.3)
            else:
                record.ok(op, Settled())
                if kind is Settlement.ACK:
                    self.ledger.acked(delivery, asked=asked)
                elif kind is Settlement.NACK:
                    self.ledger.failed(delivery)
                return

    async def list_dead(self, broker: Broker) -> None:
        """At the end: all of them are on one page."""
        record = self.history.write
        op = record.invoke(Process("run"), ListDead(heap=NAME))
        try:
            heap = await broker.services.heaps.admin.find(NAME)
            page = await broker.services.heaps.peeking.page(heap, State.DEAD, limit=MAX_PAGE, payload=False)
        except DrayError as error:
            record.info(op, str(error))
            raise
        record.ok(op, Dead(ids=[format_id(message.id) for message in page.messages]))
        record.note(Process("run"), HeapDrained(heap=NAME))


async def heaps(world: World) -> None:
    """L1, L2, L4, L8, L9, L10, L12, DD1, HL1, HL2, HL4, HA2, T15"""
    await work(world)


async def work(world: World, *, history: str = "") -> Cluster:
    """Everything of a run, with a heap that has a history or none; the cluster as it is at the end."""
    cluster = Cluster(
        world, data_domains=world.dice("size").choice([1, 1, 2]), timing=QUICK, settings=replace(SETTINGS, heaps=SMALL)
    )
    ledger, lines = JobLedger(world, retries=RETRIES), Lines(cluster)
    cluster.start()
    config = HeapConfig(visibility_ms=int(LEASE_S * 1_000), max_retries=RETRIES, backoff_cap_ms=2_000, history=history)

    async def make(broker: Broker) -> None:
        try:
            await broker.services.heaps.admin.make(NAME, mode=Mode.MIN, config=config)
        except HeapExists:  # by a request whose answer was lost; perhaps its saga is not finished
            await broker.services.heaps.admin.find(NAME)

    await world.within(PROGRESS_SECONDS, cluster.insist(make), "a heap is made in fair weather")
    workers = Workers(cluster, ledger)
    workers.history.write.note(Process("run"), HeapOpened(heap=NAME, retries=RETRIES))
    for number in range(PRODUCERS):
        world.network.start(workers.produce(f"producer-{number}"))
    for number in range(CONSUMERS):
        world.network.start(workers.consume(f"consumer-{number}"))
    faults = [crash(), pause(longest=25.0), partition(longest=15.0), half_open(), rough_weather(ROUGH)]
    if world.dice("clocks").random() < 0.7:  # in the others delays are judged: they run in wall time
        faults.append(clock_jump())
    nemesis = Nemesis(world, faults, period=8.0, watch=workers.history.fault)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    workers.producing = False
    drained = await _drained(world, workers)
    await asyncio.sleep(QUIET_SECONDS)
    workers.working = False
    await asyncio.sleep(5.0)
    if drained:
        dead = cluster.insist(workers.list_dead)
        await world.within(PROGRESS_SECONDS, dead, "dead letters are listed in fair weather")
    await cluster.compare_states()
    for anomaly, witnesses in workers.history.judge(lines.limits()).findings.witnesses.items():
        world.check(not witnesses, anomaly.value, witness=witnesses[0].text)
    world.check(ledger.acks > 10, "hardly anything happened: the run proves nothing", acks=ledger.acks)
    return cluster


async def _drained(world: World, workers: Workers) -> bool:
    """Everything that was taken is delivered after heal, or waits for a moment that machine time does not reach."""
    until = world.loop.time() + DRAIN_SECONDS
    while left := [*sorted(workers.sending), *workers.ledger.unaccounted()]:
        world.trace.add("jobs", "left", count=len(left), first=left[0])
        if world.loop.time() >= until:
            world.check(
                not workers.sending and _time_stands(workers.cluster),
                "what was taken is not delivered after heal",
                left=len(left),
                first=left[0],
            )
            return False
        await asyncio.sleep(2.0)
    return True


def _time_stands(cluster: Cluster) -> bool:
    """Are there delayed messages alone, and would no entry move time, though brokers have sessions there (HK1)?

    Machine time stands when a clock ran ahead by up to an hour, and is gone (Q7).
    """
    sessions = 0
    for broker in cluster.live():
        heap = broker.services.heaps.admin.peek(NAME)
        if heap is None:
            return False
        replica = broker.domains.of(heap.shard)
        shard, at = replica.machine.heaps.find(heap.shard), present(replica, broker.process.clock)
        if shard is None or shard.messages.ready or len(shard.leases) or at.now_ms > replica.machine.timeline.time_ms:
            return False
        sessions += replica.session is not None
    return sessions > 0


SCENARIOS: Final[dict[str, Scenario]] = {"heaps": heaps}

PLANTED: Final[dict[str, Scenario]] = {
    "heaps/answered-before-durable": planted(heaps, (HeapLane, "enqueue", bugs.answered_before_durable)),
    "heaps/any-token": planted(heaps, (Leases, "find", bugs.any_token)),
    "heaps/leases-end-early": planted(heaps, (Leases, "over", bugs.over_early)),
    "heaps/no-dedup": planted(heaps, (Dedup, "find", bugs.never_known)),
    "heaps/an-ack-comes-back": planted(heaps, (Messages, "remove_run", bugs.comes_back)),
    "heaps/spilled-elsewhere": planted(heaps, (Spiller, "_choose", bugs.bodies_mixed_up)),
    "heaps/delays-end-early": planted(heaps, (Messages, "wake", bugs.awake_early)),
    "heaps/the-dead-come-back": planted(heaps, (Messages, "reject", bugs.the_dead_come_back)),
    "heaps/more-than-the-credits": planted(heaps, (bugs.Consumer, "reserve", bugs.reserves_nothing)),
}
