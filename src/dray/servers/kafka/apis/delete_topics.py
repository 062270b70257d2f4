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
from dray.replica.freshness import Freshness
from dray.servers.kafka.codec import ZERO_UUID
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, Services, check_count
from dray.servers.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dray.topics.errors import UnknownTopic


async def handle(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    asked = _asked(request)
    check_count(len(asked))
    fresh, pace = Freshness(), Pace()
    twice = {key for key, count in Counter((one.name, one.topic_id) for one in asked).items() if count > 1}
    results = []
    for one in asked:
        if (one.name, one.topic_id) in twice or (one.name is None) == (one.topic_id == ZERO_UUID):
            results.append(_result(one, ErrorCode.INVALID_REQUEST))
        else:
            results.append(await _delete(one, context.services, fresh))
        if pace.is_due():
            await asyncio.sleep(0)
    return DeleteTopicsResponse(responses=results)


def _asked(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]


async def _delete(one: DeleteTopicState, services: Services, fresh: Freshness) -> DeletableTopicResult:
    by_id = one.topic_id != ZERO_UUID
    try:
        topic = await _find(one, services, fresh)
        await services.topics.delete(topic)
    except UnknownTopic:
        return _result(one, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except DrayError as error:
        return _result(one, code_for(error, Family.ADMIN))
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)


async def _find(one: DeleteTopicState, services: Services, fresh: Freshness) -> Topic:
    if one.name is not None:
        return await services.topics.find(one.name, fresh)
    return await services.topics.find_id(TopicId(one.topic_id), fresh)


def _result(one: DeleteTopicState, code: ErrorCode) -> DeletableTopicResult:
    return DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=code)


def refuse(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_result(one, code) for one in _asked(request)])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
