"""Configs through the admin clients of Python."""

import kafka
import kafka.admin
import kafka.errors
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)


def test_librdkafka_describes_and_alters_configs(bootstrap: str, name: str) -> None:
    """R-196, K-062."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config={"segment.ms": "5"})])[name].result(20)

    def told() -> dict[str, tuple[str, int]]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        found = admin.describe_configs([resource])[resource].result(20)
        assert len(found) == 33
        return {key: (one.value, one.source) for key, one in found.items() if not one.is_default}

    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert told() == {"segment.ms": ("5", own)}

    def alter(*entries: tuple[str, str | None, AlterConfigOpType]) -> None:
        changes = [ConfigEntry(key, value, incremental_operation=how) for key, value, how in entries]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        admin.incremental_alter_configs([resource])[resource].result(20)

    alter(("retention.ms", "7", AlterConfigOpType.SET), ("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    alter(("segment.ms", None, AlterConfigOpType.DELETE))
    assert told() == {"retention.ms": ("7", own), "cleanup.policy": ("delete,compact", own)}
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        alter(("retention.ms", "soon", AlterConfigOpType.SET))
    whole = ConfigResource(ResourceType.TOPIC, name, set_config={"segment.ms": "9"})
    admin.alter_configs([whole])[whole].result(20)
    assert told() == {"segment.ms": ("9", own)}


def test_librdkafka_describes_a_broker(bootstrap: str) -> None:
    """R-196."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [number] = admin.list_topics(timeout=20).brokers
    resource = ConfigResource(ResourceType.BROKER, str(number))
    found = admin.describe_configs([resource])[resource].result(20)
    assert (found["broker.id"].value, found["broker.id"].is_read_only) == (str(number), True)


def test_kafka_python_describes_and_alters_configs(bootstrap: str, name: str) -> None:
    """R-196, K-062."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([kafka.admin.NewTopic(name, 1, 1)])
        kind = kafka.admin.ConfigResourceType.TOPIC
        changed = kafka.admin.ConfigResource(kind, name, configs={"retention.ms": "7"})
        admin.alter_configs([changed])
        found = admin.describe_configs([kafka.admin.ConfigResource(kind, name)])
        assert "'retention.ms'" in str(found)
        assert "'7'" in str(found)
    finally:
        admin.close()


async def test_aiokafka_describes_and_alters_configs(bootstrap: str, name: str) -> None:
    """R-196, K-062."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([AioTopic(name, 1, 1)])
        await admin.alter_configs([AioResource(AioType.TOPIC, name, configs={"retention.ms": "7"})])
        [answer] = await admin.describe_configs([AioResource(AioType.TOPIC, name)])
        [(code, _, _, _, configs)] = answer.resources
        assert code == 0
        assert {row[0]: row[1] for row in configs}["retention.ms"] == "7"
    finally:
        await admin.close()
