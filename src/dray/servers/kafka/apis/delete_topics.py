"""DeleteTopics (20): delete topics by name or id; answered when every stream is closed.

Left out: nothing. Objects go later, by garbage collection.
"""

import asyncio
from collections import Counter
from typing import Final

from dray.errors import DrayError
from dray.machine.names import TopicId
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.codec import ZERO_UUID
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, Services, check_count
from dray.servers.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


async def handle(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    """Whatever is named twice, be it once by name and once by id, is not deleted and answered once, as by Kafka."""
    named = _named(request)
    check_count(len(named))
    asked, pace = Asked(context.services), Pace()
    counts = Counter((one.name, one.topic_id) for one in named)
    found: list[Topic | DeletableTopicResult] = []
    for one in {(one.name, one.topic_id): one for one in named}.values():
        if counts[one.name, one.topic_id] > 1:
            found.append(_result(one, ErrorCode.INVALID_REQUEST, "the request names this topic twice"))
        elif (one.name is None) == (one.topic_id == ZERO_UUID):
            found.append(_result(one, ErrorCode.INVALID_REQUEST, "name a topic either by name or by id"))
        else:
            found.append(await _find(one, asked))
        if pace.is_due():
            await asyncio.sleep(0)
    times = Counter(topic.id for topic in found if isinstance(topic, Topic))
    answers: dict[TopicId, DeletableTopicResult] = {}
    results = []
    for topic in found:
        if not isinstance(topic, Topic):
            results.append(topic)
        elif topic.id not in answers:
            answers[topic.id] = await _delete(topic, context.services, twice=times[topic.id] > 1)
            results.append(answers[topic.id])
        if pace.is_due():
            await asyncio.sleep(0)
    return DeleteTopicsResponse(responses=results)


def _named(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]


async def _find(one: DeleteTopicState, asked: Asked) -> Topic | DeletableTopicResult:
    try:
        return await (asked.topic_of_id(one.topic_id) if one.name is None else asked.topic(one.name))
    except DrayError as error:
        return _result(one, code_for(error, Family.ADMIN), str(error))


async def _delete(topic: Topic, services: Services, *, twice: bool) -> DeletableTopicResult:
    told = DeleteTopicState(name=topic.name, topic_id=topic.id)
    if twice:
        return _result(told, ErrorCode.INVALID_REQUEST, "the request names this topic twice")
    try:
        await services.topics.delete(topic)
    except DrayError as error:
        return _result(told, code_for(error, Family.ADMIN), str(error))
    return DeletableTopicResult(name=topic.name, topic_id=topic.id, error_message=None)


def _result(one: DeleteTopicState, code: ErrorCode, message: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=code, error_message=message)


def refuse(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_result(one, code) for one in _named(request)])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
