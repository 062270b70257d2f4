"""Two broker processes on one log: the second joins through the socket of the first, and shares its store."""

import asyncio
import signal
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from dray.cli.main import run
from dray.cli.serving import exit_code
from dray.node.joining import HasJoined, NoLogThere, WrongStore
from dray.records import batches, records_of
from dray.testing import broker
from tests.cli.test_serving import ANY, Serving, live_sessions, serving
from tests.golden.asking import Asker, batch, records_in

pytestmark = pytest.mark.slow

SESSION = ("--set", "session.ttl=3s", "--set", "session.keepalive=1s")


async def values(ask: Asker, topic: str) -> list[bytes | None]:
    answer = await ask.fetch(topic)
    assert answer.error_code == 0
    return [record.value for one in batches(records_in(answer)) for record in records_of(one)]


class Two:
    """An owner and a broker that has joined it."""

    def __init__(self, stack: ExitStack, home: Path) -> None:
        self._stack = stack
        self.home = home
        self.owner = self.start_owner()
        self.joined = self.start_joined()

    def start_owner(self) -> Serving:
        return self._stack.enter_context(serving("dev", *ANY, *SESSION, "--data", "a", directory=self.home))

    def start_joined(self) -> Serving:
        arguments = ("dev", *ANY, *SESSION, "--data", "b", "--log", "unix:a/meta.sock")
        return self._stack.enter_context(serving(*arguments, directory=self.home))


def ready(at: Serving) -> bool:
    try:
        with urllib.request.urlopen(f"http://{at.http}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False


async def eventually_ready(at: Serving, wanted: bool) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(ready, at) != wanted:
            await asyncio.sleep(0.1)


async def both_write(a: Asker, b: Asker) -> None:
    """R-101: a batch sent through both is stored once. R-105: offsets of two writers neither overlap nor gap."""
    await a.create("shared")
    producer = await b.producer_id()
    for n in range(20):
        twice = batch(b"%d" % n, producer_id=producer, producer_epoch=0, base_sequence=n)
        answers = await asyncio.gather(a.produce("shared", twice), b.produce("shared", twice))
        assert [(one.error_code, one.base_offset) for one in answers] == [(0, n), (0, n)]

    async def write(ask: Asker) -> list[int]:
        return [(await ask.produce("shared", batch(b"x", b"y"))).base_offset for _ in range(50)]

    given = [offset for offsets in await asyncio.gather(write(a), write(b)) for offset in offsets]
    assert sorted(given) == list(range(20, 220, 2))


async def test_what_one_broker_stores_the_other_serves(tmp_path: Path) -> None:
    """Read-your-writes through any broker; both are told of, under ids of their own."""
    with ExitStack() as stack:
        two = Two(stack, tmp_path)
        async with Asker(two.owner.kafka) as a, Asker(two.joined.kafka) as b:
            await a.create("orders")
            assert (await b.produce("orders", batch(b"1"))).base_offset == 0
            assert (await a.produce("orders", batch(b"2"))).base_offset == 1
            for asker in (a, b):
                assert (await asker.offset_at("orders", -1)).offset == 2
                assert await values(asker, "orders") == [b"1", b"2"]
            brokers = [{one.node_id for one in (await asker.metadata()).brokers} for asker in (a, b)]
            assert brokers == [{1, 2}, {1, 2}]
            waiting = asyncio.create_task(a.fetch("orders", 2, min_bytes=1, max_wait_ms=20_000))
            assert (await b.produce("orders", batch(b"3"))).base_offset == 2
            assert (await waiting).high_watermark == 3
            await both_write(a, b)
        two.joined.process.kill()
        two.joined.process.wait()
        again = two.start_joined()  # the same broker: its directory says so
        async with Asker(again.kafka) as b:
            assert (await values(b, "orders"))[:3] == [b"1", b"2", b"3"]
            assert {one.node_id for one in (await b.metadata()).brokers} == {1, 2}
        assert again.stop() == 0
        assert two.owner.stop() == 0
        assert await asyncio.to_thread(live_sessions, tmp_path / "a") == 0


@pytest.mark.slow
async def test_a_broker_whose_log_is_away_waits_for_it(tmp_path: Path) -> None:
    """Nothing is acknowledged meanwhile, and nothing acknowledged is lost; it can be stopped in either state."""
    with ExitStack() as stack:
        two = Two(stack, tmp_path)
        async with Asker(two.joined.kafka) as b:
            await b.create("orders")
            assert (await b.produce("orders", batch(b"1"))).error_code == 0
            assert two.owner.stop() == 0
            await eventually_ready(two.joined, False)
            owner = two.start_owner()
            await eventually_ready(two.joined, True)
            stored = await b.produce("orders", batch(b"2"))
            assert (stored.error_code, stored.base_offset) == (0, 1)
            async with Asker(owner.kafka) as a:
                assert await values(a, "orders") == [b"1", b"2"]
        assert owner.stop() == 0
        assert two.joined.stop() == 0


async def test_a_broker_whose_logs_owner_is_frozen_serves_nobody_until_it_thaws(tmp_path: Path) -> None:
    """RP5, RP11, LG18: its connections stay open and say nothing; every request is answered all the same."""
    with ExitStack() as stack:
        two = Two(stack, tmp_path)
        async with Asker(two.joined.kafka) as b, asyncio.timeout(120):
            await b.create("orders")
            assert (await b.produce("orders", batch(b"1"))).error_code == 0
            two.owner.process.send_signal(signal.SIGSTOP)
            try:
                waiting = asyncio.ensure_future(b.produce("orders", batch(b"unknown")))
                await eventually_ready(two.joined, False)
                assert (await waiting).error_code != 0
            finally:
                two.owner.process.send_signal(signal.SIGCONT)
            await eventually_ready(two.joined, True)
            while (await b.produce("orders", batch(b"2"))).error_code != 0:
                await asyncio.sleep(0.1)
            async with Asker(two.owner.kafka) as a:
                found = [value for value in await values(a, "orders") if value != b"unknown"]
                assert found == [b"1", b"2"]
        assert two.joined.stop() == 0
        assert two.owner.stop() == 0


def test_what_cannot_be_joined_is_refused(tmp_path: Path) -> None:
    """SV3: a bad configuration, so exit code 2; nothing begins a second log."""
    log = f"unix:{tmp_path}/a/meta.sock"
    with pytest.raises(NoLogThere) as nothing, broker(tmp_path / "b", log__url=log):
        pass
    assert exit_code(nothing.value) == 2
    with broker(tmp_path / "a"):
        other = broker(tmp_path / "c", log__url=log, objects__url=tmp_path / "c-objects")
        with pytest.raises(WrongStore) as elsewhere, other:
            pass
        assert exit_code(elsewhere.value) == 2
        with broker(tmp_path / "b", log__url=log):
            pass
        with pytest.raises(HasJoined) as alone, broker(tmp_path / "b"):
            pass
        assert exit_code(alone.value) == 2
        assert not (tmp_path / "b" / "meta").exists()
        with broker(tmp_path / "b", log__url=log):
            pass


@pytest.mark.parametrize("url", ["unix:", "tcp:127.0.0.1:1", "gopher:x", "local:"])
def test_a_log_that_is_none_is_a_bad_configuration(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "check", "--set", f"log.url={url}"]) == 2
    assert "log.url" in capsys.readouterr().err
