"""Histories of real clients against a broker that is left alone, killed, frozen, or has a bad store."""

import asyncio
from pathlib import Path

import pytest

from dray.testing import broker
from dray.testing.history.workload import Fault
from tests.clients.test_hardship import Store
from tests.durability.daemon import Drayd
from tests.durability.histories import KITS, assert_valid, freezes, kills, run_history

SEED = 20261115
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def drayd(tmp_path_factory: pytest.TempPathFactory):
    """One broker process and one directory for all runs: each begins with what the ones before it left."""
    with Drayd(tmp_path_factory.mktemp("drayd") / "data") as running:
        yield running


@pytest.mark.parametrize("kit", KITS)
async def test_a_quiet_run_has_a_valid_history(drayd: Drayd, tmp_path: Path, kit: str) -> None:
    """T01, small."""
    judgement = await run_history(tmp_path / "history", drayd.bootstrap, kit, SEED, seconds=4)
    assert_valid(judgement, 200)


@pytest.mark.parametrize(("kit", "idempotent"), [("confluent", True), ("confluent", False), ("aiokafka", True)])
async def test_nothing_acknowledged_is_lost_by_kill_9(drayd: Drayd, tmp_path: Path, kit: str, idempotent: bool) -> None:
    """R-089, R-093, T05, small: several kills under load, each with a start on the same directory."""
    judgement = await run_history(
        tmp_path / "history",
        drayd.bootstrap,
        kit,
        SEED,
        faults=[kills(drayd)],
        idempotent=idempotent,
        seconds=9,
        quiet_seconds=2,
        fault_seconds=0.3,
    )
    assert_valid(judgement, 200)
    assert len(judgement.history.faults) >= 1


async def test_a_frozen_broker_goes_on_where_it_was(drayd: Drayd, tmp_path: Path) -> None:
    judgement = await run_history(
        tmp_path / "history",
        drayd.bootstrap,
        "confluent",
        SEED,
        faults=[freezes(drayd)],
        seconds=8,
        quiet_seconds=1.5,
        fault_seconds=1.5,
    )
    assert_valid(judgement, 200)
    assert judgement.history.faults


def weather(store: Store) -> list[Fault]:
    """What a bad store does, each for a while."""

    def fault(name: str, **shares: float) -> Fault:
        async def start() -> None:
            store.faults(**shares)

        async def stop() -> None:
            store.faults()

        return Fault(name=name, target="store", start=start, stop=stop)

    return [
        fault("errors", unavailable=0.3),
        fault("outage", unavailable=1.0),
        fault("lost replies", lost_reply=0.5),
        fault("lost requests", lost_request=0.5),
        fault("delays", longest_delay_seconds=0.3),
        fault("all at once", unavailable=0.1, lost_reply=0.1, lost_request=0.1, longest_delay_seconds=0.1),
    ]


@pytest.mark.parametrize(("kit", "domains"), [("confluent", 1), ("aiokafka", 4)])
async def test_a_bad_store_loses_and_doubles_nothing(tmp_path: Path, kit: str, domains: int) -> None:
    """R-097, T04, T11, small: errors, delays, and replies that are lost."""
    store = Store()
    with broker(open_objects=store.open, cluster__domains=domains) as running:
        judgement = await run_history(
            tmp_path / "history",
            running.bootstrap,
            kit,
            SEED,
            faults=weather(store),
            seconds=10,
            quiet_seconds=0.5,
            fault_seconds=1.0,
        )
    assert_valid(judgement, 200)
    assert len(judgement.history.faults) >= 4


@pytest.mark.long
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("kit", KITS)
async def test_kills_and_freezes_for_minutes(drayd: Drayd, tmp_path: Path, kit: str, idempotent: bool) -> None:
    """T05."""
    judgement = await run_history(
        tmp_path / "history",
        drayd.bootstrap,
        kit,
        SEED + 1,
        faults=[kills(drayd), freezes(drayd)],
        idempotent=idempotent,
        seconds=120,
        quiet_seconds=5,
        fault_seconds=1,
        partitions=4,
        producers=4,
        consumers=4,
    )
    assert_valid(judgement, 10_000)


@pytest.mark.long
async def test_two_hundred_thousand_sends_without_a_fault(drayd: Drayd, tmp_path: Path) -> None:
    """T01."""
    judgement = await run_history(
        tmp_path / "history",
        drayd.bootstrap,
        "confluent",
        SEED,
        seconds=200,
        partitions=4,
        producers=4,
        consumers=4,
        sends_per_second=600,
        in_flight=500,
    )
    assert_valid(judgement, 200_000)


@pytest.mark.parametrize("seconds", [12, pytest.param(180, marks=pytest.mark.long)])
async def test_a_store_that_is_away_for_most_of_a_run(tmp_path: Path, seconds: int) -> None:
    """T11: no ack while it is away, and everything goes on when it is back."""
    store = Store()
    with broker(open_objects=store.open) as running:

        async def away() -> None:
            store.faults(unavailable=1.0)

        async def back() -> None:
            store.faults()
            await asyncio.sleep(0)

        judgement = await run_history(
            tmp_path / "history",
            running.bootstrap,
            "confluent",
            SEED,
            faults=[Fault(name="away", target="store", start=away, stop=back)],
            seconds=seconds,
            quiet_seconds=seconds / 9,
            fault_seconds=seconds * 5 / 9,
        )
    assert_valid(judgement, 5 * seconds)
    assert judgement.history.faults
