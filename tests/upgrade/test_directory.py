"""A directory of version 1: it opens, serves as before, and an operator takes it to the newest version."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dray.machine.head import SUPPORTED
from tests.durability.daemon import Drayd

from .recordings import unpack_directory

pytestmark = pytest.mark.slow  # brokers are processes


def drayd(*arguments: object, code: int = 0) -> str:
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "drayd"), *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == code, f"{ran.stdout} {ran.stderr}"
    return ran.stdout if code == 0 else ran.stderr


def active_version(directory: Path) -> int:
    return json.loads(drayd("admin", "meta", "get", directory, "/dray/v1/machine"))["version"]


def read_all(at: str) -> dict[int, list[bytes]]:
    """The values of `orders`, by partition."""
    consumer = Consumer({"bootstrap.servers": at, "group.id": "readers", "enable.auto.commit": False})
    found: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition("orders", partition), 30)[1] for partition in found
    }
    consumer.assign([TopicPartition("orders", partition, 0) for partition in found])
    while any(len(found[partition]) < end for partition, end in ends.items()):
        message = consumer.poll(30)
        assert message is not None, found
        assert message.error() is None, message.error()
        found[message.partition()].append(message.value())
    committed = consumer.committed([TopicPartition("orders", 0), TopicPartition("orders", 2)], 30)
    assert [one.offset for one in committed] == [17, 33]
    consumer.close()
    return found


def produce(at: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": at})
    producer.produce("orders", value=value, partition=0)
    assert producer.flush(30) == 0


RECORDED = {
    partition: [f"v{round_}-{k}".encode() for round_ in range(3) for k in range(60) if k % 3 == partition]
    for partition in range(3)
}


def test_it_serves_what_it_held_before_and_after_the_operators_step(tmp_path):
    """M5, M12, ND2: records, committed offsets and the active version."""
    directory = unpack_directory(tmp_path)
    with Drayd(directory) as daemon:
        assert read_all(daemon.bootstrap) == RECORDED
        produce(daemon.bootstrap, "under version 1")
        assert active_version(directory) == 1
        told = drayd("admin", "meta", "activate", directory, "--yes")
        assert told.strip() == f"domain 0: version {SUPPORTED} is active (was 1)"
        produce(daemon.bootstrap, f"under version {SUPPORTED}")
    assert active_version(directory) == SUPPORTED
    with Drayd(directory) as daemon:
        found = read_all(daemon.bootstrap)
    assert found[0][-2:] == [b"under version 1", f"under version {SUPPORTED}".encode()]
    assert "the log is whole" in drayd("admin", "meta", "verify", directory)


def test_the_step_needs_no_running_broker_and_may_be_repeated(tmp_path):
    """M12"""
    directory = unpack_directory(tmp_path)
    assert "was 1" in drayd("admin", "meta", "activate", directory, "--yes")
    assert f"was {SUPPORTED}" in drayd("admin", "meta", "activate", directory, "--yes")
    assert "newer version is active" in drayd("admin", "meta", "activate", directory, 1, "--yes", code=1)
    assert "does not know" in drayd("admin", "meta", "activate", directory, SUPPORTED + 1, "--yes", code=1)
    with Drayd(directory) as daemon:
        assert read_all(daemon.bootstrap) == RECORDED


async def test_a_new_directory_has_the_newest_version(tmp_path):
    with Drayd(tmp_path / "dray-data") as daemon:
        assert daemon.bootstrap
        assert await asyncio.to_thread(active_version, tmp_path / "dray-data") == SUPPORTED
