"""A data directory whose index has many rows, made by commands alone: no record is written.

python -m bench._spark_rows DIRECTORY     plan a read of it, print the most megabytes that this took
"""

import asyncio
import resource
import sys
from pathlib import Path
from typing import Final

from dray.clock import SystemClock
from dray.disk import DirectoryLock, LocalDisk
from dray.ids import SystemEntropy
from dray.machine.append import Append, pack_rows
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects, MetadataOptions, run_metadata
from dray.node.owning import Owned
from dray.objects.cluster import bind
from dray.objects.files import FileObjects
from dray.offload import ThreadOffload
from dray.pipeline.options import parse_options
from dray.pipeline.planning import plan_read
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import FileCheckpoints
from dray.replica.child import ChildFolder
from dray.topics.service import NewTopic, TopicService
from dray.wal.ids import wal_id

STREAMS: Final = 16
OBJECTS_AN_ENTRY: Final = 64
BATCH_BYTES: Final = 16_000
RECORDS: Final = 16


async def fill(root: Path, rows: int) -> None:
    """A topic `t` whose index has `rows` rows, 16 to an object, with one confirmed checkpoint of them."""
    offload = ThreadOffload(4)
    effects = Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    directory = DataDirectory(root)
    lock = DirectoryLock(root)
    try:
        identity = directory.claim(effects.disk, effects.entropy)
        objects = FileObjects(directory.objects, effects.disk, offload)
        await objects.open()
        await bind(objects, identity.cluster_id)
        options = MetadataOptions(checkpoint_due_bytes=1 << 40)
        async with run_metadata(Owned(directory=directory), identity, effects, options) as served:
            catalog = served.domains.catalog
            topics = TopicService(domains=served.domains, entropy=effects.entropy, clock=effects.clock)
            topic = await topics.create(NewTopic(name="t", partitions=STREAMS, replication_factor=1, configs={}))
            session = await catalog.open_session()
            while catalog.machine.streams.rows < rows:
                now = effects.clock.wall_ms()
                packed = pack_rows(
                    [
                        (stream, now, now, -1, -1, RECORDS, BATCH_BYTES, 53 + (BATCH_BYTES + 4) * at, -1)
                        for at, stream in enumerate(topic.streams)
                    ]
                )
                names = [
                    wal_id(catalog.machine.log_id, session.id, session.take_counter()) for _ in range(OBJECTS_AN_ENTRY)
                ]
                await catalog.propose(
                    *(Append(wal_id=name, size=1 << 18, created_ms=now, zone="", packed=packed) for name in names)
                )
            store = FileCheckpoints(directory.checkpoints(0), effects.disk, offload)
            folder = ChildFolder(log=directory.served, domain=0, directory=directory.checkpoints(0))
            await Checkpointer(catalog, store, folder, effects.clock, due_bytes=1).step()
    finally:
        lock.release()
        offload.close()


if __name__ == "__main__":
    options = parse_options({"path": sys.argv[1], "subscribe": "t"})
    plan = asyncio.run(plan_read(options))
    assert plan.tasks
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
