"""Batches over heaps of several domains, whose brokers come and go at every step of them.

Producers send batches until they are told what became of them, or leave them
to themselves; consumers take whatever they find. After heal nobody stays in
doubt: each batch is there whole or not at all, nothing is prepared any more,
no decision is left over, and every replica is in the same state.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Final

from dray.errors import DrayError
from dray.heaps.batches import BatchCoordinator
from dray.heaps.consumers import Delivery
from dray.heaps.errors import HeapExists
from dray.heaps.service import HeapMessage, Settlement
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.dedup import Dedup
from dray.sim.batch_ledger import BatchLedger
from dray.sim.brokers import SETTINGS, Broker, Cluster, surely_not
from dray.sim.nemesis import Nemesis, clock_jump, crash, half_open, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import batches as bugs
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.scenarios.heaps import QUICK, SMALL
from dray.sim.world import World

HEAPS: Final = tuple(f"jobs-{number}" for number in range(4))
WORK_SECONDS: Final = 30.0
DRAIN_SECONDS: Final = 120.0
PRODUCERS: Final = 4
LEASE_MS: Final = 5_000


class BatchWorkers:
    """Producers and consumers of several heaps."""

    def __init__(self, cluster: Cluster, ledger: BatchLedger) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.world = cluster.world
        self.producing = True
        self.asking = 0

    async def produce(self, name: str) -> None:
        dice, sent = self.world.dice(name), 0
        while self.producing:
            await asyncio.sleep(dice.random() * 2)
            batch, sent = f"{name}-{sent}", sent + 1
            chosen = sorted(dice.sample(HEAPS, dice.choice((2, 2, 3, 4))))
            keys = {f"{batch}/{heap}/{at}": heap for heap in chosen for at in range(dice.choice((1, 1, 2)))}
            self.ledger.asks(batch, keys)
            items = [
                (heap, HeapMessage(payload=f"{key}:".encode() + bytes(dice.choice((0, 20, 400))), dedup_key=key))
                for key, heap in keys.items()
            ]
            self.asking += 1
            await self._send(batch, items, insists=dice.random() < 0.6)
            self.asking -= 1

    async def _send(self, batch: str, items: list[tuple[str, HeapMessage]], *, insists: bool) -> None:
        async def enqueue(broker: Broker) -> None:
            service = broker.services.heaps
            await service.enqueue_across([(await service.admin.find(heap), message) for heap, message in items])

        doubt = False
        while True:
            try:
                await self.cluster.ask(enqueue)
            except DrayError as error:
                doubt = doubt or not surely_not(error)
                if insists:
                    await asyncio.sleep(0.5)
                    continue
                if not doubt:
                    self.ledger.refused(batch)
                return
            self.ledger.took(batch)
            return

    async def consume(self, name: str) -> None:
        """Whatever there is, of every heap in turn; some deliveries are forgotten."""
        dice, turn = self.world.dice(name), 0
        while True:
            turn += 1
            await asyncio.sleep(0.4)
            heap_name = HEAPS[turn % len(HEAPS)]

            async def pop(broker: Broker, heap_name: str = heap_name) -> tuple[Heap, list[Delivery]]:
                heap = await broker.services.heaps.admin.find(heap_name)
                return heap, await broker.services.heaps.pop(heap, most=10, holder="c")

            try:
                heap, found = await self.cluster.ask(pop)
                for delivery in found:
                    self.ledger.delivered(heap_name, delivery.body.payload)
                for delivery in found:
                    if not self.producing or dice.random() < 0.9:
                        await self.cluster.ask(partial(_ack, heap=heap, delivery=delivery))
            except DrayError:
                await asyncio.sleep(dice.random())


async def batches(world: World) -> None:
    """L10, BA1, BA2, BA3, BA4, BA5, BA6, BA7, D-130, D-131, D-132, D-136, D-137, D-138"""
    cluster = Cluster(
        world, data_domains=world.dice("size").choice([2, 2, 3]), timing=QUICK, settings=replace(SETTINGS, heaps=SMALL)
    )
    ledger = BatchLedger(world)
    cluster.start()
    for name in HEAPS:
        await world.within(
            PROGRESS_SECONDS, cluster.insist(partial(_make, name=name)), "a heap is made in fair weather"
        )
    workers = BatchWorkers(cluster, ledger)
    for number in range(PRODUCERS):
        world.network.start(workers.produce(f"producer{number}"))
    for number in range(2):
        world.network.start(workers.consume(f"consumer{number}"))
    faults = [crash(), crash(), pause(longest=25.0), partition(longest=15.0), half_open(), rough_weather(ROUGH),
              clock_jump()]  # fmt: skip
    nemesis = Nemesis(world, faults, period=6.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    workers.producing = False
    await world.within(DRAIN_SECONDS, _decided(cluster, workers), "nobody stays in doubt after heal")
    there, absent = ledger.judge()
    world.check(there > 5, "hardly anything happened: the run proves nothing", there=there, absent=absent)
    await cluster.compare_states()


async def _ack(broker: Broker, heap: Heap, delivery: Delivery) -> None:
    await broker.services.heaps.settle(heap, Settlement.ACK, delivery.token)


async def _make(broker: Broker, name: str) -> None:
    config = HeapConfig(visibility_ms=LEASE_MS, max_retries=30_000, backoff_cap_ms=1_000)
    try:
        await broker.services.heaps.admin.make(name, mode=Mode.MIN, config=config)
    except HeapExists:  # by a request whose answer was lost; perhaps its saga is not finished
        await broker.services.heaps.admin.find(name)


async def _decided(cluster: Cluster, workers: BatchWorkers) -> None:
    """Nobody asks any more, nothing is prepared or remembered, and every message was acked."""
    while True:
        machines = [truth.machine for truth in cluster.truths.values()]
        left = sum(len(shard.messages.rows) for machine in machines for shard in machine.heaps)
        doubt = sum(len(shard.batches.all) for machine in machines for shard in machine.heaps)
        doubt += sum(len(machine.batches.committed) for machine in machines)
        if not workers.asking and not left and not doubt:
            return
        cluster.world.trace.add("batches", "left", rows=left, doubt=doubt, asking=workers.asking)
        await asyncio.sleep(2.0)


SCENARIOS: Final[dict[str, Scenario]] = {"batches": batches}

PLANTED: Final[dict[str, Scenario]] = {
    "batches/decides-nothing": planted(batches, (BatchCoordinator, "_decide", bugs.decides_nothing)),
    "batches/aborted-is-remembered": planted(batches, (Dedup, "give_back", bugs.remembers_aborted)),
}
