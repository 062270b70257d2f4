"""A broker that joins when the beginning of the log is gone."""

import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import DrayError
from dray.ids import SystemEntropy
from dray.log.port import Position
from dray.machine import checkpoint
from dray.machine.topics import CreateTopic
from dray.node.directory import DataDirectory
from dray.node.joining import Joined, joined_directory, owner_of
from dray.node.metadata import Effects, MetadataOptions, run_metadata
from dray.node.owning import Owned
from dray.objects.memory import MemoryObjects
from dray.offload import ThreadOffload
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints import FileCheckpoints
from dray.replica.child import ChildFolder

pytestmark = pytest.mark.slow

TOPICS = 6


@pytest.fixture
def effects():
    offload = ThreadOffload(4)
    yield Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    offload.close()


async def test_who_joins_a_trimmed_log_begins_with_the_owners_checkpoint(tmp_path, effects):
    """CK1, CK2, SV3: the state that was only in the trimmed part is there, and both go on as one."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    theirs = DataDirectory(tmp_path / "a")
    identity = theirs.claim(effects.disk, effects.entropy)
    options = MetadataOptions(segment_bytes=256, checkpoint_look_s=1e9)  # only the test's own checkpointer is at work
    async with run_metadata(Owned(directory=theirs), identity, effects, options) as owner:
        catalog = owner.domains.catalog
        store = FileCheckpoints(theirs.checkpoints(0), effects.disk, effects.offload)
        folder = ChildFolder(log=theirs.served, domain=0, directory=theirs.checkpoints(0))
        making = Checkpointer(catalog, store, folder, effects.clock, due_bytes=1, kept_ms=0)
        for number in range(TOPICS):
            await catalog.propose(CreateTopic(topic_id=bytes([number + 1]) * 16, name=f"topic-{number}", partitions=1))
            await making.step()
        with pytest.raises(DrayError):
            await anext(catalog.log.follow(Position(0)))  # the beginning is gone

        found = owner_of(theirs.socket, effects.disk)
        ours = joined_directory(tmp_path / "b")
        own = ours.claim(effects.disk, effects.entropy, found.identity.cluster)
        async with run_metadata(
            Joined(log_owner=found, directory=ours, objects=MemoryObjects()), own, effects, MetadataOptions()
        ) as joined:
            late = joined.domains.catalog
            await late.propose(CreateTopic(topic_id=b"z" * 16, name="from-b", partitions=1))
            await catalog.sync()
            await late.sync()
            names = {topic.name for topic in catalog.machine.topics.all.values()}
            assert names == {"from-b", *(f"topic-{number}" for number in range(TOPICS))}
            assert checkpoint.dump(late.machine) == checkpoint.dump(catalog.machine)
