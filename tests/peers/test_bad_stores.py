"""Brokers on a store that fails: produce and fetch through a proxy that hurts requests, and stores that are refused."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dray.testing.history.workload import Fault
from tests.durability.daemon import DRAYD, Drayd
from tests.durability.histories import assert_valid, run_history
from tests.golden.asking import Asker, batch, records_in
from tests.objects.fault_proxy import Choose, FaultProxy, Hurt, fault_proxy, first, nothing, some
from tests.objects.s3_double import s3_double
from tests.objects.servers import S3Server, versity

pytestmark = pytest.mark.peers

SEED = 20261120
REFUSED = [Hurt.SLOW_DOWN, Hurt.TOO_MANY, Hurt.BROKEN, Hurt.RESET]
UNKNOWN = [Hurt.LOST, Hurt.BROKEN_AFTER, Hurt.CONFLICT, Hurt.LATE, Hurt.ERROR_IN_BODY]
DAMAGED = [Hurt.TRUNCATED, Hurt.SHORT, Hurt.LONG, Hurt.FLIPPED, Hurt.MISSING, Hurt.WHOLE]
READ_S = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
async def proxy(server: S3Server) -> AsyncIterator[FaultProxy]:
    assert server.options.endpoint is not None
    async with fault_proxy(server.options.endpoint) as found:
        found.remembers = False
        found.late_s = 8.0
        yield found


def flags(server: S3Server, url: str, endpoint: str, **other: str) -> list[str]:
    store = server.options
    values = {
        "url": url, "endpoint": endpoint, "allow_http": "true", "region": store.region, "attempt_timeout": "3s",
        "access_key_id": store.access_key, "secret_access_key": store.secret_key,
    } | other  # fmt: skip
    return [part for name, value in values.items() for part in ("--set", f"objects.{name}={value}")]


@contextlib.asynccontextmanager
async def served(broker: Drayd) -> AsyncIterator[Drayd]:
    """Started beside this loop, which serves the proxy."""
    with contextlib.ExitStack() as stack:
        stack.push(broker.__exit__)
        await asyncio.to_thread(broker.start)
        yield broker


def hurting(proxy: FaultProxy, name: str, choose: Choose) -> Fault:
    async def start() -> None:
        proxy.choose = choose

    async def stop() -> None:
        proxy.choose = nothing

    return Fault(name=name, target="requests to the store", start=start, stop=stop)


async def test_produce_and_fetch_go_on_while_the_store_fails(
    server: S3Server, proxy: FaultProxy, tmp_path: Path
) -> None:
    """S1-S5, S8: nothing acknowledged is lost, nothing is there twice, whatever becomes of a third of the requests."""
    faults = [
        hurting(proxy, "S1 S8", some(SEED, {"PUT": REFUSED, "GET": REFUSED, "HEAD": REFUSED, "LIST": REFUSED}, 0.3)),
        hurting(proxy, "S2 S3 S4 S5", some(SEED + 1, {"PUT": UNKNOWN}, 0.3)),
    ]
    async with served(Drayd(tmp_path / "broker", *flags(server, server.url(), proxy.endpoint))) as broker:
        judgement = await run_history(
            tmp_path / "history", broker.bootstrap, "confluent", SEED, partitions=2, faults=faults, seconds=24,
            quiet_seconds=2, fault_seconds=6, drain_seconds=120, delivery_s=240,
        )  # fmt: skip
    assert_valid(judgement, 50)
    assert set(proxy.hurt) & set(REFUSED), proxy.hurt
    assert set(proxy.hurt) & set(UNKNOWN), proxy.hurt


async def test_what_is_read_wrongly_is_never_served(server: S3Server, proxy: FaultProxy, tmp_path: Path) -> None:
    """S7: cut, too long, with another bit, said to be gone: an error to try again after, or the right bytes."""
    given = flags(server, server.url(), proxy.endpoint, retries="0", attempt_timeout="30s")
    async with served(Drayd(tmp_path / "broker", *given)) as broker:
        async with Asker(broker.bootstrap) as ask:
            for hurt in DAMAGED:
                await ask.create(hurt.name)
                assert (await ask.produce(hurt.name, _batch(hurt))).error_code == 0
        broker.kill()
        await asyncio.to_thread(broker.start)  # it remembers nothing of what it wrote
        async with Asker(broker.bootstrap) as ask:
            for hurt in DAMAGED:
                wanted = first(hurt, "GET", 2)
                proxy.choose = lambda asked, wanted=wanted: wanted(asked) if "/wal/" in asked.path else None
                await _read(ask, hurt)
    assert [hurt for hurt in DAMAGED if not proxy.hurt[hurt]] == []


def _batch(hurt: Hurt) -> bytes:
    return batch(*(f"{hurt.name} {number}".encode() * 50 for number in range(50)))


async def _read(ask: Asker, hurt: Hurt) -> None:
    """Ask until there is an answer without an error; it must be what was written."""
    async with asyncio.timeout(READ_S):
        while (answer := await ask.fetch(hurt.name)).error_code != 0:
            assert not records_in(answer), hurt
            await asyncio.sleep(0.05)
    sent, found = _batch(hurt), records_in(answer)
    assert found[:8] == bytes(8), "from the first offset on"
    assert found[61:] == sent[61:], hurt


def ran(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([DRAYD, *arguments], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def refusal(broker: Drayd) -> str:
    with contextlib.ExitStack() as stack:
        stack.push(broker.__exit__)
        with pytest.raises(AssertionError) as refused:
            broker.start()
    return str(refused.value) + "".join(broker.log)


async def test_a_bucket_without_conditional_puts_is_refused_by_doctor_and_at_the_start(
    server: S3Server, tmp_path: Path
) -> None:
    """S10, R-217: whatever keeps the log."""
    async with s3_double() as double:
        double.honours_conditions = False
        given = flags(server, "s3://bucket/dray", double.endpoint)
        code, said = await asyncio.to_thread(ran, "doctor", "--data", str(tmp_path / "d"), *given)
        assert code != 0
        assert "honours If-None-Match" in said
        said = await asyncio.to_thread(refusal, Drayd(tmp_path / "broker", *given))
        assert "honours If-None-Match" in said
        assert double.objects == {}, "nothing was begun there"


@pytest.mark.parametrize("keys", ["right", "wrong"])
async def test_the_key_is_in_no_line_of_a_broker(server: S3Server, tmp_path: Path, keys: str) -> None:
    """Every log line and error, at the most talkative level, of a broker that works and of one that is refused."""
    url, secret = server.url(), server.options.secret_key or ""
    assert server.options.endpoint is not None
    wrong = {} if keys == "right" else {"secret_access_key": (secret := "not-the-key-0123456789")}
    given = [*flags(server, url, server.options.endpoint, **wrong), "--set", "logging.level=debug"]
    code, said = await asyncio.to_thread(ran, "doctor", "--data", str(tmp_path / "broker"), *given)
    broker = Drayd(tmp_path / "broker", *given)
    if keys == "right":
        with broker:
            async with Asker(broker.bootstrap) as ask:
                await ask.create("t")
                assert (await ask.produce("t", batch(b"x"))).error_code == 0
            assert broker.terminate() == 0
        said += "".join(broker.log)
    else:
        assert code != 0
        told = await asyncio.to_thread(refusal, broker)
        assert "correct them, or allow this operation" in told
        said += told
    assert len(said) > 200
    assert secret not in said


async def test_a_bucket_that_is_not_there_says_what_to_do(server: S3Server, tmp_path: Path) -> None:
    assert server.options.endpoint is not None
    given = flags(server, "s3://no-such-bucket/dray", server.options.endpoint)
    code, said = await asyncio.to_thread(ran, "doctor", "--data", str(tmp_path / "d"), *given)
    assert code != 0
    assert "create it, or correct the address" in said
    told = await asyncio.to_thread(refusal, Drayd(tmp_path / "broker", *given))
    assert "create it, or correct the address" in told
