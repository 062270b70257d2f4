"""What a running broker tells of its groups in `/metrics`."""

import re
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from dray.clock import ManualClock
from dray.groups.census import Census
from dray.machine.groups.codes import GroupCode
from dray.telemetry import REGISTRY
from tests.cli.test_serving import ANY, serving
from tests.clients.grouped import PATIENCE_S, Member, eventually, fill, make_topic, share
from tests.retention.shop import Cluster

from .party import Party


def metrics_of(address: str) -> dict[str, float]:
    """Every sample by its name and labels, as they are written."""
    with urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    rows = [re.fullmatch(r"([^# ]\S*(?:\{.*\})?) (\S+)", line) for line in lines]
    return {row[1]: float(row[2]) for row in rows if row}


@pytest.mark.slow
def test_a_broker_tells_of_its_groups_and_what_happens_to_them(tmp_path: Path) -> None:
    """Members, states, rebalances, phases, targets, who left and who was missed, and the lag under both names."""
    with ExitStack() as stack:
        dray = stack.enter_context(serving("dev", *ANY, directory=tmp_path))
        make_topic(dray.kafka, "orders", 4)
        fill(dray.kafka, "orders", 4, 1)
        one, two, other = (
            stack.enter_context(Member(kind, dray.kafka, "orders", kind.replace("confluent-", "")))
            for kind in ("confluent", "confluent", "confluent-consumer")
        )
        share([one, two], 4)
        share([other], 4)

        def tells(name: str, value: float) -> None:
            eventually(f"{name} is {value}", lambda: metrics_of(dray.http).get(name) == value)

        tells(member_count("classic"), 2)
        tells(member_count("consumer"), 1)
        told = metrics_of(dray.http)
        for protocol in ("classic", "consumer"):
            assert told[f'dray_groups{{protocol="{protocol}",state="Stable"}}'] == 1
            assert told[f'dray_group_rebalances_total{{protocol="{protocol}"}}'] >= 1
        for phase in ("initial", "completing", "assigning", "reconciling"):
            assert told[f'dray_group_phase_seconds_count{{phase="{phase}"}}'] >= 1, phase
        assert told["dray_group_target_seconds_count"] >= 1
        tells('dray_consumer_group_lag_records{group="consumer",partition="0",topic="orders"}', 0)
        tells('kafka_consumergroup_lag{consumergroup="consumer",partition="0",topic="orders"}', 0)

        one.leave()
        tells('dray_group_members_removed_total{reason="left"}', 1)
        share([two], 4)
        assert metrics_of(dray.http)['dray_group_phase_seconds_count{phase="preparing"}'] >= 1
        two.kill()
        tells('dray_group_members_removed_total{reason="expired"}', 1)
        tells(member_count("classic"), 0)
        tells('dray_groups{protocol="classic",state="Empty"}', 1)


def member_count(protocol: str) -> str:
    return f'dray_group_members{{protocol="{protocol}"}}'


async def test_who_goes_to_another_broker_is_counted_there() -> None:
    """Once for each move, whatever call it was that told of it."""

    def rehomed() -> float:
        return REGISTRY.get_sample_value("dray_group_members_rehomed_total") or 0.0

    cluster = await Cluster().begin()
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        here, there = await Party.at(one), await Party.at(two, rank=1)
        joined = await here.alone()
        before = rehomed()
        for party in (here, there, there, here):
            assert await party.beat(joined.member, joined.generation) is GroupCode.ACCEPTED
        assert rehomed() == before + 2


async def test_a_group_is_counted_by_its_keeper_alone() -> None:
    cluster = await Cluster().begin()
    async with cluster.broker("a") as one, cluster.broker("b") as two:
        here, there = await Party.at(one), await Party.at(two, rank=1)
        await here.alone()
        await two.catalog.sync()
        for party, broker, count in ((there, two, 0), (here, one, 1)):
            await Census(domains=broker.domains, routing=party.order, clock=ManualClock()).look()
            assert REGISTRY.get_sample_value("dray_group_members", {"protocol": "classic"}) == count
