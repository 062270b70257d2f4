"""How fast compacted data is served: a consumer that catches up, and the first byte at any offset.

1 KiB values that compress by half, in table files of 64 MB on disk (in the page cache of the system); one broker
process, all threads counted. What is measured ends where a server begins: a list of parts.
"""

import asyncio
import io
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.fetch import ANSWER, Broker, with_broker
from bench.harness import Absolute, Case, Report
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.fetch.plan import PartitionRead
from dray.fetch.service import Fetched
from dray.fetch.settings import FetchSettings
from dray.machine.append import Append, pack_rows
from dray.machine.names import wal_id
from dray.machine.tasks import CreateTask, FilesWritten, FinishTask, Swap, TaskCreated, WrittenFile
from dray.objects.files import FileObjects
from dray.objects.paths import ParquetName
from dray.offload import ThreadOffload
from dray.parquet.write import ParquetFile
from dray.records import NewRecord, build_batch, one_batch
from dray.records.arrow import to_arrow

BATCH_RECORDS = 100
BATCHES = 600
FILES = 4
LOOKS = 100


def batch_of(dice: random.Random) -> bytes:
    return build_batch([NewRecord(None, dice.randbytes(512) * 2, at) for at in range(BATCH_RECORDS)])


async def fill(broker: Broker, objects: FileObjects) -> None:
    """Rows that name nothing, and then the files that stand for them: what was in the rows is of no matter here."""
    dice, session = random.Random(1), await broker.replica.open_session()
    machine, now_ms = broker.replica.machine, SystemClock().wall_ms()
    batches = [batch_of(dice) for _ in range(BATCHES)]
    for _ in range(FILES):
        start = machine.streams.open[broker.stream].end
        name = wal_id(machine.log_id, session.id, session.take_counter())
        rows = [(broker.stream, 1, 1, -1, -1, BATCH_RECORDS, len(one), 53, -1) for one in batches]
        await broker.replica.propose(
            Append(wal_id=name, size=1 << 31, created_ms=now_ms, zone="", packed=pack_rows(rows))
        )
        sink = io.BytesIO()
        file = ParquetFile(sink, 0)
        for number, one in enumerate(batches):
            file.write(to_arrow([(one_batch(one), start + number * BATCH_RECORDS)]), append_time=False)
        facts, counter = file.finish(), session.take_counter()
        stream = machine.streams.open[broker.stream]
        path = ParquetName.of(
            topic_id=stream.topic_id, partition=0, domain=0, created_ms=now_ms,
            file_id=wal_id(machine.log_id, session.id, counter),
        ).path()  # fmt: skip
        await objects.put(path, [sink.getvalue()])
        (task,) = await broker.replica.propose(
            CreateTask(stream=broker.stream, start=start, end=facts.end, table=False)
        )
        assert isinstance(task, TaskCreated), task
        written = WrittenFile(
            counter=counter, size=facts.size, start=start, end=facts.end, records=facts.rows, min_timestamp_ms=0,
            max_timestamp_ms=facts.max_timestamp_ms, created_ms=now_ms,
        )  # fmt: skip
        await broker.replica.propose(
            FilesWritten(stream=broker.stream, task=task.task, files=(written,)),
            Swap(stream=broker.stream, task=task.task),
            FinishTask(stream=broker.stream, task=task.task),
        )


async def read(broker: Broker, offset: int) -> tuple[int, int]:
    """One answer: its bytes, and the offset behind it."""
    asked = [PartitionRead(stream=broker.stream, offset=offset, max_bytes=ANSWER)]
    (answer,) = await broker.service.fetch(asked, min_bytes=1, max_bytes=ANSWER, max_wait_ms=500)
    assert isinstance(answer, Fetched), answer
    last = answer.parts[-2]
    count = int.from_bytes(answer.parts[-1][41:45], "big")
    return answer.size, int.from_bytes(last[:8], "big") + count


async def catch_up(broker: Broker) -> tuple[float, float]:
    """MB a second, and CPU seconds a GB; the first pass warms up."""
    end = broker.replica.machine.streams.open[broker.stream].end
    rates, costs = [], []
    for _ in range(3):
        offset = total = 0
        begun, cpu = time.perf_counter(), time.process_time()
        while offset < end:
            size, offset = await read(broker, offset)
            total += size
        rates.append(total / 1e6 / (time.perf_counter() - begun))
        costs.append((time.process_time() - cpu) / total * 1e9)
    return max(rates[1:]), min(costs[1:])


async def first_byte(broker: Broker) -> float:
    """Milliseconds until an answer at a random offset, of a file whose rows are not in memory; the median."""
    dice, end = random.Random(2), broker.replica.machine.streams.open[broker.stream].end
    taken = []
    for _ in range(LOOKS):
        broker.service.files._groups.clear()
        broker.service.files._held_bytes = 0
        begun = time.perf_counter()
        await read(broker, dice.randrange(end))
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


def on_files(measure: Callable[[Broker], Awaitable[float]]) -> float:
    async def run(broker: Broker) -> float:
        await objects.open()
        await fill(broker, objects)
        return await measure(broker)

    offload = ThreadOffload(2)
    with tempfile.TemporaryDirectory() as directory:
        objects = FileObjects(Path(directory), LocalDisk(), offload)
        try:
            return asyncio.run(with_broker(objects, FetchSettings(), run, offload))
        finally:
            offload.close()


def rate() -> float:
    async def measure(broker: Broker) -> float:
        return (await catch_up(broker))[0]

    return on_files(measure)


def answers_a_second() -> float:
    async def measure(broker: Broker) -> float:
        return 1000 / await first_byte(broker)

    return on_files(measure)


def report() -> dict[str, float]:
    """Figures without a mark."""

    async def cost(broker: Broker) -> float:
        return (await catch_up(broker))[1]

    return {"catch-up, CPU seconds per GB": on_files(cost)}


def cases() -> list[Case]:
    """What a consumer of compacted data gets."""
    return [
        Absolute(name="catch-up from files, 1 KiB values", run=rate, mark=100.0, unit="MB/s"),
        Absolute(name="first answer at a random offset, 1/p50", run=answers_a_second, mark=40.0, unit="1/s"),
        Report(name="fetch from files", run=report),
    ]
