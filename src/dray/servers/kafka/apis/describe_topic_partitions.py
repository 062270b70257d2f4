"""DescribeTopicPartitions (75): topics and their partitions, as many as an answer may hold, and where to go on.

Left out: authorized operations (-2147483648 is always answered). There are no
replicas, so nobody was ever eligible to lead.
"""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final

from dray.errors import DrayError, Invalid
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.routing.service import Routing
from dray.routing.view import RoutingView
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import view_of
from dray.servers.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from dray.topics.errors import UnknownTopic
from dray.topics.service import check_name

_MOST: Final = 2_000
"""Partitions of one answer, whatever the client would take; Kafka's default."""


async def handle(request: DescribeTopicPartitionsRequest, context: Context) -> DescribeTopicPartitionsResponse:
    """Topics by name; one that is not there takes no room."""
    check_count(len(request.topics))
    asked, pace, cursor = Asked(context.services), Pace(), request.cursor
    view = view_of(context)
    names = _names(request)
    everything = {topic.name: topic for topic in await asked.everything()} if not request.topics else {}
    left = max(1, min(request.response_partition_limit, _MOST))
    told: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names if request.topics else sorted(everything):
        if cursor is not None and name < cursor.topic_name:
            continue
        if not left:
            return DescribeTopicPartitionsResponse(topics=told, next_cursor=Cursor(topic_name=name))
        if len(told) >= _MOST:
            return DescribeTopicPartitionsResponse(topics=told, next_cursor=Cursor(topic_name=name))
        if pace.is_due():
            await asyncio.sleep(0)
        try:
            topic = everything.get(name) or await asked.topic(name)
        except DrayError as error:
            told.append(_refusal(name, _code(name, error)))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        told.append(_described(topic, first, left, context.services.routing, view))
        left -= len(told[-1].partitions)
        end = first + len(told[-1].partitions)
        if end < topic.visible:
            place = Cursor(topic_name=name, partition_index=end)
            return DescribeTopicPartitionsResponse(topics=told, next_cursor=place)
    return DescribeTopicPartitionsResponse(topics=told)


def _names(request: DescribeTopicPartitionsRequest) -> Sequence[str]:
    """The names that were asked for, each once.

    Raises:
        Invalid: the cursor is not in one of them.
    """
    names = sorted({topic.name for topic in request.topics})
    if request.cursor is not None:
        if request.cursor.partition_index < 0:
            raise Invalid("a cursor is at a partition", partition=request.cursor.partition_index)
        if names and request.cursor.topic_name not in names:
            raise Invalid("a cursor is in a topic that is asked for", topic=request.cursor.topic_name[:300])
    return names


def _code(name: str, error: DrayError) -> ErrorCode:
    """No topic of this name; or none can have it."""
    if isinstance(error, UnknownTopic):
        try:
            check_name(name)
        except DrayError as bad:
            error = bad
    return code_for(error, Family.ADMIN)


def _described(
    topic: Topic, first: int, most: int, routing: Routing, view: RoutingView
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for number, stream in enumerate(islice(topic.streams, first, min(topic.visible, first + most)), first):
        leader = view.leader(stream)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=leader,
                leader_epoch=routing.epoch(stream),
                replica_nodes=(leader,),
                isr_nodes=(leader,),
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
        )
    return DescribeTopicPartitionsResponseTopic(name=topic.name, topic_id=topic.id, partitions=partitions)


def _refusal(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def refuse(request: DescribeTopicPartitionsRequest, code: ErrorCode) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[_refusal(topic.name, code) for topic in request.topics])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
