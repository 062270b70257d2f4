"""OffsetFetch (9): how far a consumer has come; answered after a sync.

Left out: groups with members; a member or an epoch in the request is not
looked at, since no group has any.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from dray.errors import DrayError
from dray.groups.errors import BadGroupId
from dray.groups.offsets import FetchedOffset, Partition
from dray.pace import Pace
from dray.replica.freshness import Freshness
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, Services, check_count
from dray.servers.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_FIRST_WITH_MANY: Final = 8
_FIRST_WITH_ERROR: Final = 2


async def handle(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    fresh = Freshness()
    if context.version >= _FIRST_WITH_MANY:
        check_count(max(len(request.groups), sum(_count(one.topics) for one in request.groups)))
        return OffsetFetchResponse(groups=await _groups(request.groups, context.services, fresh))
    only = _only_group(request)
    check_count(_count(only.topics))
    answer = await _group(only, context.services, fresh)
    if answer.error_code and context.version < _FIRST_WITH_ERROR:
        return refuse(request, ErrorCode(answer.error_code))
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    wanted = (
        None
        if topics is None
        else [OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes) for one in topics]
    )
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted)


def _count(topics: Sequence[OffsetFetchRequestTopics] | None) -> int:
    return sum(len(one.partition_indexes) for one in topics or ())


async def _groups(
    asked: Sequence[OffsetFetchRequestGroup], services: Services, fresh: Freshness
) -> list[OffsetFetchResponseGroup]:
    answers, pace = [], Pace()
    for one in asked:
        answers.append(await _group(one, services, fresh))
        if pace.is_due(1 + _count(one.topics)):
            await asyncio.sleep(0)
    return answers


async def _group(asked: OffsetFetchRequestGroup, services: Services, fresh: Freshness) -> OffsetFetchResponseGroup:
    try:
        if asked.topics is None:
            found = await services.offsets.fetch_all(asked.group_id, fresh)
        else:
            found = await services.offsets.fetch(
                asked.group_id,
                [Partition(topic=one.name, number=index) for one in asked.topics for index in one.partition_indexes],
                fresh,
            )
    except BadGroupId:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    except DrayError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code_for(error, Family.GROUP))
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=await _by_topic(found))


async def _by_topic(found: dict[Partition, FetchedOffset]) -> Sequence[OffsetFetchResponseTopics]:
    topics: dict[str, list[OffsetFetchResponsePartitions]] = {}
    pace = Pace()
    for partition, offset in found.items():
        if pace.is_due():
            await asyncio.sleep(0)
        topics.setdefault(partition.topic, []).append(
            OffsetFetchResponsePartitions(
                partition_index=partition.number,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
            )
        )
    return [OffsetFetchResponseTopics(name=name, partitions=parts) for name, parts in topics.items()]


def refuse(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
        groups=[OffsetFetchResponseGroup(group_id=one.group_id, error_code=code) for one in request.groups],
    )


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
