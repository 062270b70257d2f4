"""Topics that come, change and go in one, two or four domains, while brokers die in the middle of it.

Admins make topics, give them partitions, delete records of them and delete
them through any broker, and make them again under the same name; others alter
the configs of a topic that stays (`dray.sim.alterations`). Producers with ids
change their epochs, and groups commit offsets.

Checked: when a deletion was answered, every stream of the topic is closed
(TS2); a topic that was made is there with all its partitions (T5); within a
producer's records epochs never go back (P3). After heal every saga comes to
its end, whoever began it; what silent producers and groups left is forgotten,
producers that come back then go on where they were (P5), the bucket holds
nothing that nobody needs, checkpoints are confirmed and the logs are trimmed,
and everybody serves.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Final

from dray.errors import DrayError
from dray.machine.names import StreamId, TopicId, domain_of
from dray.machine.streams import Streams
from dray.machine.topics import Topic, Topics
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import MemoryCheckpoints
from dray.replica.fold import InlineFolder
from dray.replica.freshness import Freshness
from dray.replica.letting_go import LettingGo
from dray.replica.writer import Timing
from dray.retention.floors import RetentionRules
from dray.retention.records import TO_THE_END
from dray.retention.settings import RetentionSettings
from dray.sim.alterations import Alterations
from dray.sim.brokers import SETTINGS, Broker, Cluster
from dray.sim.folding import TimedFolder
from dray.sim.log import SharedLog
from dray.sim.nemesis import Nemesis, crash, half_open, partition, pause, rough_weather
from dray.sim.network import ROUGH
from dray.sim.planted import Scenario, planted
from dray.sim.planted import topics as bugs
from dray.sim.scenarios.appends import PROGRESS_SECONDS, finish
from dray.sim.scenarios.garbage import Warden, until_clean
from dray.sim.workload import Workload
from dray.sim.world import World
from dray.topics.errors import BadPartitions, TopicExists, UnknownTopic
from dray.topics.service import NewTopic, TopicService

WORK_SECONDS: Final = 50.0
SAGA_SECONDS: Final = 120.0
FORGET_SECONDS: Final = 1_200.0
NAMES: Final = ("orders", "users", "events")
QUICK: Final = Timing(ttl_ms=6_000, keepalive_ms=2_000, settle_ms=4_000)
GRACE_MS: Final = 5_000
DUE_BYTES: Final = 8_000
BUSY: Final = replace(
    SETTINGS,
    retention=RetentionSettings(
        interval=timedelta(seconds=3),
        grace=timedelta(milliseconds=GRACE_MS),
        sweep_interval=timedelta(seconds=10),
        orphan_ttl=timedelta(seconds=80),
        expiry_interval=timedelta(seconds=7),
        producers_expiry=timedelta(minutes=1),
        offsets_retention=timedelta(minutes=1),
    ),
)


class Admins:
    """Who makes, changes and deletes topics; each name has one."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._cluster = workload.cluster
        self._world = workload.world

    async def work(self, name: str, dice: Random) -> None:
        deeds = (self._delete, self._grow, self._grow, self._trim)
        while self._workload.history.working:
            await asyncio.sleep(dice.random() * 4)
            try:
                topic = await self._create(name, dice)
                self._use(topic)
                await asyncio.sleep(dice.random() * 12)
                await dice.choice(deeds)(topic, dice)
            except DrayError:
                continue

    async def _create(self, name: str, dice: Random) -> Topic:
        wanted = NewTopic(name=name, partitions=dice.randint(1, 5), replication_factor=1, configs={})

        async def create(broker: Broker) -> Topic:
            try:
                return await broker.services.topics.create(wanted)
            except TopicExists:
                return await broker.services.topics.find(name)

        topic = await self._cluster.ask(create)
        self._check_open(topic.streams[: topic.visible])
        return topic

    async def _grow(self, topic: Topic, dice: Random) -> None:
        partitions = len(topic.streams) + dice.randint(1, 3)

        async def grow(broker: Broker) -> Topic:
            found = await broker.services.topics.find_id(topic.id)
            with suppress(BadPartitions):  # an answer was lost, and they are there
                await broker.services.topics.add_partitions(found, partitions)
            return await broker.services.topics.find_id(topic.id)

        grown = await self._cluster.ask(grow)
        self._check_open(grown.streams[: grown.visible])
        self._use(grown)

    async def _trim(self, topic: Topic, dice: Random) -> None:
        """Delete records; what was answered is so for good (RT30)."""
        stream = dice.choice(topic.streams[: topic.visible])

        async def trim(broker: Broker) -> int:
            found = (await broker.services.records.delete({stream: TO_THE_END}, Freshness()))[stream]
            if isinstance(found, DrayError):
                raise found
            return found

        start = await self._cluster.ask(trim)
        found = self._cluster.truth_of(stream).streams.find(stream)
        kept = found is not None and not found.closed and found.start < start
        self._world.check(not kept, "deleted records are there", stream=stream, start=start)

    async def _delete(self, topic: Topic, _dice: Random) -> None:
        self._leave(topic.id)

        async def delete(broker: Broker) -> list[StreamId]:
            found = await broker.services.topics.find_id(topic.id)
            streams = list(found.streams)
            await broker.services.topics.delete(found)
            return streams

        try:
            streams = await self._cluster.ask(delete)
        except UnknownTopic:
            return
        for stream in streams:
            found = self._cluster.truth_of(stream).streams.find(stream)
            closed = found is None or found.closed
            self._world.check(closed, "a deleted topic takes records", topic=topic.name, stream=stream)  # TS2

    def _check_open(self, streams: list[StreamId]) -> None:
        """T5, unless somebody deletes it again: only its own admin would."""
        for stream in streams:
            found = self._cluster.truth_of(stream).streams.find(stream)
            self._world.check(found is not None and not found.closed, "a visible partition is missing", stream=stream)

    def _use(self, topic: Topic) -> None:
        known = set(self._cluster.streams)
        self._cluster.streams += tuple(stream for stream in topic.streams[: topic.visible] if stream not in known)

    def _leave(self, topic_id: TopicId) -> None:
        topic = self._cluster.truth.machine.topics.find(topic_id)
        gone = set() if topic is None else set(topic.streams)
        self._cluster.streams = tuple(stream for stream in self._cluster.streams if stream not in gone)


