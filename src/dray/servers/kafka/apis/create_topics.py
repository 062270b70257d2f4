"""CreateTopics (19): make topics; each is answered when it is visible with all its partitions.

Left out: manual replica assignments are counted and otherwise ignored, as is
the replication factor, which is kept and reported: copies come from the store.
The answer about more than 1,000 topics does not tell their configs.
"""

import asyncio
from collections import Counter
from typing import Final

import msgspec

from dray.errors import DrayError
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import PARTITIONS, Context, Endpoint, Services, check_count
from dray.servers.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dray.topics import configs as topic_configs
from dray.topics.service import NewTopic

_STEPS: Final = 10
"""Of one topic, whose answer tells all its configs."""
_TOLD_TOPICS: Final = 1_000
"""Thirty configs each: more of them would hold the loop while they are written."""
_TOPIC_SOURCE: Final = 1
_DEFAULT_SOURCE: Final = 5


async def handle(request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    check_count(len(request.topics))
    if sum(max(len(topic.assignments), topic.num_partitions) for topic in request.topics) > PARTITIONS:
        return refuse(request, ErrorCode.POLICY_VIOLATION, f"one request makes at most {PARTITIONS} partitions")
    asked, told = Asked(context.services), set[str]()
    twice = {name for name, count in Counter(topic.name for topic in request.topics).items() if count > 1}
    results: list[CreatableTopicResult] = []
    pace = Pace()
    for topic in request.topics:
        if pace.is_due(_STEPS):
            await asyncio.sleep(0)
        if topic.name not in twice:
            made = await _create(topic, context.services, asked, validate_only=request.validate_only)
            results.append(made if len(request.topics) <= _TOLD_TOPICS else msgspec.structs.replace(made, configs=()))
        elif topic.name not in told:
            told.add(topic.name)
            results.append(_failure(topic, ErrorCode.INVALID_REQUEST, "the request names this topic twice"))
    return CreateTopicsResponse(topics=results)


async def _create(
    topic: CreatableTopic, services: Services, asked: Asked, *, validate_only: bool
) -> CreatableTopicResult:
    try:
        wanted = _wanted(topic, services)
        kept = asked.new(wanted)
        if validate_only:
            await asked.check_free(wanted.name)
            return _success(wanted, kept, bytes(16))
        made = await services.topics.create(wanted)
        return _success(wanted, kept, made.id)
    except _BadAssignment as error:
        return _failure(topic, ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(error))
    except _Ambiguous as error:
        return _failure(topic, ErrorCode.INVALID_REQUEST, str(error))
    except DrayError as error:
        return _failure(topic, code_for(error, Family.ADMIN), str(error))


class _BadAssignment(Exception):
    """The manual assignment makes no sense."""


class _Ambiguous(Exception):
    """The number of partitions is given twice."""


def _wanted(asked: CreatableTopic, services: Services) -> NewTopic:
    default = services.default_topic(asked.name)
    partitions, factor = asked.num_partitions, asked.replication_factor
    if asked.assignments:
        if partitions != -1 or factor != -1:
            raise _Ambiguous("give either an assignment or the number of partitions and replicas")
        if sorted(one.partition_index for one in asked.assignments) != list(range(len(asked.assignments))):
            raise _BadAssignment("the assigned partitions are not 0 to n-1")
        if any(not one.broker_ids or len(set(one.broker_ids)) < len(one.broker_ids) for one in asked.assignments):
            raise _BadAssignment("a partition is assigned to no broker, or to one of them twice")
        partitions, factor = len(asked.assignments), max(len(one.broker_ids) for one in asked.assignments)
    return NewTopic(
        name=asked.name,
        partitions=default.partitions if partitions == -1 else partitions,
        replication_factor=default.replication_factor if factor == -1 else factor,
        configs={config.name: config.value for config in asked.configs},
    )


def _success(wanted: NewTopic, kept: dict[str, str], topic_id: bytes) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=wanted.partitions,
        replication_factor=wanted.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=key.name,
                value=kept.get(key.name, key.default),
                config_source=_TOPIC_SOURCE if key.name in kept else _DEFAULT_SOURCE,
            )
            for key in topic_configs.KEYS.values()
        ],
    )


def _failure(asked: CreatableTopic, code: ErrorCode, message: str | None = None) -> CreatableTopicResult:
    return CreatableTopicResult(name=asked.name, error_code=code, error_message=message, configs=())


def refuse(request: CreateTopicsRequest, code: ErrorCode, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_failure(topic, code, message) for topic in request.topics])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
