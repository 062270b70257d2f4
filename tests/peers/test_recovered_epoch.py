"""The Java consumer and a log that was recovered: it notices the new leader epoch, and goes on where it was."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from confluent_kafka import Consumer, TopicPartition

from dray.clock import SystemClock
from dray.testing import broker
from tests.durability.daemon import free_port
from tests.node.test_recovered_epoch import LIMIT_S, renew, write
from tools.peers.java import java_program

pytestmark = pytest.mark.peers

RESUME = Path(__file__).parent / "java" / "Resume.java"


def resume(address: str, commit: int, total: int) -> list[tuple[int, int]]:
    """(offset, leader epoch) of each record that the consumer got."""
    lines = java_program(RESUME, address, "orders", str(commit), str(total)).splitlines()
    return [(one["offset"], one["epoch"]) for one in map(json.loads, lines)]


def wait_for_commit(address: str, offset: int) -> None:
    clock = SystemClock()
    deadline_ns = clock.boot_ns() + LIMIT_S * 1_000_000_000
    with closing(Consumer({"bootstrap.servers": address, "group.id": "readers"})) as asker:
        while asker.committed([TopicPartition("orders", 0)], timeout=LIMIT_S)[0].offset != offset:
            assert clock.boot_ns() < deadline_ns, "nothing was committed"


def test_java_consumers_on_defaults_go_on_where_they_were(tmp_path):
    """RG1: one that lived through the recovery, and one that starts from what was committed before it."""
    address = f"127.0.0.1:{free_port()}"
    with ThreadPoolExecutor(1) as pool:
        with broker(tmp_path, kafka__listen=address):
            write(address, "a", "b")
            living = pool.submit(resume, address, 2, 4)
            wait_for_commit(address, 2)
        assert renew(tmp_path) == 1
        with broker(tmp_path, kafka__listen=address):
            write(address, "c", "d")
            assert living.result(timeout=2 * LIMIT_S) == [(0, 0), (1, 0), (2, 1), (3, 1)]
            assert resume(address, 0, 2) == [(2, 1), (3, 1)]


def test_a_java_consumer_goes_back_to_where_records_were_lost(tmp_path):
    """K-063, RN2: on its defaults."""
    address, data, copy = f"127.0.0.1:{free_port()}", tmp_path / "data", tmp_path / "copy"
    with ThreadPoolExecutor(1) as pool:
        with broker(data, kafka__listen=address):
            write(address, "a", "b")
        copytree(data, copy)
        with broker(data, kafka__listen=address):
            write(address, "c", "d")
            living = pool.submit(resume, address, 4, 7)
            wait_for_commit(address, 4)
        rmtree(data)
        copytree(copy, data)
        assert renew(data) == 1
        with broker(data, kafka__listen=address):
            write(address, "e", "f", "g")
            found = living.result(timeout=2 * LIMIT_S)
        assert found == [(0, 0), (1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (4, 1)]