async def topics(world: World) -> None:
    """TS1, TS2, T5, P3, P5, RT2, R-048, R-106, R-112"""
    dice = world.dice("topics")
    data_domains = dice.choice([1, 1, 1, 2, 2, 4])
    stores = {domain: MemoryCheckpoints() for domain in range(1 if data_domains == 1 else data_domains + 1)}
    cluster = Cluster(
        world, data_domains=data_domains, timing=QUICK, min_grace_ms=GRACE_MS, settings=BUSY, checkpoints=stores
    )
    for domain, store in stores.items():
        cluster.beside.append(_checkpointer(cluster, domain, store))
    Warden(cluster)
    workload = Workload(cluster)
    workload.may_vanish = True
    cluster.start()
    await world.within(PROGRESS_SECONDS, cluster.create_topic(2), "a topic is created in fair weather")
    admins = Admins(workload)
    at_work = [world.network.start(admins.work(name, world.dice(f"admin/{name}"))) for name in NAMES]
    alterations = Alterations(workload)
    at_work += [world.network.start(alterations.work(world.dice(f"alter/{number}"))) for number in range(2)]
    workload.start(plain=2, idempotent=0, readers=1, committers=2)
    for number in range(2):
        world.network.start(workload.epochs(f"epochs-{number}", world.dice(f"epochs/{number}")))
    faults = [crash(), pause(longest=20.0), partition(longest=15.0), half_open(), rough_weather(ROUGH)]
    nemesis = Nemesis(world, faults, period=8.0)
    world.network.start(nemesis.run())
    await asyncio.sleep(WORK_SECONDS)
    nemesis.heal()
    workload.history.working = False
    await world.within(SAGA_SECONDS, asyncio.wait(at_work), "every admin comes to an end")
    await world.within(SAGA_SECONDS, _sagas_end(cluster), "every saga comes to its end")
    _keep_what_is_there(cluster)
    await finish(world, cluster, workload)
    workload.check_epochs()
    alterations.check()
    await world.within(SAGA_SECONDS, alterations.check_retention(), "retention follows the newest configs")
    await world.within(FORGET_SECONDS, _forgotten(cluster), "silent producers and groups are forgotten")
    await world.within(PROGRESS_SECONDS, workload.come_back(), "whoever was forgotten is taken again")
    await world.within(FORGET_SECONDS, until_clean(cluster), "the bucket is clean")
    await world.within(FORGET_SECONDS, _trimmed(cluster, stores), "checkpoints are confirmed and logs are trimmed")
    await cluster.compare_states()


