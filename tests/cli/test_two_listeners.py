"""Two listeners of each broker: who comes in by one is told the addresses of that one."""

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.cli.daemon import serving

LIMIT_S = 60


def told(bootstrap: str) -> set[str]:
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=LIMIT_S).brokers.values()
    return {f"{broker.host}:{broker.port}" for broker in brokers}


@pytest.mark.slow
def test_clients_of_each_listener_are_told_its_addresses_and_find_the_same_records(tmp_path):
    """R-065: inside and outside; produced by one and consumed by the other"""
    anywhere = ("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "", "--set", "topics.auto_create=true")
    outside = ("--set", "kafka.outside_listen=127.0.0.1:0", "--set", "kafka.outside_advertise=localhost:0")
    with serving("--data", tmp_path, "--brokers", "2", *anywhere, *outside) as drayd:
        words = drayd.told
        inside, outer = set(words["kafka"].split(",")), set(words["outside"].split(","))
        assert len(inside) == len(outer) == 2
        assert all(address.startswith("localhost:") for address in outer)
        assert told(words["kafka"]) == inside
        assert told(words["outside"]) == outer
        producer = Producer({"bootstrap.servers": words["outside"]})
        producer.produce("orders", b"from outside")
        assert producer.flush(LIMIT_S) == 0
        consumer = Consumer(
            {"bootstrap.servers": words["kafka"], "group.id": "inside", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        assert consumer.consume(1, LIMIT_S)[0].value() == b"from outside"
        consumer.close()
        admin = AdminClient({"bootstrap.servers": words["outside"]})
        [described] = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
        advertised = described.result(LIMIT_S)["advertised.listeners"].value
        names = dict(one.split("://") for one in advertised.split(","))
        assert names["PLAINTEXT"] in inside
        assert names["OUTSIDE"] in outer
