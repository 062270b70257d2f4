"""OffsetForLeaderEpoch (23): where an epoch ended, so that a consumer finds out whether what it read is still there.

A leader epoch is the generation of the log (RG1): one ends when a recovery
begins a new log. Left out: followers.
"""

import asyncio
from typing import Final

from dray.errors import DrayError
from dray.machine.names import domain_of
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.epochs import epoch_error
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)


async def handle(request: OffsetForLeaderEpochRequest, context: Context) -> OffsetForLeaderEpochResponse:
    check_count(sum(len(topic.partitions) for topic in request.topics))
    asked, pace = Asked(context.services), Pace()
    topics = []
    for wanted in request.topics:
        topics.append(
            OffsetForLeaderTopicResult(topic=wanted.topic, partitions=await _ends(wanted, context, asked, pace))
        )
        if pace.is_due():
            await asyncio.sleep(0)
    return OffsetForLeaderEpochResponse(topics=topics)


async def _ends(wanted: OffsetForLeaderTopic, context: Context, asked: Asked, pace: Pace) -> list[EpochEndOffset]:
    try:
        topic = await asked.topic(wanted.topic)
    except DrayError as error:
        return [_refusal(one, code_for(error, Family.DATA)) for one in wanted.partitions]
    ends = []
    for one in wanted.partitions:
        ends.append(await _end(topic, one, context, asked))
        if pace.is_due():
            await asyncio.sleep(0)
    return ends


async def _end(topic: Topic, one: OffsetForLeaderPartition, context: Context, asked: Asked) -> EpochEndOffset:
    services = context.services
    try:
        stream = await asked.stream(topic, one.partition)
        if wrong := epoch_error(one.current_leader_epoch, services.routing.epoch(stream)):
            return _refusal(one, wrong)
        await services.domains.ready(domain_of(stream))
        end = await services.log_offsets.end_of_epoch(stream, one.leader_epoch, asked.fresh)
    except DrayError as error:
        return _refusal(one, code_for(error, Family.DATA))
    if end is None:
        return EpochEndOffset(partition=one.partition)
    return EpochEndOffset(partition=one.partition, leader_epoch=one.leader_epoch, end_offset=end)


def _refusal(one: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=one.partition, error_code=code)


def refuse(request: OffsetForLeaderEpochRequest, code: ErrorCode) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic=topic.topic, partitions=[_refusal(one, code) for one in topic.partitions])
            for topic in request.topics
        ]
    )


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
