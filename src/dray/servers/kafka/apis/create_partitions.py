"""CreatePartitions (37): give topics more partitions; answered when all of them are visible.

Left out: assignments to brokers are counted and otherwise ignored: copies come
from the store. What is not done after the request's timeout is answered with
7, and is finished all the same.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from dray.errors import DrayError
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import PARTITIONS, Context, Endpoint, Services, check_count, time_limit
from dray.servers.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    check_count(len(request.topics))
    if sum(max(0, topic.count) for topic in request.topics) > PARTITIONS:
        return refuse(request, ErrorCode.POLICY_VIOLATION, f"one request names at most {PARTITIONS} partitions")
    asked, pace, results = Asked(context.services), Pace(), []
    times = Counter(topic.name for topic in request.topics)
    left_s = time_limit(request.timeout_ms)
    try:
        async with asyncio.timeout(left_s):
            await asked.catalog()
            for topic in {topic.name: topic for topic in request.topics}.values():
                if times[topic.name] > 1:
                    results.append(_told(topic, ErrorCode.INVALID_REQUEST, "the request names this topic twice"))
                else:
                    results.append(await _grow(topic, asked, context.services, validate_only=request.validate_only))
                if pace.is_due():
                    await asyncio.sleep(0)
    except TimeoutError:
        done = {result.name for result in results}
        late = [topic for topic in request.topics if topic.name not in done]
        results += [_told(topic, ErrorCode.REQUEST_TIMED_OUT, "it is not done yet, and may still be") for topic in late]
    return CreatePartitionsResponse(results=results)


async def _grow(
    wanted: CreatePartitionsTopic, asked: Asked, services: Services, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    try:
        topic = await asked.topic(wanted.name)
        services.topics.ensure_growth(topic, wanted.count)
        wrong = _wrong_assignment(wanted.assignments, wanted.count - topic.visible)
        if wrong is not None:
            return _told(wanted, ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
        if not validate_only:
            await services.topics.add_partitions(topic, wanted.count)
    except DrayError as error:
        return _told(wanted, code_for(error, Family.ADMIN), str(error))
    return CreatePartitionsTopicResult(name=wanted.name)


def _wrong_assignment(assignments: Sequence[CreatePartitionsAssignment] | None, added: int) -> str | None:
    if assignments is None:
        return None
    if len(assignments) != added:
        return f"{added} partitions are added, and {len(assignments)} assigned"
    if any(not one.broker_ids or len(set(one.broker_ids)) < len(one.broker_ids) for one in assignments):
        return "a partition is assigned to no broker, or to one of them twice"
    if len({len(one.broker_ids) for one in assignments}) > 1:
        return "the partitions are assigned to different numbers of brokers"
    return None


def _told(topic: CreatePartitionsTopic, code: ErrorCode, message: str | None = None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)


def refuse(request: CreatePartitionsRequest, code: ErrorCode, message: str | None = None) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_told(topic, code, message) for topic in request.topics])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
