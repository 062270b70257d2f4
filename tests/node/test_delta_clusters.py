"""Brokers whose log is kept in the object store: the plane of a process, and looking into its past."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dray.cli.commands.admin import app
from dray.clock import SystemClock
from dray.config import Config, Override, Section, load
from dray.disk import LocalDisk
from dray.errors import NotFound
from dray.ids import SystemEntropy
from dray.log.port import Position, Trimmed
from dray.log.settings import LogSettings
from dray.log.urls import DeltaLogs
from dray.machine.topics import CreateTopic
from dray.node.clustered import Clustered
from dray.node.directory import new_identity
from dray.node.history import state_of_version
from dray.node.joining import joined_directory
from dray.node.metadata import Effects, Metadata, MetadataOptions, run_metadata
from dray.node.plane import open_plane
from dray.node.store import ClusterStore
from dray.objects.cluster import mark_begun
from dray.objects.files import FileObjects
from dray.objects.opening import StoreEffects
from dray.objects.probe import NoCreateOnly
from dray.objects.settings import ObjectsSettings
from dray.offload import ThreadOffload
from dray.replica.child import ChildFolder, StoreAddress
from tests.objects.test_cluster_binding import OverwritingObjects

BUSY = MetadataOptions(domains=1, checkpoint_due_bytes=1, checkpoint_kept_ms=0, checkpoint_look_s=0.05)
LIMIT_S = 60


@pytest.fixture
def effects() -> Iterator[Effects]:
    offload = ThreadOffload(4)
    yield Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    offload.close()


class Fixed(SystemEntropy):
    """Draws the same cluster for everybody."""

    def random_bytes(self, count: int) -> bytes:
        return b"\7" * count


@asynccontextmanager
async def member(
    home: Path, name: str, effects: Effects, options: MetadataOptions | None = None
) -> AsyncIterator[Metadata]:
    """A broker without its servers; its checkpoints are made by real child processes."""
    objects = FileObjects(home / "objects", effects.disk, effects.offload, effects.entropy)
    await objects.open()
    ours = joined_directory(home / name)
    effects.disk.make_dir(ours.root)
    identity = ours.claim(effects.disk, effects.entropy, new_identity(Fixed()).cluster)
    source = Clustered(url=DeltaLogs(), directory=ours, objects=objects)
    async with run_metadata(source, identity, effects, options or MetadataOptions()) as running:
        await mark_begun(objects)
        yield running


async def create(metadata: Metadata, number: int) -> int:
    """A topic; the version whose commit made it."""
    topic = CreateTopic(topic_id=number.to_bytes(16, "big"), name=f"topic-{number}", partitions=1)
    await metadata.domains.catalog.propose(topic)
    return metadata.domains.catalog.machine.position - 1


def configured(home: Path) -> Config:
    sections: dict[str, type[Section]] = {"log": LogSettings, "objects": ObjectsSettings}
    values = {"log.url": "deltalog:", "objects.url": str(home / "objects")}
    return load(
        sections, environ={}, overrides=[Override(key=key, value=value, flag=key) for key, value in values.items()]
    )


async def test_the_state_as_of_any_version_can_be_read_beside_the_brokers(tmp_path: Path, effects: Effects) -> None:
    """L-100: also over a checkpoint; a version that is not there yet is said to be so."""
    async with member(tmp_path, "a", effects) as a:
        versions = [await create(a, number) for number in (1, 2, 3)]
        for count, version in enumerate(versions, 1):
            machine = await state_of_version(configured(tmp_path), 0, version)
            assert {topic.name for topic in machine.topics.all.values()} == {f"topic-{n}" for n in range(1, count + 1)}
            assert machine.position == version + 1
        assert not (await state_of_version(configured(tmp_path), 0, 0)).topics.all
        with pytest.raises(NotFound, match="no such version"):
            await state_of_version(configured(tmp_path), 0, 1_000_000)


async def test_the_command_line_lists_a_version(tmp_path: Path, effects: Effects) -> None:
    async with member(tmp_path, "a", effects) as a:
        first, second = await create(a, 1), await create(a, 2)
    sets = ["--set", "log.url=deltalog:", "--set", f"objects.url={tmp_path / 'objects'}", "--format", "json"]

    def listed(version: int) -> str:
        found = CliRunner().invoke(app, ["meta", "at", str(version), *sets])
        assert found.exit_code == 0, found.output
        return json.dumps(json.loads(found.output)["keys"])

    before, after = await asyncio.to_thread(listed, first), await asyncio.to_thread(listed, second)
    assert "topic-1" in before
    assert "topic-2" not in before
    assert "topic-2" in after


@pytest.mark.slow
async def test_who_comes_after_a_trim_finds_a_checkpoint_though_everybody_before_lost_its_disk(
    tmp_path: Path, effects: Effects
) -> None:
    """L-40, L-74, CK4, CK6, L-20, L-36: checkpoints are made by a process that reads the log from the store."""
    store = StoreAddress(url=str(tmp_path / "objects"))

    def folder(**where) -> ChildFolder:
        return ChildFolder(store=store, **where)

    made = Effects(
        clock=effects.clock, entropy=effects.entropy, disk=effects.disk, offload=effects.offload, folder=folder
    )
    number = 0
    async with member(tmp_path, "a", made, BUSY) as a:
        async with asyncio.timeout(LIMIT_S):
            while not await is_trimmed(a):
                number += 1
                await create(a, number)
                await asyncio.sleep(0.2)
    shutil.rmtree(tmp_path / "a")
    async with member(tmp_path, "late", made) as late:
        found = late.domains.catalog.machine.topics.all.values()
        assert {topic.name for topic in found} == {f"topic-{n}" for n in range(1, number + 1)}
    with pytest.raises(NotFound, match="was trimmed"):
        await state_of_version(configured(tmp_path), 0, 0)


async def is_trimmed(metadata: Metadata) -> bool:
    try:
        await anext(metadata.domains.catalog.log.follow(Position(0)))
    except Trimmed:
        return True
    return False


async def test_a_store_without_create_only_puts_is_refused_at_start(tmp_path: Path, effects: Effects) -> None:
    """R-217: nothing but such puts orders the log."""

    async def overwriting(*_: object) -> OverwritingObjects:
        return OverwritingObjects()

    of_store = StoreEffects(clock=effects.clock, entropy=effects.entropy, disk=effects.disk, offload=effects.offload)
    store = ClusterStore(ObjectsSettings(url="s3://bucket/prefix"), of_store, overwriting)
    async with AsyncExitStack() as stack:
        with pytest.raises(NoCreateOnly, match="use a store that honours If-None-Match"):
            await open_plane(stack, tmp_path / "a", DeltaLogs(), store, effects, MetadataOptions())
