"""`drayd admin meta`: beside a running broker, on a closed directory, and on a damaged one."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import Corrupt
from dray.ids import SystemEntropy
from dray.machine.producer_ids import AllocateProducerId
from dray.machine.sessions import KeepAlive
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects
from dray.offload import ThreadOffload
from dray.topics.service import NewTopic, TopicService

from .test_metadata import metadata

pytestmark = pytest.mark.slow  # each command is a process


@pytest.fixture
def effects():
    offload = ThreadOffload(4)
    yield Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    offload.close()


async def drayd(*arguments: object, code: int = 0, stream: str = "") -> str:
    child = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "drayd"), *map(str, arguments),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = await child.communicate()
    assert child.returncode == code, f"{out.decode()} {err.decode()}"
    return (out if code == 0 or stream == "stdout" else err).decode()


async def fill(running) -> None:
    topics = TopicService(domains=running.domains, entropy=SystemEntropy(), clock=SystemClock())
    await topics.create(NewTopic(name="orders", partitions=3, replication_factor=1, configs={}))


async def check_views(path: Path) -> None:
    keys = (await drayd("admin", "meta", "ls", path)).split()
    assert "/dray/v1/topics/orders" in keys
    assert keys == sorted(keys)
    value = json.loads(await drayd("admin", "meta", "get", path, "/dray/v1/topics/orders"))
    assert value["partitionCount"] == 3
    entries = [json.loads(line) for line in (await drayd("admin", "meta", "tail", path, "-n", 1000)).splitlines()]
    assert [entry["position"] for entry in entries] == list(range(1, len(entries) + 1))
    assert "CreateTopic" in json.dumps(entries)
    assert "the log is whole" in await drayd("admin", "meta", "verify", path)


async def test_the_state_and_the_entries_are_shown_beside_a_running_broker_and_without_one(tmp_path, effects):
    """R-054: through meta.sock, then on the closed directory: the same."""
    async with metadata(tmp_path, effects) as running:
        await fill(running)
        await check_views(tmp_path)
    await check_views(tmp_path)


async def test_what_does_not_exist_is_said_so(tmp_path, effects):
    async with metadata(tmp_path, effects):
        assert "no such key" in await drayd("admin", "meta", "get", tmp_path, "/dray/v1/topics/none", code=1)
    assert "no such domain" in await drayd("admin", "meta", "ls", tmp_path, "--domain", 7, code=1)
    assert "no such file" in await drayd("admin", "meta", "ls", tmp_path / "elsewhere", code=1)


def damage_the_middle(path: Path) -> None:
    segment = next((path / "meta" / "domain-00000" / "log").glob("*.log"))
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    segment.write_bytes(raw)


async def test_a_damaged_log_is_refused_and_recovered_under_a_new_log_id(tmp_path, effects):
    """Q6: what was there is kept aside; producer ids begin above the lost generation's."""
    async with metadata(tmp_path, effects) as running:
        await fill(running)
        catalog = running.domains.catalog
        (given,) = await catalog.propose(AllocateProducerId())
        old_log_id = catalog.machine.log_id
        for _ in range(200):
            await catalog.propose(KeepAlive())
    damage_the_middle(tmp_path)
    assert "recover" in await drayd("admin", "meta", "ls", tmp_path, code=1)
    with pytest.raises(Corrupt, match="drayd admin meta recover"):
        async with metadata(tmp_path, effects):
            pass
    said = json.loads(await drayd("admin", "meta", "recover", tmp_path, "--yes", "--format", "json"))
    assert Path(said["aside"]).is_dir()
    async with metadata(tmp_path, effects) as running:
        catalog = running.domains.catalog
        assert catalog.machine.head.generation == 1
        assert catalog.machine.log_id != old_log_id
        assert catalog.machine.topics.named("orders") is not None
        (again,) = await catalog.propose(AllocateProducerId())
        assert again.producer_id >= 1 << 40 > given.producer_id
    assert "the log is whole" in await drayd("admin", "meta", "verify", tmp_path)


async def test_a_recovery_that_was_cut_short_is_refused_and_then_finished(tmp_path, effects):
    """RC1: the process died between the two renames."""
    async with metadata(tmp_path, effects) as running:
        await fill(running)
    await drayd("admin", "meta", "recover", tmp_path, "--yes")
    home = DataDirectory(tmp_path).home(0)
    home.rename(home.with_name(f"fresh-{home.name}"))
    with pytest.raises(Corrupt, match="recovery was cut short"):
        async with metadata(tmp_path, effects):
            pass
    assert "now finished" in await drayd("admin", "meta", "recover", tmp_path, "--yes", code=1)
    async with metadata(tmp_path, effects) as running:
        assert running.domains.catalog.machine.topics.named("orders") is not None


async def test_a_log_that_vanished_is_damage_and_not_a_new_cluster(tmp_path, effects):
    """ND2: corrupt metadata is never read as nothing."""
    async with metadata(tmp_path, effects) as running:
        await fill(running)
    home = DataDirectory(tmp_path).home(0)
    for segment in (home / "log").glob("*.log"):
        segment.unlink()
    with pytest.raises(Corrupt, match="restore it"):
        async with metadata(tmp_path, effects):
            pass
    home.rename(home.with_name("lost"))
    with pytest.raises(Corrupt, match="missing"):
        async with metadata(tmp_path, effects):
            pass


async def test_verify_finds_a_checkpoint_that_is_not_what_the_log_says(tmp_path, effects):
    async with metadata(tmp_path, effects, checkpoint_due_bytes=2_000) as running:
        for _ in range(40):
            await running.domains.catalog.propose(AllocateProducerId())
        made = DataDirectory(tmp_path).checkpoints(0)
        async with asyncio.timeout(60):
            while not list(made.glob("*.checkpoint")):
                await asyncio.sleep(0.05)
    assert "equal to the fold: " in await drayd("admin", "meta", "verify", tmp_path)
    found = sorted(made.glob("*.checkpoint"))[-1]
    raw = bytearray(found.read_bytes())
    raw[-40] ^= 1
    found.write_bytes(raw)
    assert "checkpoint" in await drayd("admin", "meta", "verify", tmp_path, code=1)
