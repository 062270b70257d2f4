"""A log server alone, and brokers on it: their checkpoints belong to nobody's disk."""

import asyncio
import json
import shutil
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dray.cli.serving import exit_code
from dray.cli.settings import SECTIONS
from dray.clock import SystemClock
from dray.config import Config, load, parse_set
from dray.disk import DirectoryInUse, LocalDisk
from dray.errors import Corrupt
from dray.ids import SystemEntropy
from dray.log.port import Position, Trimmed
from dray.machine import checkpoint
from dray.machine.topics import CreateTopic
from dray.node.directory import DataDirectory
from dray.node.joining import Joined, joined_directory, owner_of
from dray.node.metadata import Effects, Metadata, MetadataOptions, run_metadata
from dray.node.roles.meta import run_meta
from dray.objects.files import FileObjects
from dray.offload import ThreadOffload
from dray.replica.keeping import KeepLimits
from dray.testing import broker
from tests.cli.test_serving import produce

pytestmark = pytest.mark.slow

HASTY = KeepLimits(kept_ms=0, kept_bytes=1 << 30)
BUSY = MetadataOptions(checkpoint_due_bytes=1, checkpoint_kept_ms=0, checkpoint_look_s=0.05)
LIMIT_S = 120


def config(data: Path, **settings: object) -> Config:
    given = {"broker.data": data, "log.segment_bytes": "1MiB"} | {
        key.replace("__", "."): value for key, value in settings.items()
    }
    return load(SECTIONS, environ={}, overrides=[parse_set(f"{key}={value}") for key, value in given.items()])


@pytest.fixture
def effects() -> Iterator[Effects]:
    offload = ThreadOffload(4)
    yield Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    offload.close()


@asynccontextmanager
async def joined(meta: Path, root: Path, effects: Effects) -> AsyncIterator[Metadata]:
    """A broker without its servers."""
    owner, ours = owner_of(DataDirectory(meta).socket, effects.disk), joined_directory(root)
    effects.disk.make_dir(root)
    identity = ours.claim(effects.disk, effects.entropy, owner.identity.cluster)
    objects = FileObjects(owner.directory.objects, effects.disk, effects.offload, effects.entropy)
    await objects.open()
    source = Joined(log_owner=owner, directory=ours, objects=objects)
    async with run_metadata(source, identity, effects, BUSY) as running:
        yield running


async def is_trimmed(metadata: Metadata) -> bool:
    try:
        await anext(metadata.domains.catalog.log.follow(Position(0)))
    except Trimmed:
        return True
    return False


async def create(metadata: Metadata, number: int) -> None:
    topic = CreateTopic(topic_id=number.to_bytes(16, "big"), name=f"topic-{number}", partitions=1)
    await metadata.domains.catalog.propose(topic)


async def test_who_joins_late_finds_a_checkpoint_though_every_broker_before_it_lost_its_disk(
    tmp_path: Path, effects: Effects
) -> None:
    """CK1, CK4, CK6, R-002: the log is trimmed by its server, to copies of what the brokers confirmed."""
    meta = tmp_path / "meta"
    async with run_meta(
        config(meta, cluster__domains=2, log__segment_bytes="8KiB", log__max_entry_bytes="8KiB"), HASTY, look_s=0.05
    ):
        number = 0
        async with joined(meta, tmp_path / "a", effects) as a, joined(meta, tmp_path / "b", effects) as b:
            assert [domain for domain, _ in a.domains] == [0, 1, 2]
            async with asyncio.timeout(LIMIT_S):
                while not await is_trimmed(a):
                    number += 1
                    await create(a if number % 2 else b, number)
                    await asyncio.sleep(0.01)
        for name in ("a", "b"):
            shutil.rmtree(tmp_path / name)
        async with joined(meta, tmp_path / "late", effects) as late:
            names = {topic.name for topic in late.domains.catalog.machine.topics.all.values()}
            assert names == {f"topic-{n}" for n in range(1, number + 1)}
            state = checkpoint.fingerprint(late.domains.catalog.machine)
            assert state
    assert list((meta / "meta" / "domain-00000" / "checkpoints").glob("*.checkpoint")), "it can be started again"


def use(data: Path, **settings: object) -> None:
    """A broker comes up, takes a record, and stops."""
    with broker(data, **settings) as dray:
        produce(dray.bootstrap)


async def test_a_directory_is_served_by_a_broker_then_by_a_log_server_then_by_a_broker(tmp_path: Path) -> None:
    """What each of them left is what the next one goes on with."""
    data, socket = tmp_path / "data", tmp_path / "data" / "meta.sock"
    await asyncio.to_thread(use, data)
    async with run_meta(config(data)):
        await asyncio.to_thread(use, tmp_path / "b", log__url=f"unix:{socket}")
        with pytest.raises(DirectoryInUse):
            await asyncio.to_thread(use, data)
    await asyncio.to_thread(use, data)
    assert not (data / "meta.alone").exists()


async def test_a_log_server_refuses_to_start_without_a_domain_that_its_catalog_names(tmp_path: Path) -> None:
    """ND4"""
    data = tmp_path / "data"
    async with run_meta(config(data, cluster__domains=4)):
        pass
    (data / "log.json").unlink()
    shutil.rmtree(data / "meta" / "domain-00002")
    with pytest.raises(Corrupt, match="missing=2") as raised:
        async with run_meta(config(data)):
            pass
    assert exit_code(raised.value) == 4


def ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_a_log_server_tells_its_health_and_metrics_where_it_is_told_to(tmp_path: Path) -> None:
    """And nowhere if nobody says where: a broker beside it has the port that is the default."""
    async with run_meta(config(tmp_path / "quiet")) as quiet:
        assert quiet.http is None
    async with run_meta(config(tmp_path / "meta", http__listen="127.0.0.1:0")) as meta:
        assert meta.http is not None
        for path in ("livez", "healthz"):
            assert (await asyncio.to_thread(ask, f"{meta.http.url}{path}"))[0] == 200
        code, told = await asyncio.to_thread(ask, f"{meta.http.url}readyz")
        assert (code, json.loads(told)) == (
            200, {"ready": True, "store": "ok", "disk": "ok", "tasks": "ok", "stop": "ok"}
        )  # fmt: skip
        code, told = await asyncio.to_thread(ask, f"{meta.http.url}metrics")
        assert code == 200
        assert 'dray_log_bytes{domain="0"}' in told
        shutil.rmtree(tmp_path / "meta" / "objects")
        async with asyncio.timeout(LIMIT_S):  # one look at the store serves for a while
            while (await asyncio.to_thread(ask, f"{meta.http.url}readyz"))[0] != 503:
                await asyncio.sleep(0.1)
        assert (await asyncio.to_thread(ask, f"{meta.http.url}livez"))[0] == 200
