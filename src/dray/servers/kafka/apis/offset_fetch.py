"""OffsetFetch (9): how far a consumer has come; answered after a sync.

A consumer group tells its members only in their epoch; whoever claims to be
nobody is told everything, and classic groups ask nobody who it is.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from dray.errors import DrayError
from dray.groups.offsets import NOTHING, Asker, FetchedOffset, Partition
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import check_coordinator
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
from dray.topics.errors import UnknownTopic

_FIRST_WITH_MANY: Final = 8
_FIRST_WITH_ERROR: Final = 2


async def handle(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    asked = Asked(context.services)
    if context.version >= _FIRST_WITH_MANY:
        check_count(max(len(request.groups), sum(_count(one.topics) for one in request.groups)))
        return OffsetFetchResponse(groups=await _groups(request.groups, context, asked))
    only = _only_group(request)
    check_count(_count(only.topics))
    answer = await _group(only, context, asked)
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
    wanted: Sequence[OffsetFetchRequestGroup], context: Context, asked: Asked
) -> list[OffsetFetchResponseGroup]:
    answers, pace = [], Pace()
    for one in wanted:
        answers.append(await _group(one, context, asked))
        if pace.is_due(1 + _count(one.topics)):
            await asyncio.sleep(0)
    return answers


async def _group(wanted: OffsetFetchRequestGroup, context: Context, asked: Asked) -> OffsetFetchResponseGroup:
    services = context.services
    asker = Asker(member=wanted.member_id, epoch=wanted.member_epoch)
    try:
        await check_coordinator(wanted.group_id, context)
        if wanted.topics is None:
            found = await services.offsets.fetch_all(wanted.group_id, asked.fresh, asker)
        else:
            named = await _named(wanted.topics, asked)
            known = [partition for partition, exists in named.items() if exists]
            committed = await services.offsets.fetch(wanted.group_id, known, asked.fresh, asker)
            found = dict.fromkeys(named, NOTHING) | committed
    except DrayError as error:
        return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=code_for(error, Family.GROUP))
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=await _by_topic(found))


async def _named(topics: Sequence[OffsetFetchRequestTopics], asked: Asked) -> dict[Partition, bool]:
    """The partitions that a request names, and whether their topics exist."""
    named: dict[Partition, bool] = {}
    for one in topics:
        try:
            await asked.topic(one.name)
        except UnknownTopic:
            exists = False  # no error: nothing was committed
        else:
            exists = True
        named |= {Partition(topic=one.name, number=number): exists for number in one.partition_indexes}
    return named


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
