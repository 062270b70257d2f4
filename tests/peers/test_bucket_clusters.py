"""Brokers that share a bucket and nothing else."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.objects.opening import StoreEffects, open_store
from dray.objects.port import Objects
from dray.offload import InlineOffload
from tests.durability.cluster import QUICK
from tests.durability.commits import check_commits
from tests.durability.daemon import Drayd
from tests.durability.survivors import the_third_has_everything
from tests.golden.asking import Asker, batch
from tests.objects.servers import S3Server, versity

pytestmark = pytest.mark.peers

SEED = 20261119


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


class Bucket:
    """A prefix of a cluster, as its brokers name it and as a test looks into it."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.url = f"s3://{server.new_bucket()}/dray"

    def flags(self, **other: str) -> list[str]:
        store = self.server.options
        values = {
            "url": self.url, "endpoint": store.endpoint, "allow_http": "true", "region": store.region,
            "access_key_id": store.access_key, "secret_access_key": store.secret_key,
        } | other  # fmt: skip
        sets = [part for name, value in values.items() for part in ("--set", f"objects.{name}={value}")]
        return ["--log", "deltalog:", *QUICK, "--set", "cluster.domains=1", *sets]

    async def open(self) -> Objects:
        effects = StoreEffects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())
        return await open_store(self.url, self.server.options, effects)


@pytest.fixture
def prefix(bucket: S3Server) -> Bucket:
    return Bucket(bucket)


@pytest.fixture
async def brokers(prefix: Bucket, tmp_path: Path) -> AsyncIterator[list[Drayd]]:
    found = [Drayd(tmp_path / f"broker-{n}", *prefix.flags(), "--set", f"broker.id={n}") for n in (1, 2, 3)]
    async with AsyncExitStack() as stack:
        for one in found:
            stack.push(one.__exit__)
        await asyncio.gather(*(asyncio.to_thread(one.start) for one in found))  # they begin the cluster together
        yield found


async def test_two_of_three_die_with_their_disks_and_the_third_has_everything(
    brokers: list[Drayd], prefix: Bucket, tmp_path: Path
) -> None:
    """R-002, L-02, L-12, L-13, L-14, L-16, L-17, L-54: and the commits in the bucket tell the same offsets."""
    await the_third_has_everything(brokers, tmp_path, SEED, seconds=14)
    objects = await prefix.open()
    await check_commits(objects, objects)
    await objects.close()


async def names(objects: Objects, prefix: str) -> list[str]:
    return [info.path async for info in objects.list(prefix)]


async def test_a_log_that_is_wiped_stops_brokers_with_a_reason_and_nothing_is_deleted(
    brokers: list[Drayd], prefix: Bucket
) -> None:
    """ND6, LG44."""
    async with Asker(brokers[0].bootstrap) as ask:
        await ask.create("kept")
        assert (await ask.produce("kept", batch(b"x"))).error_code == 0
    objects = await prefix.open()
    records = await names(objects, "wal/")
    assert records
    for name in await names(objects, "log/"):
        await objects.delete(name)
    for one in brokers:
        assert await asyncio.to_thread(one.ended) != 0
        # By the missing commits, or by what others have written meanwhile under names that were free again.
        assert re.search("restore (it from )?a backup", "".join(one.log))
    with pytest.raises(AssertionError, match="the store holds the records of a cluster"):
        await asyncio.to_thread(brokers[0].start)
    assert await names(objects, "wal/") == records
    await objects.close()


def refusal(broker: Drayd) -> str:
    """What a broker says that does not start."""
    with pytest.raises(AssertionError) as refused:
        broker.start()
    return str(refused.value) + "".join(broker.log)


def test_wrong_credentials_are_told_and_never_shown(prefix: Bucket, tmp_path: Path) -> None:
    said = refusal(Drayd(tmp_path / "broker", *prefix.flags(secret_access_key="not-the-key-0123456789")))
    assert "credentials" in said
    assert "not-the-key" not in said


def test_a_broker_of_another_cluster_is_refused_and_writes_nothing(
    bucket: S3Server, prefix: Bucket, tmp_path: Path
) -> None:
    other = Bucket(bucket)
    with Drayd(tmp_path / "broker", *prefix.flags()), Drayd(tmp_path / "other", *other.flags()):
        pass
    assert "another cluster" in refusal(Drayd(tmp_path / "broker", *other.flags()))
