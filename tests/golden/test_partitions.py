"""CreatePartitions and DeleteRecords."""

import asyncio

import pytest

from dray.servers.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dray.servers.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.golden.asking import Asker, batch, records_in

CREATE_PARTITIONS, DELETE_RECORDS = 37, 21
TIMEOUT_MS = 30_000


async def grow(ask: Asker, *topics: CreatePartitionsTopic, version: int = 3, only_check: bool = False) -> list[int]:
    request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=only_check)
    results = (await ask.call(CREATE_PARTITIONS, version, request)).results
    assert all(bool(one.error_message) == bool(one.error_code) for one in results)
    return [one.error_code for one in results]


def to(name: str, count: int, *brokers: list[int]) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers] or None
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


async def delete(ask: Asker, name: str, *places: tuple[int, int], version: int = 2) -> list[tuple[int, int]]:
    """Code and low watermark of each."""
    wanted = [DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in places]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=wanted)], timeout_ms=TIMEOUT_MS
    )  # fmt: skip
    [topic] = (await ask.call(DELETE_RECORDS, version, request)).topics
    return [(one.error_code, one.low_watermark) for one in topic.partitions]


@pytest.mark.parametrize("version", range(4))
async def test_added_partitions_begin_at_0_and_old_ones_stay(ask: Asker, name: str, version: int) -> None:
    """R-194, K-062."""
    made = await ask.create(name, 2)
    await ask.produce(name, batch(b"old"), partition=1)
    assert await grow(ask, to(name, 5), version=version) == [0]
    [found] = (await ask.metadata(name)).topics
    assert (len(found.partitions), found.topic_id) == (5, made.topic_id)
    ends = await ask.offsets_at(name, [(number, -1) for number in range(5)])
    assert [one.offset for one in ends] == [0, 1, 0, 0, 0]
    assert (await ask.produce(name, batch(b"new"), partition=4)).base_offset == 0


async def test_partitions_are_never_taken_away(ask: Asker, name: str) -> None:
    """R-194: more only."""
    await ask.create(name, 3)
    for count in (-1, 0, 2, 3, 10_001):
        for only_check in (False, True):
            assert await grow(ask, to(name, count), only_check=only_check) == [37 if count < 10_001 else 44]
    assert await grow(ask, to(name, 9), only_check=True) == [0]
    assert len((await ask.metadata(name)).topics[0].partitions) == 3


async def test_each_topic_stands_for_itself(ask: Asker, name: str) -> None:
    """R-194."""
    await ask.create(name)
    assert await grow(ask, to("nobody", 3), to(name, 2)) == [3, 0]
    assert await grow(ask, to(name, 4), to(name, 5)) == [42]
    assert await grow(ask) == []
    assert len((await ask.metadata(name)).topics[0].partitions) == 2


async def test_assignments_of_added_partitions_are_counted(ask: Asker, name: str) -> None:
    await ask.create(name)
    for brokers in ([[1]], [[1], [1], [1]], [[], []], [[1, 1], [1, 1]], [[1], [1, 2]]):
        assert await grow(ask, to(name, 3, *brokers)) == [39]
    empty = CreatePartitionsTopic(name=name, count=3, assignments=[])
    assert await grow(ask, empty) == [39]
    assert await grow(ask, to(name, 3, [1], [1])) == [0]


async def test_many_that_add_partitions_at_once_agree(ask: Asker, dray, name: str) -> None:
    """T5: whoever is late is told so, or finds what it wanted."""
    await ask.create(name)

    async def one(count: int) -> int:
        async with Asker(dray.bootstrap) as other:
            return (await grow(other, to(name, count)))[0]

    codes = await asyncio.gather(*(one(count) for count in (2, 3, 4, 5)))
    assert set(codes) <= {0, 37}
    assert codes[-1] == 0
    assert len((await ask.metadata(name)).topics[0].partitions) == 5


@pytest.mark.parametrize("version", range(3))
async def test_deleted_records_are_gone_at_once(ask: Asker, name: str, version: int) -> None:
    """E-7, RT30: the log start rises, also into the middle of a batch; the end stays."""
    await ask.create(name)
    for _ in range(5):
        await ask.produce(name, batch(b"1", b"2"))
    assert await delete(ask, name, (0, 3), version=version) == [(0, 3)]
    assert (await ask.offset_at(name, -2)).offset == 3
    assert (await ask.offset_at(name, -1)).offset == 10
    assert (await ask.fetch(name, 2)).error_code == 1
    found = await ask.fetch(name, 3)
    assert (found.error_code, found.log_start_offset, found.high_watermark) == (0, 3, 10)
    assert len(records_in(found)) == 4 * len(batch(b"1", b"2"))
    assert await delete(ask, name, (0, 1), version=version) == [(0, 3)]  # never back


async def test_everything_is_deleted_up_to_the_end(ask: Asker, name: str) -> None:
    """R-200, RT30: the next record gets the next offset, never 0 again."""
    await ask.create(name, 2)
    for number in (0, 1):
        await ask.produce(name, batch(b"1", b"2", b"3"), partition=number)
    assert await delete(ask, name, (0, -1), (1, 3)) == [(0, 3), (0, 3)]
    assert await delete(ask, name, (0, -1)) == [(0, 3)]
    assert (await ask.offset_at(name, -2)).offset == (await ask.offset_at(name, -1)).offset == 3
    assert (await ask.fetch(name, 3, max_wait_ms=1)).error_code == 0
    assert (await ask.produce(name, batch(b"4"))).base_offset == 3
    assert records_in(await ask.fetch(name, 3)) != b""


async def test_what_cannot_be_deleted_is_told_and_hinders_nothing(ask: Asker, name: str) -> None:
    """R-086's way: each partition answers for itself."""
    await ask.create(name, 2)
    await ask.produce(name, batch(b"1", b"2"))
    answers = await delete(ask, name, (0, 1), (1, 1), (7, 0), (-1, 0))
    assert answers == [(0, 1), (1, -1), (3, -1), (3, -1)]
    assert await delete(ask, name, (0, 3)) == [(1, -1)]
    assert await delete(ask, name, (0, -2)) == [(1, -1)]
    assert await delete(ask, "nobody", (0, 0)) == [(3, -1)]
    assert await delete(ask, name, (0, 1), (0, 2)) == [(0, 2)]
