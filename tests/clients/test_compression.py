"""Whatever is acknowledged, however it is compressed, is read to the last record."""

import asyncio
import json
import subprocess
import sys

import pytest

from dray.testing import broker
from tests.clients.forms import COUNT, offer_all

READER = """
import json, sys
from confluent_kafka import Consumer, TopicPartition
bootstrap, topic, partitions, count = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
found = {number: [] for number in partitions}
while sum(map(len, found.values())) < count * len(partitions):
    message = consumer.poll(30)
    assert message is not None, f"nothing more came, {found}"
    assert not message.error(), f"{message.error()}, {found}"
    found[message.partition()].append(message.offset())
assert all(offsets == list(range(count)) for offsets in found.values()), found
consumer.close()
"""


@pytest.mark.slow
async def test_librdkafka_reads_every_form_that_is_taken() -> None:
    """K-022: in a process of its own, for there are forms that abort it."""
    with broker(topics__auto_create="false") as dray:
        taken = await offer_all(dray.bootstrap, "forms")
        print(list(taken))
        assert {"GZIP: ours", "SNAPPY: ours", "xerial: ours", "LZ4: ours", "ZSTD: ours", "ZSTD: two"} <= taken.keys()
        command = [sys.executable, "-c", READER, dray.bootstrap, "forms", json.dumps([*taken.values()]), str(COUNT)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
