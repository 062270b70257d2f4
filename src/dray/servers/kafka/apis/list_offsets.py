"""ListOffsets (2): ends of partitions, and offsets by time; every answer is given after a sync.

Left out: tiered storage, which Dray does not have: its special timestamps are
answered as a log without tiers answers them.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from dray.errors import DrayError
from dray.machine.names import StreamId
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.replica.freshness import Freshness
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.epochs import epoch_error
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, Services, check_count
from dray.servers.kafka.leading import Leading
from dray.servers.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

_SINCE: Final = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The first version that knows a special timestamp."""


async def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    check_count(sum(len(topic.partitions) for topic in request.topics))
    asked, pace = Asked(context.services), Pace()
    leading = Leading(context, asked)
    topics, twice = _told_apart(request.topics)
    answers = {}
    for topic in topics:
        answers[topic.name] = await _partitions(topic, context, asked, leading, pace)
        if pace.is_due():
            await asyncio.sleep(0)
    for name, found in twice.items():
        answers.setdefault(name, []).extend(_refusal(one, ErrorCode.INVALID_REQUEST) for one in found)
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=name, partitions=found) for name, found in answers.items() if found]
    )


def _told_apart(
    topics: Sequence[ListOffsetsTopic],
) -> tuple[list[ListOffsetsTopic], dict[str, list[ListOffsetsPartition]]]:
    """Each topic once with what is asked once of it, and what is asked more than once; so does Kafka."""
    asked: dict[str, dict[int, ListOffsetsPartition]] = {}
    twice: dict[str, dict[int, ListOffsetsPartition]] = {}
    for topic in topics:
        known = asked.setdefault(topic.name, {})
        for one in topic.partitions:
            if known.setdefault(one.partition_index, one) is not one:
                twice.setdefault(topic.name, {})[one.partition_index] = one
    once = [
        ListOffsetsTopic(name=name, partitions=[one for at, one in found.items() if at not in twice.get(name, ())])
        for name, found in asked.items()
    ]
    return once, {name: list(found.values()) for name, found in twice.items()}


async def _partitions(
    wanted: ListOffsetsTopic, context: Context, asked: Asked, leading: Leading, pace: Pace
) -> list[ListOffsetsPartitionResponse]:
    try:
        topic = await asked.topic(wanted.name)
    except DrayError as error:
        code = code_for(error, Family.DATA)
        return [_refusal(one, code) for one in wanted.partitions]
    answers = []
    for one in wanted.partitions:
        answers.append(await _answer(topic, one, context, asked, leading))
        if pace.is_due():
            await asyncio.sleep(0)
    return answers


async def _answer(
    topic: Topic, wanted: ListOffsetsPartition, context: Context, asked: Asked, leading: Leading
) -> ListOffsetsPartitionResponse:
    routing = context.services.routing
    try:
        stream = await asked.stream(topic, wanted.partition_index)
        await leading.check(stream)
        if wrong := epoch_error(wanted.current_leader_epoch, routing.epoch(stream)):
            return _refusal(wanted, wrong)
        if wanted.timestamp < 0 and context.version < _SINCE.get(wanted.timestamp, 1 << 15):
            return _refusal(wanted, ErrorCode.UNSUPPORTED_VERSION)
        offset, timestamp = await _look_up(wanted.timestamp, stream, context.services, asked.fresh)
    except DrayError as error:
        return _refusal(wanted, code_for(error, Family.DATA))
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=routing.epoch(stream) if offset >= 0 else -1,
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
