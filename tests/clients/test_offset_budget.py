"""Committed offsets beyond their budget, as a client meets it."""

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dray.testing import broker


@pytest.mark.slow
def test_a_client_is_told_at_once_that_its_new_offset_is_not_kept(tmp_path) -> None:
    """RT21: it is an error of the commit, and not one that a client retries for ever; known groups go on."""
    with broker(tmp_path, wal__index_budget="40KB") as running:
        bootstrap = {"bootstrap.servers": running.bootstrap}
        admin = AdminClient(bootstrap)
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)

        def commit(group: str, offset: int) -> None:
            consumer = confluent_kafka.Consumer({**bootstrap, "group.id": group, "enable.auto.commit": False})
            try:
                place = confluent_kafka.TopicPartition("orders", 0, offset)
                consumer.commit(offsets=[place], asynchronous=False)
            finally:
                consumer.close()

        refused = None
        for number in range(40):
            try:
                commit(f"made-up-{number}", 1)
            except confluent_kafka.KafkaException as error:
                refused = error.args[0].code()
                break
        assert refused == confluent_kafka.KafkaError.INVALID_COMMIT_OFFSET_SIZE
        commit("made-up-0", 2)
