"""Topics and records for tests of the HTTP API."""

import base64
import itertools

import httpx
from confluent_kafka.admin import AdminClient, NewTopic

from dray.testing.broker import TestBroker

_NUMBERS = itertools.count()


def new_topic(dray: TestBroker, partitions: int = 1, **config: str) -> str:
    """A topic that nobody else has."""
    name = f"t{next(_NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": dray.bootstrap})
    [made] = admin.create_topics([NewTopic(name, num_partitions=partitions, config=config)]).values()
    made.result(60)
    return name


def publish(api: httpx.Client, topic: str, *values: str, partition: int = 0) -> list[int]:
    """Records of one partition; their offsets."""
    records = [{"value_text": value} for value in values]
    answer = api.post(f"/topics/{topic}/partitions/{partition}/records", json={"records": records})
    assert answer.status_code == 200, answer.text
    base = int(answer.json()["base_offset"])
    return list(range(base, base + len(values)))


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
