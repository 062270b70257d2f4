"""A console that people use shows the topics of a cluster, who reads them, and how far behind they are."""

import re

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dray.testing import broker
from tools.peers.kaskade import screen_of

pytestmark = pytest.mark.peers


def test_kaskade_shows_topics_groups_and_lag(tmp_path):
    with broker(tmp_path / "data") as dray:
        connected = {"bootstrap.servers": dray.bootstrap}
        admin = AdminClient(connected)
        for topic in admin.create_topics([NewTopic("orders", 3, 1), NewTopic("payments", 1, 1)]).values():
            topic.result(60)
        producer = Producer(connected)
        for number in range(10):
            producer.produce("orders", str(number), partition=0)
        assert producer.flush(60) == 0
        consumer = Consumer({**connected, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
        consumer.close()
        # Name, partitions, replicas, in sync, groups, members, records and lag; the last two as estimates.
        wanted = r"orders +3 +1 +1 +1 +0 +≈?10 +≈?6\b"
        shown = screen_of(dray.bootstrap, until=wanted)
        assert "Topics [2]" in shown, shown
        assert re.search(wanted, shown), shown
        assert re.search(r"payments +1 +1 +1 +0 +0 +≈?0 +≈?0\b", shown), shown
