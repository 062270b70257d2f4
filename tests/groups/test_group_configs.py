"""What holds for a group, and what may be changed about it."""

import pytest

from dray.errors import Invalid
from dray.groups.configs import ASSIGNMENT, HEARTBEAT, SESSION, Bounds
from dray.groups.consumer import Told
from dray.groups.errors import BadGroupConfig
from dray.groups.settings import GroupSettings
from tests.groups.crew import Crew, Member
from tests.groups.party import GROUP
from tests.retention.shop import Cluster


async def test_a_group_beats_and_is_missed_as_it_was_told() -> None:
    """R-181."""
    cluster = await Cluster().begin()
    async with cluster.broker() as broker:
        await broker.topic(partitions=1)
        crew, one = await Crew.at(broker), Member("1")
        configs = crew.service.configs
        await configs.alter(GROUP, {SESSION: "60000", HEARTBEAT: "15000"})
        assert (configs.value(GROUP, SESSION), configs.value("another", SESSION)) == (60_000, 45_000)
        told = await crew.enter(one)
        assert isinstance(told, Told)
        assert told.interval_ms == 15_000
        await crew.live(50_000)
        assert list(crew.consumers.members) == ["1"], "it may be silent for a minute"
        await crew.live(15_000)
        assert crew.consumers.is_empty
        await configs.alter(GROUP, {}, remove=(SESSION, HEARTBEAT))
        assert (configs.value(GROUP, SESSION), configs.given(GROUP)) == (45_000, {})


@pytest.mark.parametrize(
    ("group", "given", "refusal"),
    [
        ("", {SESSION: "45000"}, Invalid),
        ("g", {"consumer.nothing": "1"}, BadGroupConfig),
        ("g", {SESSION: "1000"}, BadGroupConfig),
        ("g", {HEARTBEAT: "often"}, BadGroupConfig),
        ("g", {ASSIGNMENT: "-1"}, BadGroupConfig),
        ("g", {ASSIGNMENT: "15001"}, BadGroupConfig),
    ],
)
async def test_what_is_unknown_or_out_of_bounds_is_refused(
    group: str, given: dict[str, str], refusal: type[Invalid]
) -> None:
    cluster = await Cluster().begin()
    async with cluster.broker() as broker:
        crew = await Crew.at(broker)
        with pytest.raises(refusal):
            await crew.service.configs.alter(group, given)
        assert crew.service.configs.given(group) == {}


def test_the_bounds_are_kafkas_and_never_exclude_the_default() -> None:
    assert GroupSettings().group_configs == {
        SESSION: Bounds(default=45_000, low=45_000, high=60_000),
        HEARTBEAT: Bounds(default=5_000, low=5_000, high=15_000),
        ASSIGNMENT: Bounds(default=1_000, low=0, high=15_000),
    }
    quick = GroupSettings(consumer_session="3s", consumer_heartbeat="1s").group_configs
    assert quick[SESSION] == Bounds(default=3_000, low=3_000, high=60_000)
