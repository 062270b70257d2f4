"""Brokers that share nothing but an etcd for their log and a bucket for their records."""

import asyncio
import base64
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
from tools.peers.etcd import Etcd, EtcdMember, etcd, newest

pytestmark = pytest.mark.peers

SEED = 20261119


@pytest.fixture(scope="module")
def trio() -> Iterator[Etcd]:
    with etcd(3, program=newest()) as running:
        yield running


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
async def brokers(trio: Etcd, bucket: S3Server, tmp_path: Path) -> AsyncIterator[list[Drayd]]:
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


def leader_dies(trio: Etcd) -> Fault:
    dead: list[EtcdMember] = []

    async def start() -> None:
        dead.append(trio.leader())
        dead[-1].kill()

    async def stop() -> None:
        dead[-1].launch()
        dead.pop().wait()

    return Fault(name="kill -9", target="the leader of etcd", start=start, stop=stop)


async def test_the_leader_of_etcd_and_two_of_three_brokers_die_and_the_third_has_everything(
    brokers: list[Drayd], trio: Etcd, tmp_path: Path
) -> None:
    """K-050, R-002, R-089, LG27: none missing, none doubled, whoever dies."""
    await the_third_has_everything(brokers, tmp_path, SEED, leader_dies(trio), seconds=24)


def grown_and_shrunk(all_of_them: list[Drayd]) -> Fault:
    """Three more come; then four of the six go, the oldest ones. Once."""
    coming, leaving = all_of_them[3:], all_of_them[:4]

    async def start() -> None:
        await asyncio.gather(*(asyncio.to_thread(coming.pop().start) for _ in range(len(coming))))

    async def stop() -> None:
        while leaving:
            assert await asyncio.to_thread(leaving.pop(0).terminate) == 0

    return Fault(name="3 -> 6 -> 2", target="the brokers", start=start, stop=stop)


@pytest.mark.long
async def test_brokers_come_and_go_under_load_and_nobody_does_anything(brokers: list[Drayd], tmp_path: Path) -> None:
    """K-053: none of them has anything that another needs."""
    same = brokers[0].flags[:-2]
    more = [Drayd(tmp_path / f"broker-{n}", *same, "--set", f"broker.id={n}") for n in (4, 5, 6)]
    async with AsyncExitStack() as stack:
        for one in more:
            stack.push(one.__exit__)
        judgement = await run_history(
            tmp_path / "history", ",".join(one.bootstrap for one in (*brokers, *more)), "confluent", SEED + 2,
            partitions=4, faults=[grown_and_shrunk([*brokers, *more])], seconds=40, quiet_seconds=5, fault_seconds=15,
            drain_seconds=180, delivery_s=120,
        )  # fmt: skip
        assert_valid(judgement, 100)
        for one in more[1:]:
            async with Asker(one.bootstrap) as ask:
                assert len((await ask.metadata()).brokers) == 2


def broker_sleeps(one: Drayd) -> Fault:
    async def start() -> None:
        one.freeze()

    async def stop() -> None:
        one.thaw()

    return Fault(name="SIGSTOP", target="a broker", start=start, stop=stop)


def leader_sleeps(trio: Etcd) -> Fault:
    asleep: list[EtcdMember] = []

    async def start() -> None:
        asleep.append(trio.leader())
        asleep[-1].pause()

    async def stop() -> None:
        asleep.pop().resume()

    return Fault(name="SIGSTOP", target="the leader of etcd", start=start, stop=stop)


async def test_a_broker_that_slept_longer_than_its_session_changes_nothing_when_it_wakes(
    brokers: list[Drayd], trio: Etcd, tmp_path: Path
) -> None:
    """K-051, T12, R-002: its session is over, what it still sends is dead; and so with the leader of etcd."""
    judgement = await run_history(
        tmp_path / "history", ",".join(one.bootstrap for one in brokers), "confluent", SEED + 1, partitions=4,
        faults=[broker_sleeps(brokers[0]), leader_sleeps(trio)], seconds=30, quiet_seconds=3, fault_seconds=9,
        drain_seconds=120,
    )  # fmt: skip
    assert_valid(judgement, 100)
    assert len(judgement.history.faults) >= 2
    for one in brokers:
        async with Asker(one.bootstrap) as ask:
            assert await ask.metadata() is not None


async def test_an_etcd_that_is_wiped_stops_brokers_with_a_reason_and_nothing_is_deleted(
    brokers: list[Drayd], trio: Etcd, tmp_path: Path
) -> None:
    """ND6, LG27."""
    async with Asker(brokers[0].bootstrap) as ask:
        await ask.create("kept")
        assert (await ask.produce("kept", batch(b"x"))).error_code == 0
    first, last = (base64.b64encode(f"{tmp_path.name}{end}".encode()).decode() for end in "/0")
    trio.members[0].ask("/v3/kv/deleterange", {"key": first, "range_end": last})
    for one in brokers:
        assert await asyncio.to_thread(one.ended) != 0
        assert "restore it from a backup" in "".join(one.log)
    with pytest.raises(AssertionError, match="the store holds the records of a cluster"):
        await asyncio.to_thread(brokers[0].start)
