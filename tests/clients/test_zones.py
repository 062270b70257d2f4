"""Clients that say where they are: told of the brokers of their zone, and sent there.

The brokers enforce it here (`routing.enforce_owner`), so each client that gets
through has gone to whom it was told of. That any broker serves without it is
what all other tests of several brokers see.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from dray.servers.kafka.messages.describe_cluster import DescribeClusterRequest
from dray.servers.kafka.messages.describe_groups import DescribeGroupsRequest
from dray.servers.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from dray.servers.kafka.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest
from dray.servers.kafka.messages.list_groups import ListGroupsRequest
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.servers.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from dray.servers.kafka.messages.produce import SCHEMA as PRODUCE_SCHEMA
from tests.golden.asking import FETCH, FIND_COORDINATOR, PRODUCE, batch, fetch_request, produce_request

from .grouped import PATIENCE_S, eventually
from .member import JOIN_MS
from .zoned import Zoned, ZonedAsker

pytestmark = pytest.mark.slow

PARTITIONS = 8
NOT_LEADER, NOT_COORDINATOR = 6, 16
OF_ZONE = {"zone_id=a,team=x": {1, 2}, "zone_id=b": {3}, "zone_id=c": {1, 2, 3}, "": {1, 2, 3}, None: {1, 2, 3}}
_names = itertools.count()


@pytest.fixture(scope="module")
def zoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoned]:
    """Brokers 1 and 2 in zone a, broker 3 in zone b."""
    running = Zoned(tmp_path_factory.mktemp("zoned"), "a", "a", "b", routing__enforce_owner="true")
    try:
        yield running
    finally:
        running.close()


@asynccontextmanager
async def asking(zoned: Zoned, number: int, client_id: str | None = None) -> AsyncIterator[ZonedAsker]:
    async with ZonedAsker(zoned.at(number), client_id) as ask:
        yield ask


@pytest.fixture
async def topic(zoned: Zoned) -> str:
    name = f"zoned-{next(_names)}"
    async with asking(zoned, 1) as ask:
        await ask.create(name, PARTITIONS)
    return name


async def leaders(ask: ZonedAsker, topic: str) -> list[int]:
    (found,) = (await ask.metadata(topic)).topics
    return [partition.leader_id for partition in found.partitions]


async def coordinator(ask: ZonedAsker, group: str) -> int:
    (found,) = (await ask.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[group]))).coordinators
    return found.node_id


async def coordinated_by(ask: ZonedAsker, number: int) -> str:
    """A group that clients of this connection are sent to a broker for."""
    for name in (f"far-{n}" for n in itertools.count()):
        if await coordinator(ask, name) == number:
            return name
    raise AssertionError


@pytest.mark.parametrize("client_id", OF_ZONE)
async def test_every_answer_names_brokers_of_the_zone_alone(zoned: Zoned, topic: str, client_id: str | None) -> None:
    """R-066, R-067, R-068, R-072: from whichever broker; the leader is in the list, and its epoch is 0 in all zones."""
    wanted = OF_ZONE[client_id]
    answers = []
    for number in zoned.brokers:
        async with asking(zoned, number, client_id) as ask:
            told = await ask.metadata(topic)
            assert {one.node_id for one in told.brokers} == wanted
            assert told.controller_id == min(wanted)
            partitions = told.topics[0].partitions
            assert {one.leader_id for one in partitions} == wanted, "each leads some"
            assert all(list(one.replica_nodes) == list(one.isr_nodes) == [one.leader_id] for one in partitions)
            assert {one.leader_epoch for one in partitions} == {0}
            cluster = await ask.call(60, 2, DescribeClusterRequest())
            assert {one.broker_id for one in cluster.brokers} == wanted
            request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
            (described,) = (await ask.call(75, 0, request)).topics
            assert [one.leader_id for one in described.partitions] == [one.leader_id for one in partitions]
            coordinators = [await coordinator(ask, f"g{n}") for n in range(20)]
            assert set(coordinators) == wanted
            answers.append(([one.leader_id for one in partitions], coordinators))
    assert answers[0] == answers[1] == answers[2], "all brokers answer alike"


async def test_brokers_of_a_zone_together_tell_of_everything_once(zoned: Zoned, topic: str) -> None:
    """Tools ask all brokers that they are told of, and put together what they hear."""
    for client_id, numbers in OF_ZONE.items():
        groups: list[str] = []
        sizes: list[tuple[str, int]] = []
        for number in numbers:
            async with asking(zoned, number, client_id) as ask:
                if number == await coordinator(ask, "told-once"):
                    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
                    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
                    commit = OffsetCommitRequest(group_id="told-once", generation_id_or_member_epoch=-1, topics=topics)
                    (answer,) = (await ask.call(8, 8, commit)).topics
                    assert answer.partitions[0].error_code == 0
        for number in numbers:
            async with asking(zoned, number, client_id) as ask:
                groups += [one.group_id for one in (await ask.call(16, 4, ListGroupsRequest())).groups]
                (place,) = (await ask.call(35, 4, DescribeLogDirsRequest(topics=None))).results
                sizes += [(one.name, part.partition_index) for one in place.topics for part in one.partitions]
        assert groups.count("told-once") == 1
        assert sorted(part for name, part in sizes if name == topic) == list(range(PARTITIONS))


ODD_IDS = {"long": "zone_id=" + "x" * 32_000, "bare": ",=,==,zone_id", "odd": "zone_id=\u00e9\0,", "full": "a" * 32_767}


@pytest.mark.parametrize("client_id", ODD_IDS.values(), ids=ODD_IDS)
async def test_no_client_id_fails_a_request(zoned: Zoned, client_id: str) -> None:
    """R-065"""
    async with asking(zoned, 1, client_id) as ask:
        assert {one.node_id for one in (await ask.metadata()).brokers} == {1, 2, 3}


async def test_who_leads_not_sends_on_to_who_does(zoned: Zoned, topic: str) -> None:
    """R-071, SV4: 6 with the leader where the version has a place for it; what is led here is served all the same."""
    async with asking(zoned, 1, "zone_id=a") as ask:
        led = await leaders(ask, topic)
        mine, other = led.index(1), led.index(2)
        (answered,) = (await ask.call(PRODUCE, 10, produce_request(topic, {mine: batch(), other: batch()}))).responses
        by_number = {one.index: one for one in answered.partition_responses}
        assert (by_number[mine].error_code, by_number[mine].base_offset) == (0, 0)
        assert by_number[other].error_code == NOT_LEADER
        assert (by_number[other].current_leader.leader_id, by_number[other].current_leader.leader_epoch) == (2, 0)
        whole = await ask.call(PRODUCE, 10, produce_request(topic, {other: batch()}))
        host, port = zoned.at(2).rsplit(":", 1)
        assert [(one.node_id, one.host, one.port) for one in whole.node_endpoints] == [(2, host, int(port))]
        assert (await ask.produce(topic, batch(), partition=other, version=9)).error_code == NOT_LEADER
        assert (await ask.offset_at(topic, -1, partition=other)).error_code == NOT_LEADER
        assert (await ask.offset_at(topic, -1, partition=mine)).offset == 1
        fetched = await ask.fetch(topic, partition=other, version=12, max_wait_ms=60_000, min_bytes=1)
        assert (fetched.error_code, fetched.current_leader.leader_id) == (NOT_LEADER, 2)
        assert (await ask.fetch(topic, partition=mine, version=12)).high_watermark == 1
    async with asking(zoned, 2, "zone_id=a") as ask:
        assert (await ask.offset_at(topic, -1, partition=other)).offset == 0, "what was refused did not happen"
        assert (await ask.produce(topic, batch(), partition=other)).base_offset == 0
    async with asking(zoned, 3, "zone_id=b") as ask:
        for partition in range(PARTITIONS):
            assert (await ask.produce(topic, batch(), partition=partition)).error_code == 0, "it leads all of its zone"


async def test_who_wants_no_answer_is_served(zoned: Zoned, topic: str) -> None:
    """SV4: whom nobody answers cannot be sent anywhere."""
    async with asking(zoned, 1, "zone_id=b") as ask:
        ask.send(PRODUCE_SCHEMA, 9, produce_request(topic, {0: batch()}, acks=0))
        assert (await ask.metadata(topic)).topics[0].error_code == 0, "the connection lives"
    async with asking(zoned, 3, "zone_id=b") as ask, asyncio.timeout(PATIENCE_S):
        while (await ask.offset_at(topic, -1)).offset != 1:
            await asyncio.sleep(0.05)


async def test_who_coordinates_not_says_so(zoned: Zoned) -> None:
    """R-071: 16 for calls about a group, in the place where the API has it."""
    async with asking(zoned, 1, "zone_id=a") as one, asking(zoned, 2, "zone_id=a") as two:
        asks = {1: one, 2: two}
        group = await coordinated_by(one, 2)
        codes = []
        for number in (1, 2):
            ask = asks[number]
            codes.append((await ask.call(12, 4, HeartbeatRequest(group_id=group, member_id="m"))).error_code)
            (described,) = (await ask.call(15, 5, DescribeGroupsRequest(groups=[group]))).groups
            codes.append(described.error_code)
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
            (found,) = (await ask.call(9, 8, request)).groups
            codes.append(found.error_code)
        assert codes == [NOT_COORDINATOR] * 3 + [25, 0, 0]


async def test_a_reader_that_says_its_rack_is_sent_to_a_broker_there(zoned: Zoned, topic: str) -> None:
    """KIP-392: the answer of any other broker names one of the rack, and that one serves."""
    async with asking(zoned, 3, "zone_id=b") as ask:
        assert (await ask.produce(topic, batch(b"1"))).error_code == 0
    async with asking(zoned, 1) as ask:
        answer = await ask.call(FETCH, 12, fetch_request([(topic, 0, 0)], rack_id="b"))
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code, partition.preferred_read_replica) == (0, 3)
    async with asking(zoned, 3) as ask:
        answer = await ask.call(FETCH, 12, fetch_request([(topic, 0, 0)], rack_id="b"))
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code, partition.preferred_read_replica, partition.high_watermark) == (0, -1, 1)
    reader = Consumer({"bootstrap.servers": zoned.at(1), "group.id": "racked", "client.rack": "b",
                       "auto.offset.reset": "earliest"})  # fmt: skip
    reader.subscribe([topic])
    assert await asyncio.to_thread(read, reader, 1) == [b"1"]
    await asyncio.to_thread(reader.close)


def read(reader: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def enough() -> bool:
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found) >= count

    eventually(f"{count} records are read", enough)
    return sorted(found)


VALUES = [b"%03d" % n for n in range(100)]


def librdkafka_goes_round(bootstrap: str, topic: str, client_id: str) -> list[bytes]:
    common = {"bootstrap.servers": bootstrap, "client.id": client_id}
    producer = Producer({**common, "enable.idempotence": True})
    for value in VALUES:
        producer.produce(topic, value, key=value)
    assert producer.flush(PATIENCE_S) == 0
    reader = Consumer({**common, "group.id": f"{topic}-{client_id}", "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    found = read(reader, len(VALUES))
    reader.close()
    return found


def kafka_python_goes_round(bootstrap: str, topic: str, client_id: str) -> list[bytes]:
    with closing(KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id)) as producer:
        sent = [producer.send(topic, value, key=value) for value in VALUES]
        producer.flush(PATIENCE_S)
        for one in sent:
            one.get(PATIENCE_S)  # raises what became of it
    found: list[bytes] = []
    with closing(
        KafkaConsumer(
            topic, bootstrap_servers=bootstrap, client_id=client_id, group_id=f"{topic}-{client_id}",
            auto_offset_reset="earliest",
        )
    ) as reader:  # fmt: skip

        def enough() -> bool:
            found.extend(record.value for records in reader.poll(JOIN_MS).values() for record in records)
            return len(found) >= len(VALUES)

        try:
            eventually("all is read", enough)
        except AssertionError as error:
            missing = sorted(set(VALUES) - set(found))
            raise AssertionError(f"{error}; missing {missing}, assigned {reader.assignment()}") from error
    return sorted(found)


def aiokafka_goes_round(bootstrap: str, topic: str, client_id: str) -> list[bytes]:
    async def go() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=client_id) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, key=value)
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, client_id=client_id, group_id=f"{topic}-{client_id}",
            auto_offset_reset="earliest",
        ) as reader:  # fmt: skip
            async with asyncio.timeout(PATIENCE_S):
                return sorted([(await reader.getone()).value for _ in VALUES])

    return asyncio.run(go())


@pytest.mark.parametrize("go_round", [librdkafka_goes_round, kafka_python_goes_round, aiokafka_goes_round])
@pytest.mark.parametrize(("client_id", "at", "others"), [("zone_id=a", 1, [3]), ("app,ws_az=b", 3, [1, 2])])
def test_a_client_of_a_zone_opens_no_connection_to_another(
    zoned: Zoned, topic: str, go_round, client_id: str, at: int, others: list[int]
) -> None:
    """R-066: it produces and consumes through the brokers of its zone alone."""
    eventually("nobody is there", lambda: not any(zoned.connections(number) for number in others))
    assert go_round(zoned.at(at), topic, client_id) == VALUES
    assert [zoned.connections(number) for number in others] == [0] * len(others)


def test_a_group_has_members_in_several_zones(zoned: Zoned, topic: str) -> None:
    """R-068: they ask different brokers as their coordinator, and share the partitions."""
    members = [
        Consumer({"bootstrap.servers": zoned.at(1), "client.id": client_id, "group.id": "spread",
                  "auto.offset.reset": "earliest"})
        for client_id in ("zone_id=a", "zone_id=b", "elsewhere")
    ]  # fmt: skip
    for member in members:
        member.subscribe([topic])
    seen: set[bytes] = set()

    def shared() -> bool:
        for member in members:
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                seen.add(message.value())
        parts = [{one.partition for one in member.assignment()} for member in members]
        return all(parts) and sum(map(len, parts)) == PARTITIONS == len(set().union(*parts))

    eventually("three members share the partitions", shared)
    producer = Producer({"bootstrap.servers": zoned.at(3), "client.id": "zone_id=b"})
    for n, value in enumerate(VALUES):
        producer.produce(topic, value, partition=n % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    eventually("all is read", lambda: shared() and seen == set(VALUES))
    for member in members:
        member.close()


def test_clients_of_a_zone_whose_last_broker_stops_go_to_the_others_and_come_back(zoned: Zoned, topic: str) -> None:
    """R-067, R-071: nothing fails, and nothing that was acknowledged is lost."""
    failed: list[object] = []
    acked: list[bytes] = []
    producer = Producer({"bootstrap.servers": f"{zoned.at(1)},{zoned.at(3)}", "client.id": "zone_id=b"})
    numbers = itertools.count()

    def go_on(count: int = 20) -> None:
        def told(error, message) -> None:
            failed.extend([error] if error else [])
            acked.append(message.value())

        for _ in range(count):
            producer.produce(topic, b"%06d" % next(numbers), on_delivery=told)
        assert producer.flush(PATIENCE_S) == 0

    go_on()
    zoned.stop(3)
    go_on()
    zoned.start(3)
    go_on()
    assert not failed
    reader = Consumer({"bootstrap.servers": zoned.at(1), "group.id": "after", "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    assert read(reader, len(acked)) == sorted(acked)
    reader.close()
