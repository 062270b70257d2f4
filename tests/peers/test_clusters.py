"""Brokers that share nothing but a database for their log and a bucket for their records."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import Corrupt
from dray.ids import SystemEntropy
from dray.log.port import Position, Trimmed
from dray.log.urls import PostgresLogs
from dray.machine import checkpoint
from dray.machine.topics import CreateTopic
from dray.node.clustered import Clustered
from dray.node.directory import new_identity
from dray.node.joining import joined_directory
from dray.node.metadata import Effects, Metadata, MetadataOptions, run_metadata
from dray.objects.cluster import mark_begun
from dray.objects.files import FileObjects
from dray.offload import ThreadOffload
from dray.testing.history.workload import Fault
from tests.durability.cluster import QUICK
from tests.durability.daemon import Drayd
from tests.durability.survivors import the_third_has_everything
from tests.golden.asking import Asker, batch
from tests.objects.servers import S3Server, versity
from tools.peers.postgres import USER, Postgres, postgres

pytestmark = pytest.mark.peers

SEED = 20261118
LIMIT_S = 120


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


async def database(server: Postgres, name: str) -> str:
    """A new one, as a URL of a log."""
    connection = await asyncpg.connect(server.url)
    await connection.execute(f"create database {name}")
    await connection.close()
    return f"postgresql://{USER}@127.0.0.1:{server.port}/{name}"


@pytest.fixture
async def brokers(server: Postgres, bucket: S3Server, tmp_path: Path) -> AsyncIterator[list[Drayd]]:
    url = await database(server, f"d{tmp_path.name.replace('-', '_').lower()}")
    store = bucket.options
    flags = [
        "--log", url, *QUICK, "--set", "cluster.domains=2", "--set", f"objects.url=s3://{bucket.new_bucket()}/dray",
        "--set", f"objects.endpoint={store.endpoint}", "--set", "objects.allow_http=true",
        "--set", f"objects.region={store.region}", "--set", f"objects.access_key_id={store.access_key}",
        "--set", f"objects.secret_access_key={store.secret_key}",
    ]  # fmt: skip
    found = [Drayd(tmp_path / f"broker-{n}", *flags, "--set", f"broker.id={n}") for n in (1, 2, 3)]
    async with AsyncExitStack() as stack:
        for one in found:
            stack.push(one.__exit__)
        # All at once: they begin the cluster together.
        await asyncio.gather(*(asyncio.to_thread(one.start) for one in found))
        yield found


def database_dies(server: Postgres) -> Fault:
    async def start() -> None:
        server.kill()

    async def stop() -> None:
        server.start()

    return Fault(name="immediate stop", target="the database", start=start, stop=stop)


async def test_two_of_three_and_the_database_die_and_the_third_has_everything(
    brokers: list[Drayd], server: Postgres, tmp_path: Path
) -> None:
    """R-002, R-089: no broker is special, and none has anything that another could not make again."""
    await the_third_has_everything(brokers, tmp_path, SEED, database_dies(server), seconds=24)


async def test_a_database_that_is_wiped_stops_brokers_with_a_reason_and_nothing_is_deleted(
    brokers: list[Drayd],
) -> None:
    """ND6, LG24."""
    async with Asker(brokers[0].bootstrap) as ask:
        await ask.create("kept")
        assert (await ask.produce("kept", batch(b"x"))).error_code == 0
    url = brokers[0].flags[brokers[0].flags.index("--log") + 1]
    connection = await asyncpg.connect(url)
    await connection.execute("delete from dray_entry; delete from dray_log")
    await connection.close()
    for one in brokers:
        assert await asyncio.to_thread(one.ended) != 0
        assert "restore it from a backup" in "".join(one.log)
    with pytest.raises(AssertionError, match="the store holds the records of a cluster"):
        await asyncio.to_thread(brokers[0].start)


@pytest.fixture
def effects() -> Iterator[Effects]:
    offload = ThreadOffload(4)
    yield Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    offload.close()


BUSY = MetadataOptions(domains=2, checkpoint_due_bytes=1, checkpoint_kept_ms=0, checkpoint_look_s=0.05)


@asynccontextmanager
async def member(url: str, home: Path, name: str, effects: Effects) -> AsyncIterator[Metadata]:
    """A broker without its servers; the store is a directory that all share."""
    objects = FileObjects(home / "objects", effects.disk, effects.offload, effects.entropy)
    await objects.open()
    ours = joined_directory(home / name)
    effects.disk.make_dir(ours.root)
    identity = ours.claim(effects.disk, effects.entropy, new_identity(Fixed()).cluster)
    source = Clustered(url=PostgresLogs(url), directory=ours, objects=objects)
    async with run_metadata(source, identity, effects, BUSY) as running:
        await mark_begun(objects)
        yield running


class Fixed(SystemEntropy):
    """Draws the same cluster for everybody."""

    def random_bytes(self, count: int) -> bytes:
        return b"\7" * count


async def is_trimmed(metadata: Metadata) -> bool:
    try:
        await anext(metadata.domains.catalog.log.follow(Position(0)))
    except Trimmed:
        return True
    return False


async def test_who_comes_after_a_trim_finds_a_checkpoint_though_everybody_before_lost_its_disk(
    server: Postgres, tmp_path: Path, effects: Effects
) -> None:
    """CK4, CK6."""
    url = await database(server, "late")
    number = 0
    async with member(url, tmp_path, "a", effects) as a, member(url, tmp_path, "b", effects) as b:
        assert [domain for domain, _ in a.domains] == [0, 1, 2]
        async with asyncio.timeout(LIMIT_S):
            while not await is_trimmed(a):
                number += 1
                topic = CreateTopic(topic_id=number.to_bytes(16, "big"), name=f"topic-{number}", partitions=1)
                await (a if number % 2 else b).domains.catalog.propose(topic)
                await asyncio.sleep(0.01)
    for name in ("a", "b"):
        shutil.rmtree(tmp_path / name)
    async with member(url, tmp_path, "late", effects) as late:
        machine = late.domains.catalog.machine
        assert {topic.name for topic in machine.topics.all.values()} == {f"topic-{n}" for n in range(1, number + 1)}
        assert checkpoint.fingerprint(machine)


async def test_an_empty_log_beside_a_store_of_a_cluster_is_not_begun_anew(
    server: Postgres, tmp_path: Path, effects: Effects
) -> None:
    """ND6."""
    async with member(await database(server, "first"), tmp_path, "a", effects):
        pass
    other = await database(server, "second")
    with pytest.raises(Corrupt, match=r"set log\.url to what its other brokers"):
        async with member(other, tmp_path, "b", effects):
            pass
