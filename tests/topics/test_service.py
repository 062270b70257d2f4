"""Topics are made and deleted by sagas that any replica can finish."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from dray.clock import SystemClock
from dray.ids import SystemEntropy
from dray.log.memory import MemoryLog
from dray.machine.head import Genesis, founding
from dray.machine.names import TopicId, domain_of
from dray.machine.topics import CreateTopic, DeleteTopic, TopicState
from dray.produce.rules import RuleBook
from dray.replica.domains import Domains
from dray.retention.floors import ONLY_COMPACTS, read_rules
from dray.topics.errors import BadPartitions, BadTopicName, TopicExists, UnknownTopic
from dray.topics.service import NewTopic, TopicService
from tests.replica.domain import CLUSTER, replica_on


async def cluster_logs(data_domains: int, version: int = 1) -> dict[int, MemoryLog]:
    logs = {}
    for domain in range(1 if data_domains == 1 else data_domains + 1):
        genesis = Genesis(
            cluster_id=CLUSTER, log_id=bytes([domain]) * 8, domain=domain, domains=data_domains, version=version
        )
        logs[domain] = MemoryLog()
        await logs[domain].append(founding(genesis, 10**12))
    return logs


@asynccontextmanager
async def broker(logs: dict[int, MemoryLog], name: str = "broker-1"):
    async with AsyncExitStack() as stack:
        replicas = {}
        for domain, log in logs.items():
            replicas[domain] = await stack.enter_async_context(replica_on(log.handle(), name).running())
        domains = Domains(replicas)
        yield TopicService(domains=domains, entropy=SystemEntropy(), clock=SystemClock()), domains


def wanted(name: str = "orders", partitions: int = 5) -> NewTopic:
    return NewTopic(name=name, partitions=partitions, replication_factor=1, configs={"retention.ms": "1000"})


@pytest.mark.parametrize("data_domains", [1, 4])
async def test_a_new_topic_is_visible_with_all_its_partitions_open(data_domains):
    """R-191, T5: and its streams spread over the data domains (R-095)."""
    async with broker(await cluster_logs(data_domains)) as (topics, domains):
        topic = await topics.create(wanted(partitions=8))
        assert topic.visible == 8
        assert topic.configs == {"retention.ms": "1000"}
        for stream in topic.streams:
            assert domains.of(stream).machine.streams.find(stream).end == 0
        spread = {domain_of(stream) for stream in topic.streams}
        assert spread == ({0} if data_domains == 1 else set(range(1, data_domains + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("data_domains", [1, 4])
async def test_a_topic_of_many_partitions_is_made_grown_and_deleted_in_slices(data_domains):
    """R-191, T5, Q8: since version 2."""
    logs = await cluster_logs(data_domains, version=2)
    async with broker(logs) as (topics, domains):
        topic = await topics.create(wanted(partitions=3_500))
        assert (topic.visible, len(set(topic.streams))) == (3_500, 3_500)
        await topics.add_partitions(topic, 6_001)
        assert topic.visible == 6_001
        assert all(domains.of(stream).machine.streams.is_open(stream) for stream in topic.streams)
        await topics.delete(topic)
        assert not any(domains.of(stream).machine.streams.is_open(stream) for stream in topic.streams)
        with pytest.raises(BadPartitions, match="most=10000"):
            await topics.create(wanted(partitions=10_001))


async def test_the_rest_of_many_partitions_is_given_by_whoever_goes_on():
    """T5: the broker that began it is gone after the first slice."""
    logs = await cluster_logs(1, version=2)
    async with broker(logs, "first") as (_, domains):
        begun = CreateTopic(topic_id=TopicId(b"t" * 16), name="many", partitions=1_000, total=4_000)
        await domains.catalog.propose(begun)
    async with broker(logs, "second") as (topics, domains):
        assert topics.peek("many") is None
        await topics.finish(TopicId(b"t" * 16))
        assert domains.catalog.machine.topics.named("many").visible == 4_000


async def test_under_version_1_a_topic_has_what_one_command_gives():
    """M10, Q8"""
    async with broker(await cluster_logs(1)) as (topics, _):
        with pytest.raises(BadPartitions, match="most=3000"):
            await topics.create(wanted(partitions=3_001))
        assert (await topics.create(wanted(partitions=3_000))).visible == 3_000


async def test_of_two_brokers_that_create_one_name_at_once_one_wins():
    """R-191: one success, one refusal, one topic id."""
    logs = await cluster_logs(2)
    async with broker(logs, "broker-1") as (one, _), broker(logs, "broker-2") as (two, _):
        answers = await asyncio.gather(one.create(wanted()), two.create(wanted()), return_exceptions=True)
        made = [answer for answer in answers if not isinstance(answer, Exception)]
        refused = [answer for answer in answers if isinstance(answer, TopicExists)]
        assert (len(made), len(refused)) == (1, 1)
        for service in (one, two):
            assert (await service.find("orders")).id == made[0].id


async def test_a_topic_made_through_another_broker_is_found_at_once():
    """TS1, R-012: unknown is never said from memory."""
    logs = await cluster_logs(1)
    async with broker(logs, "broker-1") as (one, _), broker(logs, "broker-2") as (two, _):
        for number in range(20):
            topic = await one.create(wanted(f"t{number}", 1))
            assert (await two.find(f"t{number}")).id == topic.id
            assert (await two.find_id(topic.id)).name == f"t{number}"


async def test_a_creation_that_stopped_halfway_is_invisible_and_any_broker_finishes_it():
    """R-191: crash after CreateTopic."""
    logs = await cluster_logs(3)
    async with broker(logs, "broker-1") as (_, domains):
        await domains.catalog.propose(CreateTopic(topic_id=b"i" * 16, name="orders", partitions=6))
    async with broker(logs, "broker-2") as (topics, domains):
        with pytest.raises(UnknownTopic):
            await topics.find("orders")
        assert topics.visible() == []
        with pytest.raises(TopicExists):
            await topics.create(wanted())
        await topics.finish(b"i" * 16)
        assert (await topics.find("orders")).visible == 6


async def test_a_deletion_that_stopped_halfway_is_finished_by_any_broker():
    """R-193: crash after DeleteTopic; the name is free at once."""
    logs = await cluster_logs(3)
    async with broker(logs, "broker-1") as (topics, domains):
        old = await topics.create(wanted())
        streams = list(old.streams)
        await domains.catalog.propose(DeleteTopic(topic_id=old.id))
    async with broker(logs, "broker-2") as (topics, domains):
        new = await topics.create(wanted())
        assert new.id != old.id
        assert not set(new.streams) & set(streams)
        await topics.finish(old.id)
        assert domains.catalog.machine.topics.find(old.id) is None
        for stream in streams:
            assert domains.of(stream).machine.streams.is_closed(stream)


async def test_after_delete_returns_every_stream_is_closed():
    """TS2."""
    async with broker(await cluster_logs(2)) as (topics, domains):
        topic = await topics.create(wanted())
        await topics.delete(topic)
        for stream in topic.streams:
            assert domains.of(stream).machine.streams.is_closed(stream)
        with pytest.raises(UnknownTopic):
            await topics.find("orders")
        with pytest.raises(UnknownTopic):
            await topics.delete(topic)


async def test_partitions_are_added_and_old_streams_stay():
    """R-194."""
    async with broker(await cluster_logs(2)) as (topics, _):
        topic = await topics.create(wanted(partitions=2))
        before = list(topic.streams)
        await topics.add_partitions(topic, 5)
        after = await topics.find("orders")
        assert after.state is TopicState.READY
        assert after.visible == 5
        assert after.streams[:2] == before
        with pytest.raises(BadPartitions):
            await topics.add_partitions(after, 5)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250])
async def test_a_name_that_kafka_would_refuse_is_refused(name):
    async with broker(await cluster_logs(1)) as (topics, _):
        with pytest.raises(BadTopicName):
            await topics.create(wanted(name))


async def test_a_topic_that_only_compacts_takes_keyed_records_and_keeps_them():
    """R-197, ADR-0145."""
    logs = await cluster_logs(1)
    async with broker(logs, "broker-1") as (topics, _):
        await topics.create(
            NewTopic(name="kept", partitions=2, replication_factor=1, configs={"cleanup.policy": "compact"})
        )
    async with broker(logs, "broker-1") as (topics, _):
        found = await topics.find("kept")
        assert found.visible == 2
        assert RuleBook().of(found).batch.needs_keys
        assert read_rules(found) == ONLY_COMPACTS
