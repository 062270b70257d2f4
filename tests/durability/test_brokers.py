"""Several brokers on one log: histories of real clients while brokers die for good, and while each is restarted."""

import asyncio
import random
import signal
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from dray.testing.history.workload import Fault
from tests.durability.cluster import Cluster
from tests.durability.daemon import Drayd
from tests.durability.histories import assert_valid, freezes, kills, nothing, run_history, two_die
from tests.golden.asking import Asker, batch

SEED = 20261117
pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        yield running


@pytest.mark.parametrize("kit", ["confluent", "aiokafka"])
async def test_any_two_of_three_die_with_their_disks_and_the_third_has_everything(
    cluster: Cluster, tmp_path: Path, kit: str
) -> None:
    """R-002: every acked record is readable, with its offset, through the third, and produce goes on."""
    dice = random.Random(f"{SEED} {kit}")
    victims = dice.sample(cluster.brokers, 2)
    (third,) = (one for one in cluster.brokers if one not in victims)
    judgement = await run_history(
        tmp_path / "history", cluster.bootstrap, kit, SEED,
        faults=[two_die(list(victims))], seconds=25, quiet_seconds=5, fault_seconds=30, drain_seconds=120,
    )  # fmt: skip
    assert_valid(judgement, 200)
    assert judgement.history.faults
    async with Asker(third.bootstrap) as ask:
        assert [one.node_id for one in (await ask.metadata()).brokers] == [cluster.brokers.index(third) + 1]
        await ask.create("after")
        assert (await ask.produce("after", batch(b"x"))).error_code == 0
    for lost in victims:  # and they come back with nothing but the address of the log
        await asyncio.to_thread(lost.start)
        async with Asker(lost.bootstrap) as ask:
            assert (await ask.offset_at("after", -1)).offset == 1


def restarts(cluster: Cluster) -> Fault:
    """SIGTERM to one broker after the other; each is back before the next."""
    turns = cycle(cluster.brokers)
    codes: list[int] = []

    async def start() -> None:
        broker = next(turns)
        codes.append(await asyncio.to_thread(broker.terminate))
        assert codes[-1] == 0
        await asyncio.to_thread(broker.start)

    return Fault(name="restart", target="each broker", start=start, stop=nothing)


@pytest.mark.parametrize("kit", ["confluent", "aiokafka"])
async def test_a_rolling_restart_fails_no_produce(cluster: Cluster, tmp_path: Path, kit: str) -> None:
    """R-213: each broker is stopped and started under load; clients retry, and the application hears of nothing."""
    judgement = await run_history(
        tmp_path / "history", cluster.bootstrap, kit, SEED,
        faults=[restarts(cluster)], seconds=40, quiet_seconds=1, fault_seconds=0.1, drain_seconds=120,
    )  # fmt: skip
    assert_valid(judgement, 200)
    assert len(judgement.history.faults) >= 3
    sends = judgement.counts.ops["send"]
    assert set(sends) == {"ok"}, sends


async def test_nothing_acknowledged_is_lost_by_kills_and_freezes_with_four_domains(tmp_path: Path) -> None:
    """R-089: one broker alone, whose topics lie in four logs."""
    with Drayd(tmp_path / "data", "--set", "cluster.domains=4") as drayd:
        judgement = await run_history(
            tmp_path / "history", drayd.bootstrap, "confluent", SEED, partitions=4,
            faults=[kills(drayd), freezes(drayd)], seconds=12, quiet_seconds=1.5, fault_seconds=0.5,
        )  # fmt: skip
    assert_valid(judgement, 200)
    assert len(judgement.history.faults) >= 2


def log_dies(cluster: Cluster) -> Fault:
    """kill -9 of the log server; nobody gets an acknowledgement until it is back."""

    async def start() -> None:
        await asyncio.to_thread(cluster.meta.stop, signal.SIGKILL)

    async def stop() -> None:
        await asyncio.to_thread(cluster.meta.start)

    return Fault(name="kill -9", target="the log server", start=start, stop=stop)


async def test_the_log_server_dies_and_a_broker_freezes_and_nothing_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    """R-089: four domains on three brokers; the frozen one is expired meanwhile, and comes back as it can."""
    judgement = await run_history(
        tmp_path / "history", cluster.bootstrap, "confluent", SEED, partitions=4,
        faults=[log_dies(cluster), freezes(cluster.brokers[1])], seconds=16, quiet_seconds=2, fault_seconds=2,
        drain_seconds=120,
    )  # fmt: skip
    assert_valid(judgement, 200)
    assert len(judgement.history.faults) >= 2
