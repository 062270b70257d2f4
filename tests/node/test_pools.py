"""Slow reads delay nobody who writes."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.log.files import FileLog
from dray.log.port import Position
from dray.node.pools import READ_THREADS, Pools
from dray.objects.opening import StoreEffects, StoreOptions, open_store
from dray.objects.port import Objects
from dray.testing import broker

CONSUMERS = READ_THREADS + 4


class SlowDisk(LocalDisk):
    """Whoever reads waits until it is allowed."""

    def __init__(self) -> None:
        self.allowed = threading.Event()
        self.waiting = threading.Semaphore(0)

    def read(self, path: Path, start: int = 0, end: int | None = None) -> bytes:
        if path.suffix in (".wo", ".log") and not self.allowed.is_set():
            self.waiting.release()
            assert self.allowed.wait(120), "the test let it hang"
        return super().read(path, start, end)


def send(bootstrap: str, partition: int) -> None:
    """Acknowledged, or the test fails."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    producer.produce("orders", b"v", partition=partition, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]


@pytest.mark.slow
def test_producers_are_acknowledged_while_every_read_of_old_records_hangs(tmp_path):
    """OF2: more consumers read from a disk that does not answer than there are threads to wait for it."""
    disk = SlowDisk()

    async def slow(address: str, options: StoreOptions, effects: StoreEffects) -> Objects:
        return await open_store(address, options, replace(effects, disk=disk))

    with broker(tmp_path, topics__partitions=CONSUMERS) as dray:
        for partition in range(CONSUMERS):
            send(dray.bootstrap, partition)
    with broker(tmp_path, open_objects=slow) as dray:
        consumers = [Consumer({"bootstrap.servers": dray.bootstrap, "group.id": "g"}) for _ in range(CONSUMERS)]
        try:
            for partition, consumer in enumerate(consumers):
                consumer.assign([TopicPartition("orders", partition, 0)])
            for _ in range(READ_THREADS):
                assert disk.waiting.acquire(timeout=60)
            for partition in range(3):
                send(dray.bootstrap, partition)
            assert not disk.allowed.is_set()
            disk.allowed.set()
            for consumer in consumers:
                message = consumer.poll(60)
                assert message is not None
                assert message.error() is None
        finally:
            disk.allowed.set()
            for consumer in consumers:
                consumer.close()


async def test_appends_go_on_while_history_of_the_log_is_read_slowly(tmp_path):
    """OF2"""
    disk, pools, clock = SlowDisk(), Pools(), SystemClock()
    disk.allowed.set()
    log = await FileLog.open(tmp_path, disk=disk, offload=pools.log, reads=pools.upkeep, clock=clock, recent_bytes=0)
    await log.append(b"first entry")
    disk.allowed.clear()

    async def first() -> bytes:
        async for _, entry in log.follow(Position(0)):
            return entry
        raise AssertionError("the log ended")

    readers = [asyncio.create_task(first()) for _ in range(20)]
    while not disk.waiting.acquire(blocking=False):
        await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        assert await log.append(b"second entry") == 2
    disk.allowed.set()
    assert await asyncio.gather(*readers) == [b"first entry"] * 20
    await log.close()
    assert await asyncio.to_thread(pools.close, clock) == []
