"""More partitions and fewer records, through the admin clients of Python."""

import kafka
import kafka.admin
import pytest
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.clients.kinds import confluent_read, confluent_write
from tests.clients.test_matrix import RECORDS


def test_librdkafka_adds_partitions(bootstrap: str, name: str) -> None:
    """R-194."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    admin.create_partitions([NewPartitions(name, 4)])[name].result(20)
    found = admin.describe_topics(TopicCollection([name]))[name].result(20)
    assert len(found.partitions) == 4
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions(name, 3)])[name].result(20)


def test_librdkafka_deletes_records(bootstrap: str, name: str) -> None:
    """E-7: what is left is read from its first record on."""
    confluent_write(bootstrap, name, RECORDS)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(name, 0, 5)
    [deleted] = admin.delete_records([place]).values()
    assert deleted.result(20).low_watermark == 5
    [earliest] = admin.list_offsets({place: OffsetSpec.earliest()}).values()
    assert earliest.result(20).offset == 5
    assert len(confluent_read(bootstrap, name, 5, len(RECORDS) - 5)) == len(RECORDS) - 5


def test_librdkafka_describes_the_cluster(bootstrap: str) -> None:
    """R-198."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_cluster().result(20)
    assert (len(found.nodes), found.controller.id) == (1, found.nodes[0].id)


def test_kafka_python_adds_partitions_deletes_records_and_asks_for_sizes(bootstrap: str, name: str) -> None:
    """R-194, R-198, E-7, E-9."""
    confluent_write(bootstrap, name, RECORDS)
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_partitions({name: kafka.admin.NewPartitions(total_count=3)})
        assert len(admin.describe_topics([name])[0]["partitions"]) == 3
        place = kafka.TopicPartition(name, 0)
        deleted = admin.delete_records({place: 5})
        assert "5" in str(deleted)
        assert admin.describe_cluster()["brokers"]
        assert name in str(admin.describe_log_dirs())
    finally:
        admin.close()
