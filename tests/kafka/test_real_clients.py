"""Real clients negotiate with the server: librdkafka, kafka-python and aiokafka, on their defaults."""

import asyncio

import pytest
from aiokafka.client import AIOKafkaClient
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from dray.servers.kafka.error_codes import ErrorCode, Family
from dray.servers.kafka.handler import Context
from dray.servers.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.servers.kafka.support import Api
from tests.kafka.wire import api_row, running


class OneTopic:
    """Metadata of one broker with one topic; keeps what clients said they are."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: set[tuple[str, int]] = set()

    async def handle(self, request: MetadataRequest, context: Context) -> MetadataResponse:
        self.seen.add((context.peer.software_name, context.version))
        partition = MetadataResponsePartition(leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])
        topic = MetadataResponseTopic(name="orders", topic_id=bytes(range(1, 17)), partitions=[partition])
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="test",
            controller_id=1,
            topics=[topic],
        )

    def refuse(self, request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
        return MetadataResponse(error_code=code)

    def row(self) -> Api:
        return api_row(3, "Metadata", (0, 13), 9, self.handle, self.refuse, family=Family.DATA)


def topics_by_librdkafka(port: int) -> list[str]:
    return sorted(AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=10).topics)


def topics_by_kafka_python(port: int) -> list[str]:
    client = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
    try:
        return sorted(client.list_topics())
    finally:
        client.close()


@pytest.mark.parametrize(
    ("client", "software", "version"),
    [(topics_by_librdkafka, "confluent-kafka-python", 13), (topics_by_kafka_python, "kafka-python", 13)],
    ids=["librdkafka", "kafka-python"],
)
async def test_a_client_finds_its_topics(client, software: str, version: int) -> None:
    """R-082, R-074: librdkafka's surplus bytes behind Metadata v13 are ignored."""
    one = OneTopic()
    async with running(one.row()) as run:
        one.port = run.port
        assert await asyncio.to_thread(client, run.port) == ["orders"]
    assert (software, version) in one.seen


async def test_aiokafka_finds_its_topics_without_naming_itself() -> None:
    one = OneTopic()
    async with running(one.row()) as run:
        one.port = run.port
        client = AIOKafkaClient(bootstrap_servers=f"127.0.0.1:{run.port}")
        await client.bootstrap()
        assert client.cluster.topics() == {"orders"}
        await client.close()
