"""ListOffsets (2): ends of partitions, and offsets by time; every answer is given after a sync.

Left out: tiered storage, which Dray does not have: its special timestamps are
answered as a log without tiers answers them.
"""

import asyncio
from collections import Counter
from typing import Final

from dray.errors import DrayError, Kind
from dray.fetch.errors import StreamGone
from dray.machine.names import StreamId
from dray.pace import Pace
from dray.replica.freshness import Freshness
from dray.routing.service import LEADER_EPOCH
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, Services, check_count
from dray.servers.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from dray.topics.errors import UnknownTopic

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

_SINCE: Final = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The first version that knows a special timestamp."""


async def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    check_count(sum(len(topic.partitions) for topic in request.topics))
    fresh, pace = Freshness(), Pace()
    answers = []
    for topic in request.topics:
        partitions = await _partitions(topic, context, fresh, pace)
        answers.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        if pace.is_due():
            await asyncio.sleep(0)
    return ListOffsetsResponse(topics=answers)


async def _partitions(
    asked: ListOffsetsTopic, context: Context, fresh: Freshness, pace: Pace
) -> list[ListOffsetsPartitionResponse]:
    services = context.services
    try:
        topic = await services.topics.find(asked.name, fresh)
        if any(not 0 <= one.partition_index < topic.visible for one in asked.partitions):
            await fresh.of(services.domains.catalog)
    except UnknownTopic:
        return [_refusal(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for one in asked.partitions]
    except DrayError as error:
        return [_refusal(one, code_for(error, Family.DATA)) for one in asked.partitions]
    twice = {index for index, count in Counter(one.partition_index for one in asked.partitions).items() if count > 1}
    answers = []
    for one in asked.partitions:
        if one.partition_index in twice:
            answers.append(_refusal(one, ErrorCode.INVALID_REQUEST))
        elif not 0 <= one.partition_index < topic.visible:
            answers.append(_refusal(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif one.current_leader_epoch > LEADER_EPOCH:
            answers.append(_refusal(one, ErrorCode.UNKNOWN_LEADER_EPOCH))
        elif one.timestamp < 0 and context.version < _SINCE.get(one.timestamp, 1 << 15):
            answers.append(_refusal(one, ErrorCode.UNSUPPORTED_VERSION))
        else:
            answers.append(await _answer(one, topic.streams[one.partition_index], services, fresh))
        if pace.is_due():
            await asyncio.sleep(0)
    return answers


async def _answer(
    asked: ListOffsetsPartition, stream: StreamId, services: Services, fresh: Freshness
) -> ListOffsetsPartitionResponse:
    try:
        offset, timestamp = await _look_up(asked.timestamp, stream, services, fresh)
    except StreamGone:
        return _refusal(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except DrayError as error:
        corrupt = error.kind is Kind.CORRUPT
        return _refusal(asked, ErrorCode.KAFKA_STORAGE_ERROR if corrupt else code_for(error, Family.DATA))
    epoch = LEADER_EPOCH if offset >= 0 else -1
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


async def _look_up(timestamp: int, stream: StreamId, services: Services, fresh: Freshness) -> tuple[int, int]:
    """(offset, timestamp of its record); -1 where there is none."""
    match timestamp:
        case -1:
            return await services.log_offsets.latest(stream, fresh), -1
        case -2 | -4:
            return await services.log_offsets.earliest(stream, fresh), -1
        case -5:
            return -1, -1
        case -3:
            found = await services.log_offsets.newest(stream, fresh)
        case _:
            found = await services.log_offsets.at_time(stream, timestamp, fresh)
    return (-1, -1) if found is None else (found.offset, found.timestamp_ms)


def _refusal(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)


def refuse(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[_refusal(one, code) for one in topic.partitions])
            for topic in request.topics
        ]
    )


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
