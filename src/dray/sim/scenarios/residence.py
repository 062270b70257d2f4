"""Brokers that have one or two of their domains at a time: they load and drop while everything goes wrong.

Producers with and without ids, readers and groups ask any broker for anything,
so that each loads what it does not lead, and drops it again; processes die,
sleep and are cut off in the middle of it. Whatever holds of brokers that have
all domains must hold of these (`workload` says what).

Checked besides: what a request has looked at stays until its end (DL2). After
heal every domain is loaded by the broker that leads it (DL1), so what is due in
it with nobody asking happens: silent producers and groups are forgotten, the
bucket is cleaned and logs are trimmed. In fair weather a domain that goes leaves
no session behind (DL4).
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from dray.errors import DrayError
from dray.log.port import Log
from dray.machine.machine import Machine
from dray.node.plane import Plane
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import MemoryCheckpoints, newest_machine
from dray.replica.domains import SomeDomains
from dray.replica.errors import NotLoaded
from dray.replica.fold import InlineFolder
from dray.replica.opening import catch_up
from dray.replica.replica import Replica
from dray.replica.residence import DomainSlot, Residence, Stage
from dray.routing.service import Routing
from dray.sim.brokers import Broker, Cluster, StrictWatch
from dray.sim.folding import TimedFolder
from dray.sim.nemesis import Nemesis, crash, half_open, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import residence as bugs
from dray.sim.process import Process
from dray.sim.scenarios.appends import PROGRESS_SECONDS, finish
from dray.sim.scenarios.garbage import Warden, until_clean
from dray.sim.scenarios.topics import BUSY, DUE_BYTES, FORGET_SECONDS, GRACE_MS, QUICK, _forgotten, _trimmed
from dray.sim.workload import Workload
from dray.sim.world import World

WORK_SECONDS: Final = 50.0
LOAD_SECONDS: Final = 60.0
IDLE_S: Final = 6.0


class SmallBrokers(Cluster):
    """A cluster whose brokers have few domains loaded."""

    def __init__(self, world: World, *, data_domains: int, budget: int, stores: dict[int, MemoryCheckpoints]) -> None:
        super().__init__(
            world, data_domains=data_domains, timing=QUICK, min_grace_ms=GRACE_MS, settings=replace(BUSY),
            checkpoints=stores,
        )  # fmt: skip
        self._budget = budget
        self._stores = stores
        self.residences: dict[Process, Residence] = {}
        self.went = self.came = 0

    async def boot(self, process: Process) -> None:
        residence = Residence(process.clock, budget=self._budget, idle_s=IDLE_S, wait_s=5.0)
        self.residences[process] = residence
        async with AsyncExitStack() as stack:
            stack.push_async_callback(residence.close)
            for domain in self.logs:
                log = await self.opened(process, domain)
                replica = self.replica(process, log, Machine(), domain=domain)
                bring = partial(self._bring, process, domain, log, replica)
                slot = residence.slots[domain] = DomainSlot(domain, replica, bring, process.clock)
                await residence.load(slot)
            broker = await stack.enter_async_context(self.serving(process, residence.replicas))
            watch = broker.services.plane.watch
            coming = watch.start("domains", lambda: residence.run(broker.services.routing.led))
            stack.push_async_callback(watch.stop, coming)
            ends = [replica.failed for replica in residence.replicas.values()]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            raise next(end.result() for end in ends if end in done)

    async def _bring(
        self, process: Process, domain: int, log: Log, replica: Replica, stack: AsyncExitStack
    ) -> None:  # fmt: skip
        store = self._stores[domain]
        replica.begin(await newest_machine(store))
        await catch_up(replica, log, process.clock.boot_ns)
        await stack.enter_async_context(replica.running())
        folder = TimedFolder(InlineFolder(self.connect(process, domain), store))
        checkpointer = Checkpointer(replica, store, folder, process.clock, due_bytes=DUE_BYTES, kept_ms=2_000)
        watch = StrictWatch(process, self.world)
        stack.push_async_callback(watch.stop, watch.start(f"checkpointer-{domain}", checkpointer.run))
        self.came += 1
        stack.callback(self._count)

    def _count(self) -> None:
        self.went += 1

    def plane(self, process: Process, replicas: object) -> Plane:
        residence = self.residences[process]
        return replace(super().plane(process, residence.replicas), domains=SomeDomains(residence), residence=residence)

    def residence(self, broker: Broker) -> Residence:
        return self.residences[broker.process]

    async def look_on(self, dice: Random, is_working: "asyncio.Event") -> None:
        """Requests that take their time: what they have looked at does not go meanwhile (DL2)."""
        while not is_working.is_set():
            await asyncio.sleep(dice.random())
            domain = dice.choice([domain for domain in self.logs if domain])
            try:
                await self.ask(partial(self._look, domain, dice.random() * 12))
            except DrayError:
                continue

    async def _look(self, domain: int, seconds: float, broker: Broker) -> None:
        residence = self.residence(broker)
        await residence.ready(domain)
        until_ns = broker.process.clock.boot_ns() + int(seconds * 1e9)
        while broker.process.clock.boot_ns() < until_ns:
            await broker.process.clock.sleep(0.25)
            replica = broker.domains[domain]
            if not broker.process.running or replica.failed.done():
                return
            try:
                _ = replica.machine.position
            except NotLoaded:
                raise self.world.violate("a domain went that a request used", domain=domain) from None  # DL2

    async def until_led(self) -> None:
        """DL1: every domain is loaded by whoever leads it, and somebody does."""
        while True:
            if all(self._is_led(domain) for domain in self.logs if domain):
                return
            await asyncio.sleep(1)

    def _is_led(self, domain: int) -> bool:
        leaders = [one for one in self.live() if domain in (one.services.routing.led() or ())]
        return bool(leaders) and all(self.residence(one).slots[domain].is_loaded for one in leaders)

    async def until_few(self) -> None:
        """Nobody asks: brokers come down to what they lead."""
        while True:
            if not any(self._surplus(broker) for broker in self.live()):
                return
            await asyncio.sleep(1)

    def _surplus(self, broker: Broker) -> list[int]:
        led = broker.services.routing.led() or frozenset()
        slots = self.residence(broker).slots.values()
        here = [slot.domain for slot in slots if slot.stage is not Stage.ABSENT and slot.domain]
        return [domain for domain in here if domain not in led]

    async def come_and_go(self) -> None:
        """In fair weather a domain that goes leaves no session (DL4)."""
        for broker in self.live():
            for domain in self.logs:
                if domain and domain not in (broker.services.routing.led() or ()):
                    await self.insist(partial(self._write, domain, broker))
        await self.until_few()
        for broker in self.live():
            for domain, slot in self.residence(broker).slots.items():
                live = self.truths[domain].machine.sessions.live.values()
                left = [one.id for one in live if one.name == broker.process.name]
                self.world.check(
                    slot.is_loaded or not left, "a domain went and left its session", domain=domain, sessions=left
                )

    async def _write(self, domain: int, broker: Broker, _asked: Broker) -> None:
        await self.residence(broker).ready(domain)
        await broker.domains[domain].open_session()


async def domains(world: World) -> None:
    """DL1, DL2, DL3, DL4"""
    dice = world.dice("domains")
    data_domains = dice.choice([2, 3, 4])
    stores = {domain: MemoryCheckpoints() for domain in range(data_domains + 1)}
    cluster = SmallBrokers(world, data_domains=data_domains, budget=dice.choice([1, 1, 2]), stores=stores)
    Warden(cluster)
    workload = Workload(cluster)
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2 * data_domains), "a topic is created in fair weather")
    workload.start(plain=2, idempotent=2, readers=2, committers=2)
    over = asyncio.Event()
    looking = [world.network.start(cluster.look_on(world.dice(f"look/{number}"), over)) for number in range(2)]
    faults = [crash(), pause(longest=20.0), partition(longest=15.0), half_open(), rough_weather(ROUGH)]
    nemesis = Nemesis(world, faults, period=8.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    workload.history.working = False
    over.set()
    await world.within(LOAD_SECONDS, asyncio.wait(looking), "every request comes to an end")
    await world.within(LOAD_SECONDS, cluster.until_led(), "every domain is loaded by its leader")
    await finish(world, cluster, workload)
    await world.within(LOAD_SECONDS, cluster.until_few(), "domains that nobody uses go")
    world.check(cluster.went > 0, "no domain went: the run proves nothing", came=cluster.came)
    await world.within(FORGET_SECONDS, _forgotten(cluster), "silent producers and groups are forgotten")
    await world.within(FORGET_SECONDS, until_clean(cluster), "the bucket is clean")
    await world.within(FORGET_SECONDS, _trimmed(cluster, stores), "checkpoints are confirmed and logs are trimmed")
    await world.within(PROGRESS_SECONDS, cluster.come_and_go(), "domains come and go in fair weather")
    await cluster.compare_states()


SCENARIOS: Final[dict[str, Scenario]] = {"domains": domains}

PLANTED: Final[dict[str, Scenario]] = {
    "domains/goes-while-used": planted(domains, (Residence, "may_go", bugs.goes_while_used)),
    "domains/nobody-has-to-have-it": planted(domains, (Routing, "led", bugs.leads_nothing)),
    "domains/session-left-open": planted(domains, (Residence, "_give_back", bugs.keeps_its_session)),
}
