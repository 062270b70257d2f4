"""Configs of topics, brokers and groups: what holds, where it comes from, and changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dray.errors import Invalid
from dray.kafka_client.cluster import Cluster
from dray.kafka_client.errors import check
from dray.kafka_client.link import BrokerLink
from dray.servers.kafka.messages.describe_configs import SCHEMA as DESCRIBE_CONFIGS
from dray.servers.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from dray.servers.kafka.messages.incremental_alter_configs import SCHEMA as INCREMENTAL_ALTER_CONFIGS
from dray.servers.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "static",
    5: "default",
    6: "logger",
    7: "client-metrics",
    8: "group",
}
"""Kafka's numbers: 2 and 3 are what was altered for one broker and for all, 4 is the broker's file."""
_INHERITED: Final = ("static", "default", "cluster")
_SET: Final = 0
_DELETE: Final = 1


class ConfigOwner(Enum):
    """What has configs."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


_NUMBERS: Final = {ConfigOwner.TOPIC: 2, ConfigOwner.BROKER: 4, ConfigOwner.GROUP: 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """One config that holds."""

    name: str
    value: str | None
    """None: it has none, or it is a secret."""
    source: str
    read_only: bool
    sensitive: bool

    @property
    def own(self) -> bool:
        """Whether somebody set it for this very topic, broker or group."""
        return self.source not in _INHERITED


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEdit:
    """A config gets a value, or goes back to what it inherits."""

    name: str
    value: str | None


async def describe_configs(cluster: Cluster, owner: ConfigOwner, name: str) -> list[ConfigRow]:
    """All configs of one topic, broker or group, by name."""
    connection = await _keeper(cluster, owner, name)
    resource = DescribeConfigsResource(resource_type=_NUMBERS[owner], resource_name=name, configuration_keys=None)
    answer = await connection.ask(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]), most=4)
    found: list[ConfigRow] = []
    for result in answer.results:
        assert isinstance(result, DescribeConfigsResult)  # bytes are for sending alone
        check(result.error_code, result.error_message, **{owner.value: name})
        found += [
            ConfigRow(
                name=one.name,
                value=one.value,
                source=_SOURCES.get(one.config_source, "unknown"),
                read_only=one.read_only,
                sensitive=one.is_sensitive,
            )
            for one in result.configs
        ]
    return sorted(found, key=lambda row: row.name)


async def alter_configs(
    cluster: Cluster, owner: ConfigOwner, name: str, changes: Sequence[ConfigEdit], *, only_check: bool = False
) -> None:
    """Change some configs; the others stay as they are.

    Raises:
        LostAnswer: it may have happened; to repeat it does no harm.
    """
    connection = await _keeper(cluster, owner, name)
    configs = [
        AlterableConfig(name=one.name, config_operation=_DELETE if one.value is None else _SET, value=one.value)
        for one in changes
    ]
    resource = AlterConfigsResource(resource_type=_NUMBERS[owner], resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_check)
    answer = await connection.ask(INCREMENTAL_ALTER_CONFIGS, request, most=1, changes=not only_check)
    for told in answer.responses:
        check(told.error_code, told.error_message, **{owner.value: name})


async def _keeper(cluster: Cluster, owner: ConfigOwner, name: str) -> BrokerLink:
    """Whom to ask: a broker about itself, anybody else about the rest. No name is all brokers."""
    if owner is not ConfigOwner.BROKER or not name:
        return await cluster.admin()
    if not (name.isascii() and name.isdigit()):
        raise Invalid("a broker is named by its number", broker=name)
    return await cluster.broker(int(name))
