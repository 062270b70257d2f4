"""Brokers that have few domains loaded: real clients produce and read everything while domains come and go."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durability.daemon import Drayd
from tests.durability.histories import assert_valid, freezes, kills, run_history
from tests.durability.small import metric, serve_while_domains_come_and_go, small_brokers

SEED = 20261118
pytestmark = pytest.mark.slow


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Drayd]]:
    with small_brokers(tmp_path, f"deltalog:{tmp_path / 'log'}") as found:
        yield found


def test_clients_send_and_read_everything_while_domains_come_and_go(brokers: list[Drayd]) -> None:
    """DL1, DL2, SV6, RG7: on a directory that they share."""
    serve_while_domains_come_and_go(brokers)


@pytest.mark.long
@pytest.mark.parametrize("kit", ["confluent", "aiokafka"])
async def test_histories_hold_while_small_brokers_die_and_sleep(brokers: list[Drayd], tmp_path: Path, kit: str) -> None:
    """DL1, DL2, R-002: none missing, none doubled."""
    judgement = await run_history(
        tmp_path / "history", ",".join(one.bootstrap for one in brokers), kit, SEED, partitions=8,
        faults=[kills(brokers[0]), freezes(brokers[1])], seconds=60, quiet_seconds=4, fault_seconds=6,
        drain_seconds=120,
    )  # fmt: skip
    assert_valid(judgement, 100)
    assert len(judgement.history.faults) >= 2
    drops = [await asyncio.to_thread(metric, one, "dray_domain_drops_total") for one in brokers]
    loads = [await asyncio.to_thread(metric, one, "dray_domain_loads_total") for one in brokers]
    assert sum(drops) > 0
    assert sum(loads) > 0
