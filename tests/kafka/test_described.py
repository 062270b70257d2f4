"""Descriptions of topics are kept as bytes, and are never older than the topic or the set of brokers."""

import random

from dray.clock import SystemClock
from dray.machine.brokers import BrokerRegistered, Listener, RegisterBroker
from dray.replica.domains import Domains
from dray.routing.service import Routing
from dray.servers.kafka import described
from dray.servers.kafka.described import Descriptions, describe
from dray.servers.kafka.messages.metadata import SCHEMA, MetadataResponse, write_metadata_response_topic
from dray.topics.service import NewTopic, TopicService
from tests.topics.test_service import broker, cluster_logs

SEED = 20261116
VERSIONS = range(SCHEMA.first, SCHEMA.last + 1)


def wanted(name: str, partitions: int) -> NewTopic:
    return NewTopic(name=name, partitions=partitions, replication_factor=1, configs={})


async def register(domains: Domains, broker_id: int) -> None:
    registration = RegisterBroker(
        broker_id=broker_id,
        zone="a" if broker_id < 10 else "b",
        rack="",
        listeners=(Listener(name="client", host="here", port=1),),
        started_ms=SystemClock().wall_ms(),
        build="test",
    )
    (verdict,) = await domains.catalog.propose(registration)
    assert isinstance(verdict, BrokerRegistered)


async def change(dice: random.Random, topics: TopicService, domains: list[Domains]) -> str:
    """One thing that a description may depend on."""
    name = f"topic-{dice.randrange(4)}"
    topic = topics.peek(name)
    if topic is None:
        await topics.create(wanted(name, dice.randrange(1, 5)))
        return f"made {name}"
    match dice.randrange(3):
        case 0:
            await topics.add_partitions(topic, len(topic.streams) + dice.randrange(1, 3))
            return f"more partitions of {name}"
        case 1:
            await topics.delete(topic)
            return f"deleted {name}"
        case _:
            whose = dice.randrange(len(domains))
            await register(domains[whose], 10 * whose + dice.randrange(1, 9))
            return "brokers"


async def test_kept_descriptions_equal_fresh_ones_after_every_change() -> None:
    """SV1: topics come, grow and go, and brokers change; what is kept is asked before and after."""
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    logs = await cluster_logs(3)
    async with broker(logs) as (topics, one), broker(logs, "broker-2") as (_, other):
        await register(one, 1)
        await register(other, 11)
        routing = Routing(domains=one, cluster_id="c")
        kept = Descriptions(routing)
        seen = set()
        for _ in range(150):
            what = await change(dice, topics, [one, other])
            await one.catalog.sync()
            for topic in topics.visible():
                zone = dice.choice(["", "a", "b", "nowhere"])
                other_routing = Routing(domains=one, cluster_id="c")
                fresh = describe(topic, other_routing, other_routing.view("client", zone))
                version, view = dice.choice(VERSIONS), routing.view("client", zone)
                encoded = kept.of(topic, version, view)
                assert encoded == write_metadata_response_topic(version, fresh), what
                assert kept.of(topic, version, view) is encoded, "made again for nothing"
                seen.add((topic.name, encoded))
        assert len(seen) > 300


async def test_a_response_of_kept_topics_is_the_response_of_the_topics() -> None:
    """R-074: in every version, read back by the generated reader too."""
    async with broker(await cluster_logs(3)) as (topics, domains):
        await register(domains, 1)
        routing = Routing(domains=domains, cluster_id="c")
        kept, view = Descriptions(routing), routing.view("client")
        made = [await topics.create(wanted(f"topic-{n}", n + 1)) for n in range(5)]
        for version in VERSIONS:
            write, read = SCHEMA.response.write[version], SCHEMA.response.read[version]
            plain = write(MetadataResponse(topics=[describe(topic, routing, view) for topic in made]))
            assert write(MetadataResponse(topics=[kept.of(topic, version, view) for topic in made])) == plain
            answer, _, _ = read(memoryview(b"".join(plain)), 0)
            assert [len(topic.partitions) for topic in answer.topics] == [1, 2, 3, 4, 5]


async def test_what_is_kept_is_bounded() -> None:
    async with broker(await cluster_logs(1)) as (topics, domains):
        routing = Routing(domains=domains, cluster_id="c")
        kept = Descriptions(routing, limit_bytes=5_000)
        topic = await topics.create(wanted("large", 100))
        for version in VERSIONS:
            size = len(kept.of(topic, version, routing.view("client"))) + described._ENTRY_BYTES
            assert kept.size <= 5_000 + size