def _checkpointer(cluster: Cluster, domain: int, store: MemoryCheckpoints) -> Callable[[Broker], Awaitable[None]]:
    async def make(broker: Broker) -> None:
        folder = TimedFolder(InlineFolder(cluster.connect(broker.process, domain), store))
        checkpointer = Checkpointer(
            broker.domains[domain], store, folder, broker.process.clock, due_bytes=DUE_BYTES, kept_ms=2_000
        )
        await checkpointer.run()

    return make


async def _sagas_end(cluster: Cluster) -> None:
    while True:
        if not any(topic.unfinished() for topic in cluster.truth.machine.topics.all.values()):
            return
        await asyncio.sleep(1)


def _keep_what_is_there(cluster: Cluster) -> None:
    """After the last saga: each partition has its stream, and no stream is open without a partition (T5, TS2)."""
    known = {stream for topic in cluster.truth.machine.topics.all.values() for stream in topic.streams[: topic.visible]}
    for stream in known:
        found = cluster.truth_of(stream).streams.find(stream)
        cluster.world.check(found is not None and not found.closed, "a partition has no stream", stream=stream)
    for truth in cluster.truths.values():
        for left in truth.machine.streams.all():
            cluster.world.check(left.closed or left.id in known, "a stream outlived its topic", stream=left.id)
    cluster.streams = tuple(sorted(known, key=lambda stream: (domain_of(stream), stream)))


async def _forgotten(cluster: Cluster) -> None:
    while True:
        machines = [truth.machine for truth in cluster.truths.values()]
        producers = any(stream.producers for machine in machines for stream in machine.streams.all())
        if not producers and not any(machine.offsets.groups() for machine in machines):
            return
        await asyncio.sleep(5)


async def _trimmed(cluster: Cluster, stores: dict[int, MemoryCheckpoints]) -> None:
    """Checkpoints and trims go on: every log loses all that it has now; keep-alives alone let it grow."""
    tails = {domain: log.tail() for domain, log in cluster.logs.items()}
    while not all(_is_beyond(cluster.logs[domain], stores[domain], tail) for domain, tail in tails.items()):  # noqa: ASYNC110
        await asyncio.sleep(5)


def _is_beyond(log: SharedLog, store: MemoryCheckpoints, position: int) -> bool:
    left = log.entries()
    return max(store.loadable(), default=0) > position and bool(left) and left[0].position > position


SCENARIOS: Final[dict[str, Scenario]] = {"topics": topics}

PLANTED: Final[dict[str, Scenario]] = {
    "topics/alters-what-it-has-not-seen": planted(topics, (Topics, "_alter", bugs.alter_any_revision)),
    "topics/configs-are-read-once": planted(topics, (RetentionRules, "of", bugs.rules_as_they_were)),
    "topics/saga-left-behind": planted(topics, (TopicService, "go_on", bugs.nobody_goes_on)),
    "topics/deleted-before-it-is-closed": planted(topics, (TopicService, "delete", bugs.delete_without_closing)),
    "topics/forgets-that-it-forgot": planted(topics, (Streams, "_expire_producers", bugs.forgets_that_it_forgot)),
    "topics/trims-once": planted(topics, (LettingGo, "step", bugs.lets_go_once)),
}
