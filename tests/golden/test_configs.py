"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

import asyncio

import pytest

from dray.servers.kafka.messages import alter_configs, incremental_alter_configs
from dray.servers.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.topics.configs import KEYS
from tests.golden.asking import Asker, batch

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


async def describe(ask: Asker, kind: int, name: str, *keys: str, version: int = 4, more: bool = True):
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys or None)
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=more, include_documentation=more and version >= 3
    )
    [result] = (await ask.call(DESCRIBE_CONFIGS, version, request)).results
    return result


async def values(ask: Asker, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    """Value and source of what is not a default."""
    found = (await describe(ask, kind, name)).configs
    return {one.name: (one.value, one.config_source) for one in found if one.config_source != 5}


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]):
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=how, value=value)
            for key, how, value in changes
        ],
    )


async def alter_some(ask: Asker, *resources, only_check: bool = False, version: int = 1) -> list[int]:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=only_check)
    answers = (await ask.call(INCREMENTAL_ALTER_CONFIGS, version, request)).responses
    assert all(bool(one.error_message) == bool(one.error_code) for one in answers)
    return [one.error_code for one in answers]


async def alter_all(ask: Asker, kind: int, name: str, *configs: tuple[str, str | None], only_check=False, version=2):
    given = [alter_configs.AlterableConfig(name=key, value=value) for key, value in configs]
    wanted = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)
    request = alter_configs.AlterConfigsRequest(resources=[wanted], validate_only=only_check)
    [answer] = (await ask.call(ALTER_CONFIGS, version, request)).responses
    return answer.error_code


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_tells_every_config_with_its_source(ask: Asker, name: str, version: int) -> None:
    """R-196, K-062."""
    await ask.create(name, max_message_bytes="5000")
    found = await describe(ask, TOPIC, name, version=version)
    assert found.error_code == 0
    assert [one.name for one in found.configs] == list(KEYS)
    by_name = {one.name: one for one in found.configs}
    own, default = by_name["max.message.bytes"], by_name["retention.ms"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("5000", 1, False, False)
    assert [(one.name, one.value, one.source) for one in own.synonyms] == [
        ("max.message.bytes", "5000", 1),
        ("message.max.bytes", "1048588", 5),
    ]
    assert (default.value, default.config_source, list(default.synonyms)) == ("604800000", 5, [])
    if version >= 3:
        assert (own.config_type, default.config_type) == (3, 5)
        assert all(one.documentation for one in found.configs)


async def test_only_what_was_asked_for_is_told(ask: Asker, name: str) -> None:
    """R-196."""
    await ask.create(name)
    found = await describe(ask, TOPIC, name, "retention.ms", "nope", "retention.ms", more=False)
    assert [one.name for one in found.configs] == ["retention.ms"]
    assert (list(found.configs[0].synonyms), found.configs[0].documentation) == ([], None)


@pytest.mark.parametrize(
    ("kind", "named", "code"),
    [
        (TOPIC, "", 17),
        (TOPIC, "a/b", 17),
        (TOPIC, "nobody", 3),
        (BROKER, "x", 42),
        (BROKER, "123456", 42),
        (BROKER, "", 0),
        (LOGGER, "", 42),
        (LOGGER, "123456", 42),
        (GROUP, "", 42),
        (GROUP, "anybody", 0),
        (METRICS, "m", 42),
        (3, "g", 42),
        (99, "g", 42),
    ],
)
async def test_what_has_no_configs_is_told_so(ask: Asker, kind: int, named: str, code: int) -> None:
    """R-196."""
    found = await describe(ask, kind, named)
    assert (found.error_code, bool(found.error_message)) == (code, code != 0)
    assert found.error_code == 0 or not found.configs


@pytest.mark.parametrize("version", [0, 1])
async def test_some_configs_of_a_topic_are_changed(ask: Asker, name: str, version: int) -> None:
    """R-196: set, delete, append, subtract."""
    await ask.create(name, retention_ms="1")

    async def change(*changes: tuple[str, int, str | None]) -> list[int]:
        return await alter_some(ask, resource(TOPIC, name, *changes), version=version)

    assert await change(("retention.ms", SET, "7"), ("cleanup.policy", APPEND, "compact,delete")) == [0]
    assert await values(ask, TOPIC, name) == {"retention.ms": ("7", 1), "cleanup.policy": ("delete,compact", 1)}
    assert await change(("cleanup.policy", SUBTRACT, "compact"), ("nope", DELETE, None)) == [0]
    assert await change(("retention.ms", DELETE, None)) == [0]
    assert await values(ask, TOPIC, name) == {"cleanup.policy": ("delete", 1)}
    assert await change() == [0]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("nope", SET, "1")], 40),
        ([("", SET, "1")], 40),
        ([("retention.ms", SET, "soon")], 40),
        ([("retention.ms", SET, None)], 42),
        ([("cleanup.policy", SUBTRACT, None)], 42),
        ([("retention.ms", APPEND, "1")], 40),
        ([("retention.ms", SUBTRACT, "1")], 40),
        ([("retention.ms", 4, "1")], 42),
        ([("retention.ms", -1, "1")], 42),
        ([("cleanup.policy", SUBTRACT, "delete")], 40),
        ([("segment.ms", SET, "5"), ("nope", SET, "1")], 40),
        ([("segment.ms", SET, "5"), ("segment.ms", DELETE, None)], 42),
        ([("leader.replication.throttled.replicas", SET, ",".join(["1:2"] * 3_000))], 40),
    ],
    ids=str,
)
@pytest.mark.parametrize("only_check", [False, True])
async def test_all_changes_of_a_topic_are_made_or_none(
    ask: Asker, name: str, changes, code: int, only_check: bool
) -> None:
    """R-196."""
    await ask.create(name, retention_ms="1")
    assert await alter_some(ask, resource(TOPIC, name, *changes), only_check=only_check) == [code]
    assert await values(ask, TOPIC, name) == {"retention.ms": ("1", 1)}


