"""After a recovery the leader epoch is another one: clients notice, and go on where they were."""

import asyncio
from contextlib import closing
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from confluent_kafka import OFFSET_STORED, Consumer, Message, Producer, TopicPartition

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.node.directory import DataDirectory
from dray.node.recovery import recover
from dray.records import batches
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.servers.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dray.testing import broker
from tests.durability.daemon import free_port
from tests.golden.asking import LIST_OFFSETS, Asker, batch, records_in

pytestmark = pytest.mark.slow

OFFSET_FOR_LEADER_EPOCH = 23
LIMIT_S = 60
"""Only a client that hangs reaches it."""


def renew(path: Path) -> int:
    return recover(DataDirectory(path), 0, LocalDisk(), SystemEntropy(), SystemClock()).generation


async def epochs(bootstrap: str) -> dict[str, int]:
    """The leader epoch in every answer that has one."""
    async with Asker(bootstrap) as ask:
        [topic] = (await ask.metadata("orders")).topics
        fetched = await ask.fetch("orders")
        return {
            "metadata": topic.partitions[0].leader_epoch,
            "batch": next(batches(records_in(fetched))).leader_epoch,
            "latest": (await ask.offset_at("orders", -1)).leader_epoch,
            "by time": (await ask.offset_at("orders", 0)).leader_epoch,
        }


async def refusals(bootstrap: str, epoch: int) -> tuple[int, int]:
    """What Fetch and ListOffsets say to a leader epoch."""
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[wanted])])
    async with Asker(bootstrap) as ask:
        fetched = await ask.fetch("orders", epoch=epoch)
        [topic] = (await ask.call(LIST_OFFSETS, 7, request)).topics
        return fetched.error_code, topic.partitions[0].error_code


async def test_every_answer_carries_the_generation_and_older_or_newer_ones_are_refused(tmp_path):
    """RG1, R-009: 0 until something was recovered."""
    with broker(tmp_path) as dray:
        async with Asker(dray.bootstrap) as ask:
            await ask.create("orders")
            await ask.produce("orders", batch(b"one"))
        assert set((await epochs(dray.bootstrap)).values()) == {0}
        assert [await refusals(dray.bootstrap, epoch) for epoch in (-1, 0, 1)] == [(0, 0), (0, 0), (75, 75)]
    for generation in (1, 2):
        assert await asyncio.to_thread(renew, tmp_path) == generation
    with broker(tmp_path) as dray:
        assert set((await epochs(dray.bootstrap)).values()) == {2}
        assert [await refusals(dray.bootstrap, epoch) for epoch in (-1, 0, 1, 2, 3)] == [
            (0, 0), (74, 74), (74, 74), (0, 0), (75, 75),
        ]  # fmt: skip


async def end_of(bootstrap: str, epoch: int) -> tuple[int, int, int]:
    """Code, epoch and end that OffsetForLeaderEpoch tells."""
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="orders", partitions=[wanted])])
    async with Asker(bootstrap) as ask:
        [topic] = (await ask.call(OFFSET_FOR_LEADER_EPOCH, 4, request)).topics
        [one] = topic.partitions
        return one.error_code, one.leader_epoch, one.end_offset


async def test_an_epoch_ends_where_a_recovery_began_a_new_log(tmp_path):
    """K-063, RN2: consumers find out what was lost."""
    for generation, count in ((0, 2), (1, 3)):
        with broker(tmp_path) as dray:
            async with Asker(dray.bootstrap) as ask:
                if not generation:
                    await ask.create("orders")
                for _ in range(count):
                    await ask.produce("orders", batch(b"one"))
        assert await asyncio.to_thread(renew, tmp_path) == generation + 1
    with broker(tmp_path) as dray:
        async with Asker(dray.bootstrap) as ask:
            await ask.produce("orders", batch(b"last"))
        found = [await end_of(dray.bootstrap, epoch) for epoch in (-1, 0, 1, 2, 3)]
        assert found == [(0, -1, -1), (0, 0, 2), (0, 1, 5), (0, 2, 6), (0, -1, -1)]


def write(bootstrap: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(LIMIT_S) == 0


def consumer(bootstrap: str, **options: object) -> Consumer:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False, **options})
    reader.assign([TopicPartition("orders", 0, OFFSET_STORED)])
    return reader


def read(reader: Consumer, count: int) -> list[str]:
    return [message.value().decode() for message in messages(reader, count)]


def messages(reader: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    clock = SystemClock()
    deadline_ns = clock.boot_ns() + LIMIT_S * 1_000_000_000
    while len(found) < count:
        assert clock.boot_ns() < deadline_ns, f"the consumer hangs after {len(found)}"
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    return found


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_consumers_on_defaults_go_on_where_they_were(tmp_path, reset):
    """One that lived through the recovery, and one that starts from what was committed before it."""
    address = f"127.0.0.1:{free_port()}"
    with broker(tmp_path, kafka__listen=address):
        write(address, "a", "b", "c", "d")
        living = consumer(address, **{"auto.offset.reset": "earliest"})
        last = messages(living, 2)[-1]
        assert (last.value(), last.leader_epoch()) == (b"b", 0)
        living.commit(message=last, asynchronous=False)
    with closing(living):
        assert renew(tmp_path) == 1
        with broker(tmp_path, kafka__listen=address):
            write(address, "e")
            assert read(living, 3) == ["c", "d", "e"]
            with closing(consumer(address, **{"auto.offset.reset": reset})) as later:
                assert read(later, 3) == ["c", "d", "e"]
                [committed] = later.committed([TopicPartition("orders", 0)], timeout=LIMIT_S)
                assert (committed.offset, committed.leader_epoch) == (2, 0)
            write(address, "f")
            assert read(living, 1) == ["f"]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_goes_back_to_where_records_were_lost(tmp_path, reset):
    """K-063, RN2: what has the offsets of lost records now is not skipped, whatever the client would reset to."""
    address, data, copy = f"127.0.0.1:{free_port()}", tmp_path / "data", tmp_path / "copy"
    with broker(data, kafka__listen=address):
        write(address, "a", "b")
    copytree(data, copy)
    with broker(data, kafka__listen=address):
        write(address, "c", "d")
        living = consumer(address, **{"auto.offset.reset": reset})
        living.assign([TopicPartition("orders", 0, 0)])
        assert read(living, 4) == ["a", "b", "c", "d"]
    with closing(living):
        rmtree(data)
        copytree(copy, data)
        assert renew(data) == 1
        with broker(data, kafka__listen=address):
            write(address, "e", "f", "g")
            assert read(living, 3) == ["e", "f", "g"]
