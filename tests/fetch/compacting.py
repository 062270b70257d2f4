"""What a compactor does to a stream, without Spark: batches to files, and the files into the index."""

import asyncio
import io
from pathlib import Path

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.machine.names import ObjectId, StreamId, wal_id
from dray.machine.tasks import (
    CreateTask,
    FilesKnown,
    FilesWritten,
    FinishTask,
    Swap,
    Swapped,
    TableCommitted,
    TaskCreated,
    TaskFinished,
    WrittenFile,
)
from dray.node.reaching import reach
from dray.objects.files import FileObjects
from dray.objects.paths import ParquetName
from dray.objects.port import Objects
from dray.offload import InlineOffload
from dray.parquet.footer import footer_crc
from dray.parquet.write import ParquetFile
from dray.pipeline.opening import effects, read_directory
from dray.records import one_batch
from dray.records.arrow import to_arrow
from dray.replica.replica import Replica


def file_of(partition: int, batches: list[tuple[int, bytes]]) -> tuple[bytes, int, int, int]:
    """A file of batches with their first offsets: its bytes, records, least and greatest time."""
    sink = io.BytesIO()
    file = ParquetFile(sink, partition)
    for base, batch in batches:
        view = one_batch(memoryview(batch))
        file.write(to_arrow([(view, base)]), append_time=view.has_append_time)
    facts = file.finish()
    return sink.getvalue(), facts.rows, facts.min_timestamp_ms, facts.max_timestamp_ms


async def batches_of(replica: Replica, objects: Objects, stream: StreamId, start: int, end: int):
    """The batches of a range of rows as they lie in the store, with their first offsets."""
    index = replica.machine.streams.find(stream).index
    found = []
    for row in [row for row in index.rows(start) if row.start < end]:
        owner = replica.machine.objects.find(ObjectId(row.object))
        found.append((row.start, bytes(await objects.get(owner.path(), row.position, row.position + row.size))))
    return found


async def compact(
    replica: Replica, objects: Objects, stream: StreamId, *ends: int, created_ms: int = 0, batches=None,
    rewrite_from: int | None = None, limit: int = 3_000,
) -> list[str]:  # fmt: skip
    """Turn a stream into files that end at these offsets; the paths of those that stand in the index."""
    machine = replica.machine
    found = machine.streams.find(stream)
    start = found.index.end_of(machine.streams.first_hot(found)) if rewrite_from is None else rewrite_from
    (created,) = await replica.propose(
        CreateTask(stream=stream, start=start, end=ends[-1], rewrite=rewrite_from is not None)
    )
    assert isinstance(created, TaskCreated), created
    session = await replica.open_session()
    files = []
    for first, end in zip([start, *ends], ends, strict=False):
        parts = batches or await batches_of(replica, objects, stream, first, end)
        content, records, least, greatest = file_of(
            found.partition, [one for one in parts if first <= one[0] < end]
        )  # fmt: skip
        counter = session.take_counter()
        name = ParquetName.of(
            topic_id=found.topic_id, partition=found.partition, domain=machine.domain, created_ms=created_ms,
            file_id=wal_id(machine.log_id, session.id, counter),
        )  # fmt: skip
        await objects.put(name.path(), [content])
        files.append(WrittenFile(
            counter=counter, size=len(content), start=first, end=end, records=records, min_timestamp_ms=least,
            max_timestamp_ms=greatest, created_ms=created_ms, footer_crc=footer_crc(content),
        ))  # fmt: skip
    return await _to_the_end(replica, stream, created.task, files, limit)


async def _to_the_end(
    replica: Replica, stream: StreamId, task: int, files: list[WrittenFile], limit: int
) -> list[str]:  # fmt: skip
    (known,) = await replica.propose(FilesWritten(stream=stream, task=task, files=tuple(files)))
    assert isinstance(known, FilesKnown), known
    await replica.propose(TableCommitted(stream=stream, task=task, commit="test"))
    (swapped,) = await replica.propose(Swap(stream=stream, task=task))
    assert isinstance(swapped, Swapped), swapped
    while True:
        (finished,) = await replica.propose(FinishTask(stream=stream, task=task, limit=limit))
        assert isinstance(finished, TaskFinished), finished
        if not finished.left:
            break
    return [replica.machine.objects.find(number).path() for number in swapped.objects]


def turn_into_files(directory: Path, topic: str, *ends: int) -> None:
    """What a compactor does, beside the running broker; ends are moved up to where a batch ends."""

    async def turn() -> None:
        place, _ = read_directory(str(directory))
        async with reach(place, effects()) as reached, reached.following(0, "compactor", effects()) as replica:
            await replica.sync()
            found = next(one for one in replica.machine.topics.visible() if one.name == topic)
            index = replica.machine.streams.find(found.streams[0]).index
            borders = sorted({index.row(index.find(end - 1)).end for end in ends})
            objects = FileObjects(place.objects, LocalDisk(), InlineOffload())
            await compact(replica, objects, found.streams[0], *borders, created_ms=SystemClock().wall_ms())

    asyncio.run(turn())
