"""Brokers that should not be as they are: one with the id of another, and some whose clocks are wrong."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dray.cli.settings import SECTIONS
from dray.clock import SystemClock, WallMs
from dray.config import load, parse_set
from dray.errors import Unavailable
from dray.node import effects as node_effects
from dray.node.roles.broker import RunningBroker, run_broker
from tests.golden.asking import Asker, batch

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
PATIENCE_S = 60


@asynccontextmanager
async def one_of(home: Path, number: int, **settings: object) -> AsyncIterator[RunningBroker]:
    """A broker on the log that the first one keeps."""
    given = {
        "broker.data": home / str(number), "broker.id": number, "kafka.listen": "127.0.0.1:0",
        "http.listen": "127.0.0.1:0", "grpc.listen": "",
        "cluster.domains": 4, "session.ttl": "3s", "session.keepalive": "1s",
    }  # fmt: skip
    if number != 1:
        given["log.url"] = f"unix:{home}/1/meta.sock"
    given |= {key.replace("__", "."): value for key, value in settings.items()}
    config = load(SECTIONS, environ={}, overrides=[parse_set(f"{key}={value}") for key, value in given.items()])
    async with run_broker(config) as running:
        yield running


async def test_a_broker_with_the_id_of_another_does_not_start_and_the_other_goes_on(tmp_path: Path) -> None:
    """E-4, M8: it says why, and with an id of its own it starts."""
    async with one_of(tmp_path, 1) as first, Asker(str(first.kafka)) as ask:
        await ask.create("orders")
        with pytest.raises(Unavailable, match="is another one running with this id"):
            async with one_of(tmp_path, 2, broker__id=1):
                pass
        assert (await ask.produce("orders", batch(b"1"))).base_offset == 0
        assert [one.node_id for one in (await ask.metadata()).brokers] == [1]
        async with one_of(tmp_path, 2) as second, Asker(str(second.kafka)) as other:
            assert (await other.produce("orders", batch(b"2"))).base_offset == 1
            assert [one.node_id for one in (await ask.metadata()).brokers] == [1, 2]


class Shifted(SystemClock):
    """A machine whose clock is wrong."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self._by_ms = by_ms

    def wall_ms(self) -> WallMs:
        return WallMs(super().wall_ms() + self._by_ms)


async def test_brokers_whose_clocks_are_an_hour_apart_serve_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q7: none is expired, nothing is deleted, and all say the same of every record."""
    brokers = {}

    @asynccontextmanager
    async def shifted(number: int, by_ms: int) -> AsyncIterator[Asker]:
        monkeypatch.setattr(node_effects, "SystemClock", lambda: Shifted(by_ms))
        async with one_of(tmp_path, number, retention__interval="1s") as running, Asker(str(running.kafka)) as ask:
            brokers[number] = running
            yield ask

    async with shifted(1, 0) as one, shifted(2, HOUR_MS) as two, shifted(3, -HOUR_MS) as three:
        asks = (one, two, three)
        await two.create("orders", 4, retention_ms=str(HOUR_MS // 2))
        sent = 0
        for turn in range(30):
            answer = await asks[turn % 3].produce("orders", batch(b"%d" % turn, at=SystemClock().wall_ms()))
            assert (answer.error_code, answer.base_offset) == (0, sent)
            sent += 1
        sessions = session_ids(brokers.values())
        catalog = brokers[1].plane.domains.catalog
        beats = {session.id: session.last_n for session in catalog.machine.sessions.live.values()}
        async with asyncio.timeout(PATIENCE_S):  # longer than a session lives without a sign of life
            while any(session.last_n < beats.get(session.id, 0) + 4 for session in broker_sessions(catalog)):
                await asyncio.sleep(0.1)
        assert session_ids(brokers.values()) == sessions, "none was expired"
        for ask in asks:
            assert [node.node_id for node in (await ask.metadata()).brokers] == [1, 2, 3]
            assert [(await ask.offset_at("orders", when)).offset for when in (-2, -1)] == [0, sent]
            assert (await ask.offset_at("orders", SystemClock().wall_ms() - HOUR_MS)).offset == 0


def session_ids(brokers: Iterable[RunningBroker]) -> list[int]:
    found = [running.plane.domains.catalog.session for running in brokers]
    return [-1 if session is None else session.id for session in found]


def broker_sessions(catalog) -> list:
    live = catalog.machine.sessions.live
    return [live[broker.session] for broker in catalog.machine.brokers.all()]