async def test_each_resource_of_a_request_stands_for_itself(ask: Asker, name: str) -> None:
    """R-196: what is named twice is not changed, and a check changes nothing."""
    await ask.create(name)
    good, other = resource(TOPIC, name, ("segment.ms", SET, "5")), resource(TOPIC, name, ("retention.ms", SET, "5"))
    nobody, group = resource(TOPIC, "nobody", ("segment.ms", SET, "5")), resource(GROUP, name)
    assert await alter_some(ask, good, other, nobody, group) == [42, 42, 3, 0]
    assert await alter_some(ask, good, only_check=True) == [0]
    assert await values(ask, TOPIC, name) == {}
    assert await alter_some(ask, nobody, good) == [3, 0]
    assert await values(ask, TOPIC, name) == {"segment.ms": ("5", 1)}


async def test_many_that_add_to_one_list_lose_nothing(ask: Asker, dray, name: str) -> None:
    """R-196: a change of a list holds for the list as it is, or is made again."""
    await ask.create(name, leader_replication_throttled_replicas="0:0")

    async def one(number: int) -> list[int]:
        async with Asker(dray.bootstrap) as other:
            change = resource(TOPIC, name, ("leader.replication.throttled.replicas", APPEND, f"{number}:0"))
            return await alter_some(other, change)

    assert await asyncio.gather(*(one(number) for number in range(1, 5))) == [[0]] * 4
    found = (await values(ask, TOPIC, name))["leader.replication.throttled.replicas"][0]
    assert sorted(found.split(",")) == ["0:0", "1:0", "2:0", "3:0", "4:0"]


@pytest.mark.parametrize("version", range(3))
async def test_a_whole_set_of_configs_replaces_the_one_before(ask: Asker, name: str, version: int) -> None:
    """R-196, K-062."""
    await ask.create(name, retention_ms="1", segment_ms="2")

    async def replace(*configs: tuple[str, str | None], only_check: bool = False) -> int:
        return await alter_all(ask, TOPIC, name, *configs, only_check=only_check, version=version)

    assert await replace(("retention.ms", "9"), only_check=True) == 0
    for configs, code in (([("nope", "1")], 40), ([("retention.ms", None)], 42), ([("retention.ms", "1")] * 2, 42)):
        assert await replace(*configs) == code
    assert await values(ask, TOPIC, name) == {"retention.ms": ("1", 1), "segment.ms": ("2", 1)}
    assert await replace(("retention.ms", "9")) == 0
    assert await values(ask, TOPIC, name) == {"retention.ms": ("9", 1)}
    assert await replace() == 0
    assert await values(ask, TOPIC, name) == {}


