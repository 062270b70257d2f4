"""A broker in a network of its own, cut off from the log, from the store or from both, and joined again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from dray.testing.history.workload import Fault
from tests.durability.cluster import QUICK
from tests.durability.daemon import Drayd
from tests.durability.histories import assert_valid, run_history
from tests.golden.asking import Asker, batch, records_in
from tests.objects.servers import S3Server, versity
from tools.peers.etcd import Etcd, packaged
from tools.peers.network import Namespace, namespace
from tools.peers.postgres import USER, postgres, program
from tools.peers.process import run

pytestmark = pytest.mark.peers

SEED = 20261121
AWAY_S = 9.0
"""Longer than the session of a broker lives."""


@pytest.fixture(scope="module")
def apart() -> Iterator[Namespace]:
    with namespace() as found:
        yield found


@contextmanager
def in_etcd(host: str, directory: Path) -> Iterator[Callable[[str], str]]:
    server = Etcd(directory, program=packaged(), hosts=[host])
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


@contextmanager
def in_postgres(host: str, _: Path) -> Iterator[Callable[[str], str]]:
    with postgres(host) as server:

        def database(name: str) -> str:
            made = f"t_{name.lower().replace('-', '_')}"
            run([program("createdb"), "-h", server.host, "-p", str(server.port), "-U", USER, made])
            return server.url.removesuffix("postgres") + made

        yield database


LOGS = {"etcd": in_etcd, "postgres": in_postgres}


@pytest.fixture(scope="module", params=["etcd"])
def log_url(
    request: pytest.FixtureRequest, apart: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], str]]:
    """Where the log of a name is; the server is at the first address that can be cut off."""
    with LOGS[request.param](apart.first, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def bucket(apart: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3"), apart.second) as running:
        yield running


@pytest.fixture
async def brokers(
    apart: Namespace, log_url: Callable[[str], str], bucket: S3Server, tmp_path: Path
) -> AsyncIterator[list[Drayd]]:
    """The first is in there, the second is with us."""
    store = bucket.options
    flags = [
        "--log", log_url(tmp_path.name), *QUICK, "--set", "cluster.domains=2",
        "--set", f"objects.url=s3://{bucket.new_bucket()}/dray", "--set", f"objects.endpoint={store.endpoint}",
        "--set", "objects.allow_http=true", "--set", f"objects.region={store.region}",
        "--set", f"objects.access_key_id={store.access_key}", "--set", f"objects.secret_access_key={store.secret_key}",
        "--set", "objects.attempt_timeout=3s", "--set", "objects.deadline=15s",
    ]  # fmt: skip
    inside = Drayd(tmp_path / "inside", *flags, "--set", "broker.id=1", host=apart.inside)
    inside.prefix = apart.prefix
    outside = Drayd(tmp_path / "outside", *flags, "--set", "broker.id=2")
    async with AsyncExitStack() as stack:
        for one in (inside, outside):
            stack.push(one.__exit__)
            await asyncio.to_thread(one.start)
        yield [inside, outside]


def cut_off(apart: Namespace, *addresses: str) -> Fault:
    async def start() -> None:
        await asyncio.to_thread(apart.cut, *addresses)

    async def stop() -> None:
        await asyncio.to_thread(apart.heal)

    return Fault(name="partition", target=" ".join(addresses), start=start, stop=stop)


@pytest.mark.parametrize(
    ("log_url", "parts"),
    [
        ("etcd", "log"),
        ("etcd", "store"),
        ("etcd", "both"),
        pytest.param("postgres", "log", marks=pytest.mark.long),
        pytest.param("postgres", "both", marks=pytest.mark.long),
    ],
    indirect=["log_url"],
)
async def test_a_broker_that_is_cut_off_changes_nothing_when_it_is_back(
    brokers: list[Drayd], apart: Namespace, tmp_path: Path, parts: str
) -> None:
    """T12, R-002: its session has ended meanwhile; what it had under way is acknowledged once or not at all."""
    inside, outside = brokers
    addresses = {"log": [apart.first], "store": [apart.second], "both": [apart.first, apart.second]}[parts]
    judgement = await run_history(
        tmp_path / "history", f"{inside.bootstrap},{outside.bootstrap}", "confluent", SEED, partitions=4,
        faults=[cut_off(apart, *addresses)], seconds=20, quiet_seconds=3, fault_seconds=AWAY_S, drain_seconds=180,
        delivery_s=240,
    )  # fmt: skip
    assert_valid(judgement, 50)
    assert judgement.history.faults
    for number, one in enumerate(brokers):  # both serve, and say the same
        async with Asker(one.bootstrap) as ask:
            await ask.create(f"after-{number}")
            assert (await ask.produce(f"after-{number}", batch(b"x"))).error_code == 0
    async with Asker(outside.bootstrap) as ask:
        assert (await ask.offset_at("after-0", -1)).offset == 1


@pytest.mark.parametrize("log_url", ["etcd", "postgres"], indirect=True)
async def test_what_a_broker_sends_from_behind_a_partition_is_dead(
    brokers: list[Drayd], apart: Namespace, tmp_path: Path
) -> None:
    """D-303, T12: it takes a record, cannot commit it, and its session is ended by the other one before it is back."""
    inside, outside = brokers
    async with Asker(inside.bootstrap) as ask, Asker(outside.bootstrap) as other:
        await ask.create("t", partitions=1)
        assert (await ask.produce("t", batch(b"first"))).error_code == 0
        await asyncio.to_thread(apart.cut, apart.first)
        stuck = asyncio.create_task(ask.produce("t", batch(b"stuck")))
        try:
            async with asyncio.timeout(120):
                while len((await other.metadata()).brokers) == 2:  # until its session is over
                    await asyncio.sleep(0.2)
            assert (await other.produce("t", batch(b"second"))).error_code == 0
        finally:
            await asyncio.to_thread(apart.heal)
        async with asyncio.timeout(120):
            answer = await stuck
            while len((await other.metadata()).brokers) != 2:
                await asyncio.sleep(0.2)
        end = (await other.offset_at("t", -1)).offset
        assert end == (2 if answer.error_code else 3), answer
        # An acknowledged record is behind what was acknowledged before it was sent again; a refused one is nowhere.
        assert answer.error_code or answer.base_offset == 2
        found = records_in(await other.fetch("t"))
        assert found.count(b"second") == 1
        assert found.count(b"stuck") == (0 if answer.error_code else 1)
