"""Brokers that share nothing but an Oxia for their log, here our double of it, and a bucket for their records."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dray.testing.history.workload import Fault
from tests.durability.cluster import QUICK
from tests.durability.daemon import Drayd
from tests.durability.histories import assert_valid, run_history
from tests.durability.survivors import the_third_has_everything
from tests.golden.asking import Asker, batch
from tests.objects.servers import S3Server, versity
from tests.peers.test_etcd_clusters import broker_sleeps
from tools.peers.oxia_double import OxiaDouble, oxia_double

pytestmark = pytest.mark.peers

SEED = 20261121


@pytest.fixture(scope="module")
def trio() -> Iterator[OxiaDouble]:
    with oxia_double(nodes=3, shards=2) as running:
        yield running


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
async def brokers(trio: OxiaDouble, bucket: S3Server, tmp_path: Path) -> AsyncIterator[list[Drayd]]:
    store = bucket.options
    flags = [
        "--log", trio.url(tmp_path.name), *QUICK, "--set", "cluster.domains=2",
        "--set", f"objects.url=s3://{bucket.new_bucket()}/dray",
        "--set", f"objects.endpoint={store.endpoint}", "--set", "objects.allow_http=true",
        "--set", f"objects.region={store.region}", "--set", f"objects.access_key_id={store.access_key}",
        "--set", f"objects.secret_access_key={store.secret_key}",
    ]  # fmt: skip
    found = [Drayd(tmp_path / f"broker-{n}", *flags, "--set", f"broker.id={n}") for n in (1, 2, 3)]
    async with AsyncExitStack() as stack:
        for one in found:
            stack.push(one.__exit__)
        await asyncio.gather(*(asyncio.to_thread(one.start) for one in found))
        yield found


def leader_dies(trio: OxiaDouble) -> Fault:
    """It is away, then another one leads; it comes back as one of the others."""

    async def start() -> None:
        trio.order("down", node=0)
        await asyncio.sleep(0.5)
        trio.order("lead", node=1)

    async def stop() -> None:
        trio.order("up", node=0)
        trio.order("lead", node=0)

    return Fault(name="down", target="the leader of Oxia", start=start, stop=stop)


def leader_is_cut_off(trio: OxiaDouble) -> Fault:
    """It still answers reads, and does not know that another one leads."""

    async def start() -> None:
        trio.order("depose", node=2)

    async def stop() -> None:
        trio.order("lead", node=0)
        trio.order("heal")

    return Fault(name="cut off", target="the leader of Oxia", start=start, stop=stop)


async def test_leaders_of_oxia_and_two_of_three_brokers_die_and_the_third_has_everything(
    brokers: list[Drayd], trio: OxiaDouble, tmp_path: Path
) -> None:
    """R-002, R-089, LG52, LG53: none missing, none doubled, whoever dies."""
    await the_third_has_everything(brokers, tmp_path, SEED, leader_dies(trio), seconds=20)


async def test_a_broker_that_slept_longer_than_its_session_changes_nothing_when_it_wakes(
    brokers: list[Drayd], trio: OxiaDouble, tmp_path: Path
) -> None:
    """T12, R-002, LG54: its session is over, what it still sends is dead; and so with a leader that was cut off."""
    judgement = await run_history(
        tmp_path / "history", ",".join(one.bootstrap for one in brokers), "confluent", SEED + 1, partitions=4,
        faults=[broker_sleeps(brokers[0]), leader_is_cut_off(trio)], seconds=30, quiet_seconds=3, fault_seconds=9,
        drain_seconds=120,
    )  # fmt: skip
    assert_valid(judgement, 100)
    assert len(judgement.history.faults) >= 2
    for one in brokers:
        async with Asker(one.bootstrap) as ask:
            assert await ask.metadata() is not None


async def test_an_oxia_that_is_wiped_stops_brokers_with_a_reason_and_nothing_is_deleted(
    brokers: list[Drayd], trio: OxiaDouble
) -> None:
    """ND6, LG53."""
    async with Asker(brokers[0].bootstrap) as ask:
        await ask.create("kept")
        assert (await ask.produce("kept", batch(b"x"))).error_code == 0
    trio.order("wipe")
    for one in brokers:
        assert await asyncio.to_thread(one.ended) != 0
        assert "restore it from a backup" in "".join(one.log)
    with pytest.raises(AssertionError, match="the store holds the records of a cluster"):
        await asyncio.to_thread(brokers[0].start)