async def test_a_change_counts_at_once(ask: Asker, name: str) -> None:
    """R-196: the next batch is judged by it."""
    await ask.create(name)
    assert (await ask.produce(name, batch(bytes(500)))).error_code == 0
    assert await alter_some(ask, resource(TOPIC, name, ("max.message.bytes", SET, "300"))) == [0]
    assert (await ask.produce(name, batch(bytes(500)))).error_code == 10
    assert await alter_some(ask, resource(TOPIC, name, ("max.message.bytes", DELETE, None))) == [0]
    assert (await ask.produce(name, batch(bytes(500)))).error_code == 0


async def test_a_group_has_configs_before_it_is_there(ask: Asker, name: str) -> None:
    """K-062: of groups, type 32."""
    found = await describe(ask, GROUP, name, "consumer.session.timeout.ms")
    [session] = found.configs
    assert (session.value, session.config_source, session.config_type, session.read_only) == ("45000", 5, 3, False)
    change = resource(GROUP, name, ("consumer.session.timeout.ms", SET, "50000"))
    assert await alter_some(ask, change, only_check=True) == [0]
    assert await values(ask, GROUP, name) == {}
    assert await alter_some(ask, change) == [0]
    assert await values(ask, GROUP, name) == {"consumer.session.timeout.ms": ("50000", 8)}
    assert await alter_all(ask, GROUP, name, ("consumer.heartbeat.interval.ms", "6000")) == 0
    assert await values(ask, GROUP, name) == {"consumer.heartbeat.interval.ms": ("6000", 8)}
    assert await alter_some(ask, resource(GROUP, name, ("consumer.heartbeat.interval.ms", DELETE, None))) == [0]
    assert await values(ask, GROUP, name) == {}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("nope", SET, "5")], 40),
        ([("consumer.session.timeout.ms", SET, "5")], 40),
        ([("consumer.session.timeout.ms", SET, "x")], 40),
        ([("consumer.session.timeout.ms", APPEND, "x")], 40),
        ([("consumer.session.timeout.ms", SET, None)], 42),
        ([("nope", DELETE, None)], 0),
    ],
)
async def test_what_a_group_cannot_have_is_refused(ask: Asker, name: str, changes, code: int) -> None:
    assert await alter_some(ask, resource(GROUP, name, *changes)) == [code]
    assert await alter_some(ask, resource(GROUP, "", *changes)) == [42]
    assert await values(ask, GROUP, name) == {}


async def test_a_broker_tells_its_settings_and_changes_none(ask: Asker) -> None:
    """R-196: read-only; an id of another broker is refused."""
    own = (await ask.metadata()).brokers[0]
    found = {one.name: one for one in (await describe(ask, BROKER, str(own.node_id))).configs}
    assert all(one.read_only for one in found.values())
    assert found["node.id"].value == found["broker.id"].value == str(own.node_id)
    assert found["advertised.listeners"].value == f"PLAINTEXT://{own.host}:{own.port}"
    assert (found["auto.create.topics.enable"].value, found["auto.create.topics.enable"].config_source) == ("false", 4)
    assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("1", 5)
    assert found["broker.rack"].value is None
    change = ("num.partitions", SET, "9")
    for named, code in ((str(own.node_id), 42), ("", 42), ("123456", 42), ("x", 42)):
        assert await alter_some(ask, resource(BROKER, named, change)) == [code]
        assert await alter_all(ask, BROKER, named, ("num.partitions", "9")) == code
    assert await alter_some(ask, resource(BROKER, str(own.node_id))) == [0]
    assert (await describe(ask, LOGGER, str(own.node_id))).error_code == 0
    assert await alter_some(ask, resource(LOGGER, str(own.node_id), ("kafka.server", SET, "INFO"))) == [40]
    assert await alter_all(ask, LOGGER, str(own.node_id), ("kafka.server", "INFO")) == 42
