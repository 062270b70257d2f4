"""A live replica beside the making of its checkpoint: how long the loop is held, and how long a restart takes."""

import asyncio
import shutil
import tempfile
import time
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from bench.harness import Absolute
from dray.clock import SystemClock
from dray.disk import DirectoryLock, LocalDisk
from dray.ids import SystemEntropy
from dray.machine.append import Append, pack_rows
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects, MetadataOptions, run_metadata
from dray.node.owning import Owned
from dray.offload import ThreadOffload
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import FileCheckpoints
from dray.replica.child import ChildFolder
from dray.topics.service import NewTopic, TopicService
from dray.wal.ids import wal_id

ROWS = 1_000_000
STREAMS = 1_000
ROWS_AN_ENTRY = 3_000


@asynccontextmanager
async def metadata(root: Path):
    offload = ThreadOffload(4)
    effects = Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    directory = DataDirectory(root)
    lock = DirectoryLock(root)
    options = MetadataOptions(checkpoint_due_bytes=1 << 40)
    try:
        identity = directory.claim(effects.disk, effects.entropy)
        async with run_metadata(Owned(directory=directory), identity, effects, options) as running:
            yield running, directory, effects
    finally:
        lock.release()
        offload.close()


async def fill(root: Path) -> None:
    """A directory whose log gives 1,000,000 index rows, with one confirmed checkpoint of them."""
    async with metadata(root) as (running, directory, effects):
        catalog = running.domains.catalog
        topics = TopicService(domains=running.domains, entropy=effects.entropy, clock=effects.clock)
        topic = await topics.create(NewTopic(name="t", partitions=STREAMS, replication_factor=1, configs={}))
        session = await catalog.open_session()
        for _ in range(ROWS // ROWS_AN_ENTRY + 1):
            rows = [
                (stream, 1, 1, -1, -1, 1, 1_000, 53 + 1_004 * at, -1)
                for at, stream in enumerate(topic.streams * (ROWS_AN_ENTRY // STREAMS))
            ]
            name = wal_id(catalog.machine.log_id, session.id, session.take_counter())
            command = Append(wal_id=name, size=1 << 22, created_ms=1, zone="", packed=pack_rows(rows))
            await catalog.propose(command)
        assert catalog.machine.streams.rows >= ROWS
        await checkpointer(catalog, directory, effects).step()


def checkpointer(catalog, directory: DataDirectory, effects: Effects) -> Checkpointer:
    store = FileCheckpoints(directory.checkpoints(0), effects.disk, effects.offload)
    folder = ChildFolder(log=directory.served, domain=0, directory=directory.checkpoints(0))
    return Checkpointer(catalog, store, folder, effects.clock, due_bytes=1)


@cache
def filled() -> Path:
    root = Path(tempfile.mkdtemp(prefix="dray-bench-replica-"))
    asyncio.run(fill(root))
    return root


def longest_stall_ms() -> float:
    """The longest time that the loop of a live replica stood still while a child made its checkpoint."""

    root = filled()

    async def run() -> float:
        async with metadata(root) as (running, directory, effects):
            catalog = running.domains.catalog
            await catalog.open_session()
            longest = 0.0
            making = asyncio.create_task(checkpointer(catalog, directory, effects).make())
            while not making.done():
                before = time.perf_counter()
                await asyncio.sleep(0.001)
                longest = max(longest, time.perf_counter() - before - 0.001)
            await making
            return longest * 1000

    return asyncio.run(run())


def restart_seconds() -> float:
    """From opening the directory to a replica that has caught up."""

    root = filled()

    async def run() -> float:
        before = time.perf_counter()
        async with metadata(root) as (running, _, _):
            took = time.perf_counter() - before
            assert running.domains.catalog.machine.streams.rows >= ROWS
        return took

    return asyncio.run(run())


def cases() -> list[Absolute]:
    return [
        Absolute(
            "longest stall of the loop while a checkpoint of 1,000,000 rows is made",
            run=longest_stall_ms,
            mark=20,
            unit="ms",
            at_most=True,
        ),
        Absolute("restart from a checkpoint of 1,000,000 rows", run=restart_seconds, mark=1, unit="s", at_most=True),
    ]


def close() -> None:
    """Remove what the runs left."""
    shutil.rmtree(filled(), ignore_errors=True)
