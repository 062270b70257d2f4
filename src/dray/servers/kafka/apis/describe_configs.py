"""DescribeConfigs (32): the configs of topics and groups, and what the broker is set to.

Left out: client metrics, which are not collected (42), and loggers, of which
none can be changed: there is an empty list of them. Every answer is given
after a sync.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from dray.errors import DrayError, Invalid
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.configured import ConfigSource, ResourceType, check_broker, check_group_resource, topic_of
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, Services, TooMany, check_count
from dray.servers.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    write_describe_configs_result,
)
from dray.topics.config_pages import MEANINGS, SYNONYMS
from dray.topics.configs import KEYS, ConfigType

_STEPS: Final = 2
"""Of one config."""
_ANSWER_BYTES: Final = 64 << 20
"""The largest answer; all configs of ten thousand topics fit, without what they mean."""


async def handle(request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
    check_count(len(request.resources))
    asked, pace = Asked(context.services), Pace()
    await asked.catalog()
    results, size = [], 0
    for one in request.resources:
        told = await _describe(one, request, asked, context.services)
        results.append(write_describe_configs_result(context.version, told))
        size += len(results[-1])
        if size > _ANSWER_BYTES:
            raise TooMany("the answer would be too large: ask for fewer at a time", limit_bytes=_ANSWER_BYTES)
        if pace.is_due(1 + _STEPS * len(told.configs)):
            await asyncio.sleep(0)
    return DescribeConfigsResponse(results=results)


async def _describe(
    one: DescribeConfigsResource, request: DescribeConfigsRequest, asked: Asked, services: Services
) -> DescribeConfigsResult:
    wanted = set(one.configuration_keys) if one.configuration_keys else None  # none at all means every one, as by Kafka
    try:
        configs = [config for config in await _configs(one, asked, services) if wanted is None or config.name in wanted]
    except DrayError as error:
        return _refusal(one, code_for(error, Family.ADMIN), str(error))
    return DescribeConfigsResult(
        error_message="",
        resource_type=one.resource_type,
        resource_name=one.resource_name,
        configs=[_shown(config, request) for config in configs],
    )


def _shown(config: DescribeConfigsResourceResult, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    """Only what was asked for."""
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.config_source,
        is_sensitive=config.is_sensitive,
        synonyms=config.synonyms if request.include_synonyms else (),
        config_type=config.config_type,
        documentation=config.documentation if request.include_documentation else None,
    )


async def _configs(
    one: DescribeConfigsResource, asked: Asked, services: Services
) -> Iterator[DescribeConfigsResourceResult]:
    match one.resource_type:
        case ResourceType.TOPIC:
            return _of_topic((await topic_of(one.resource_name, asked)).configs)
        case ResourceType.GROUP:
            check_group_resource(one.resource_name)
            return _of_group(one.resource_name, services)
        case ResourceType.BROKER:
            check_broker(one.resource_name, services, may_be_any=True)
            return _of_broker(services) if one.resource_name else iter(())
        case ResourceType.BROKER_LOGGER:
            check_broker(one.resource_name, services, may_be_any=False)
            return iter(())
        case _:
            raise Invalid("nothing of this type has configs", type=one.resource_type)


def _of_topic(given: dict[str, str]) -> Iterator[DescribeConfigsResourceResult]:
    for key in KEYS.values():
        synonyms = []
        if key.name in given:
            synonyms.append(DescribeConfigsSynonym(name=key.name, value=given[key.name], source=ConfigSource.TOPIC))
        if key.name in SYNONYMS:
            synonyms.append(
                DescribeConfigsSynonym(name=SYNONYMS[key.name], value=key.default, source=ConfigSource.DEFAULT)
            )  # fmt: skip
        yield DescribeConfigsResourceResult(
            name=key.name,
            value=given.get(key.name, key.default),
            config_source=ConfigSource.TOPIC if key.name in given else ConfigSource.DEFAULT,
            synonyms=synonyms,
            config_type=key.type,
            documentation=MEANINGS[key.name],
        )


def _of_group(group: str, services: Services) -> Iterator[DescribeConfigsResourceResult]:
    given = services.group_configs.given(group)
    for name, bounds in services.group_configs.keys.items():
        default = DescribeConfigsSynonym(name=f"group.{name}", value=str(bounds.default), source=ConfigSource.DEFAULT)
        own = [DescribeConfigsSynonym(name=name, value=given[name], source=ConfigSource.GROUP)] if name in given else []
        yield DescribeConfigsResourceResult(
            name=name,
            value=given.get(name, default.value),
            config_source=ConfigSource.GROUP if name in given else ConfigSource.DEFAULT,
            synonyms=[*own, default],
            config_type=ConfigType.INT,
            documentation=f"Milliseconds, from {bounds.low} to {bounds.high}; the default is the broker's.",
        )


def _of_broker(services: Services) -> Iterator[DescribeConfigsResourceResult]:
    for row in services.broker_configs.all(services.routing.broker_id):
        values = ((row.value if row.given else None, ConfigSource.STATIC_BROKER), (row.default, ConfigSource.DEFAULT))
        yield DescribeConfigsResourceResult(
            name=row.name,
            value=row.value,
            read_only=True,
            config_source=ConfigSource.STATIC_BROKER if row.given else ConfigSource.DEFAULT,
            synonyms=[
                DescribeConfigsSynonym(name=row.name, value=value, source=source)
                for value, source in values
                if value is not None
            ],
            config_type=row.type,
            documentation="Set in the broker's file; `drayd config schema` tells of every setting.",
        )


def _refusal(one: DescribeConfigsResource, code: ErrorCode, message: str | None = None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code, error_message=message, resource_type=one.resource_type, resource_name=one.resource_name
    )


def refuse(request: DescribeConfigsRequest, code: ErrorCode) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_refusal(one, code) for one in request.resources])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
