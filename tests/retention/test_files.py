"""Table files: what retention takes away of them, and when they leave the store."""

import pytest

from dray.machine.garbage import FilesReleased, ReleaseFiles
from dray.machine.names import StreamId, wal_id
from dray.machine.tasks import (
    CreateTask,
    FilesKnown,
    FilesWritten,
    FinishTask,
    Swap,
    Swapped,
    TableCommitted,
    TaskCreated,
    WrittenFile,
)
from dray.objects.paths import FILES_PREFIX, ParquetName

from .shop import BATCH_BYTES, DAY, HOUR, MINUTE, TTL_MS, Broker, Cluster


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().begin()


async def put(broker: Broker, stream: StreamId) -> tuple[str, int, int]:
    """A file that no entry names yet: its path, counter and creation time. What is in it is of no matter here."""
    replica = broker.domains.of(stream)
    session, found = await replica.open_session(), broker.stream(stream)
    counter, created = session.take_counter(), broker.cluster.clock.wall_ms()
    path = ParquetName.of(
        topic_id=found.topic_id, partition=found.partition, domain=replica.machine.domain, created_ms=created,
        file_id=wal_id(replica.machine.log_id, session.id, counter),
    ).path()  # fmt: skip
    await broker.cluster.store.put(path, [b"a file"])
    return path, counter, created


async def compact(broker: Broker, stream: StreamId, end: int, *, finish: bool = True) -> tuple[str, int]:
    """Let a file stand for the rows up to an offset: its path and its number."""
    replica = broker.domains.of(stream)
    machine, found = replica.machine, broker.stream(stream)
    start = found.index.end_of(machine.streams.first_hot(found))
    (created,) = await replica.propose(CreateTask(stream=stream, start=start, end=end))
    assert isinstance(created, TaskCreated), created
    path, counter, created_ms = await put(broker, stream)
    file = WrittenFile(
        counter=counter, size=6, start=start, end=end, records=end - start, min_timestamp_ms=0, max_timestamp_ms=0,
        created_ms=created_ms,
    )  # fmt: skip
    (known,) = await replica.propose(FilesWritten(stream=stream, task=created.task, files=(file,)))
    assert isinstance(known, FilesKnown), known
    await replica.propose(TableCommitted(stream=stream, task=created.task, commit="c"))
    (swapped,) = await replica.propose(Swap(stream=stream, task=created.task))
    assert isinstance(swapped, Swapped), swapped
    if finish:
        await replica.propose(FinishTask(stream=stream, task=created.task))
    return path, known.objects[0]


async def files(cluster: Cluster) -> list[str]:
    return [info.path async for info in cluster.store.list(FILES_PREFIX)]


async def clean(broker: Broker) -> None:
    """Garbage after every grace."""
    await broker.pass_time(HOUR)
    await broker.retention().retain()


async def test_objects_of_replaced_rows_go_and_the_file_stays(cluster):
    """R-109, R-111, X1"""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic()).streams
        for _ in range(6):
            await broker.produce((stream, 2))
        path, _ = await compact(broker, stream, 8)
        await clean(broker)
        assert len(await cluster.paths()) == 2
        assert await files(cluster) == [path]


async def test_what_a_dead_compactor_had_not_let_go_of_retention_does(cluster):
    """RT2, H7, Q8: in slices, and a broker with nothing due writes nothing."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic()).streams
        for _ in range(6):
            await broker.produce((stream, 2))
        await compact(broker, stream, 12, finish=False)
        assert broker.stream(stream).index.shed_rows == 6
        await broker.retention().retain()
        assert broker.stream(stream).index.shed_rows == 0
        before = cluster.entries()
        await broker.retention().retain()
        assert cluster.entries() == before
        await clean(broker)
        assert await cluster.paths() == []


async def test_files_expire_like_rows_and_leave_the_store_after_the_table(cluster):
    """R-199, R-200, R-202, X7: by the greatest time of what is in them; deleted only when the table has let go."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic(retention_ms=str(2 * HOUR))).streams
        for _ in range(4):
            await broker.produce((stream, 2))
            await broker.pass_time(MINUTE)
        path, number = await compact(broker, stream, 4)
        await broker.pass_time(2 * HOUR - 4 * MINUTE)
        await broker.retention().retain()
        assert broker.stream(stream).start == 0, "its first row is old enough, its last is not"
        await broker.pass_time(2 * MINUTE)
        await broker.retention().retain()
        assert broker.stream(stream).start == 4
        await clean(broker)
        assert await files(cluster) == [path]
        assert list(broker.machine.objects.only_in_table()) == [number]
        (verdict,) = await broker.catalog.propose(ReleaseFiles(objects=(number,)))
        assert verdict == FilesReleased(objects=(number,))
        await clean(broker)
        assert await files(cluster) == []


async def test_a_file_counts_by_the_bytes_that_were_produced(cluster):
    """R-200: retention by size does not keep more because data lies in a smaller file."""
    async with cluster.broker() as broker:
        kept = 3 * (BATCH_BYTES + 4)
        (stream,) = (await broker.topic(retention_bytes=str(kept))).streams
        for _ in range(3):
            await broker.produce((stream, 2))
        await compact(broker, stream, 4)
        await broker.retention().retain()
        assert broker.stream(stream).start == 0
        await broker.produce((stream, 2))
        await broker.retention().retain()
        assert broker.stream(stream).start == 0, "the file goes whole, or not"
        await broker.produce((stream, 2))
        await broker.retention().retain()
        assert broker.stream(stream).start == 4


async def test_a_file_that_nobody_named_is_an_orphan_and_one_that_a_task_named_is_not(cluster):
    """R-106, R-107, RT7, R-153: found by its name once its session has ended; what a task has may be in a table."""
    async with cluster.broker() as broker:
        (stream,) = (await broker.topic()).streams
        for _ in range(2):
            await broker.produce((stream, 2))
        orphan, _, _ = await put(broker, stream)
        kept, _ = await compact(broker, stream, 2)
        (created,) = await broker.catalog.propose(CreateTask(stream=stream, start=2, end=4))
        named, counter, created_ms = await put(broker, stream)
        file = WrittenFile(
            counter=counter, size=6, start=2, end=4, records=2, min_timestamp_ms=0, max_timestamp_ms=0,
            created_ms=created_ms,
        )  # fmt: skip
        await broker.catalog.propose(FilesWritten(stream=stream, task=created.task, files=(file,)))
    async with cluster.broker() as broker:
        await broker.catalog.open_session()  # ends the session of the first life
        await broker.pass_time(TTL_MS - 1)
        await broker.retention().sweep()
        assert await files(cluster) == sorted([orphan, kept, named])
        await broker.pass_time(1)
        await broker.retention().sweep()
        assert await files(cluster) == sorted([kept, named])


async def test_files_of_another_log_are_never_touched(cluster):
    """R-106, RT8"""
    stranger = ParquetName.of(
        topic_id=b"t" * 16, partition=0, domain=0, created_ms=0, file_id=wal_id(b"stranger", 1, 1)
    ).path()
    await cluster.store.put(stranger, [b"not ours"])
    await cluster.store.put(f"{FILES_PREFIX}readme.txt", [b"not ours"])
    async with cluster.broker() as broker:
        await broker.topic()
        await broker.catalog.open_session()
    async with cluster.broker() as broker:
        await broker.catalog.open_session()
        await broker.pass_time(TTL_MS + DAY)
        await broker.retention().sweep()
        assert len(await files(cluster)) == 2
