"""DescribeProducers (61): the idempotent producers that partitions remember.

Left out: transactions, of which there are none. The last use of a producer is
kept in minutes.
"""

import asyncio
from typing import Final

from dray.errors import DrayError
from dray.machine import producers
from dray.machine.topics import Topic
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, TooMany, check_count
from dray.servers.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from dray.topics.errors import UnknownTopic
from dray.topics.service import check_name

_MINUTE_MS: Final = 60_000
_MOST: Final = 20_000
"""Producers of one answer: more would hold the loop while they are written."""


async def handle(request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    check_count(sum(len(topic.partition_indexes) for topic in request.topics))
    asked, pace, room = Asked(context.services), Pace(), _Room()
    topics = []
    for wanted in request.topics:
        partitions = await _partitions(wanted, context, asked, room, pace)
        topics.append(TopicResponse(name=wanted.name, partitions=partitions))
        if pace.is_due():
            await asyncio.sleep(0)
    return DescribeProducersResponse(topics=topics)


class _Room:
    """What is left of an answer."""

    def __init__(self) -> None:
        self._left = _MOST

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TooMany("too many producers for one answer: ask for fewer partitions", limit=_MOST)


async def _partitions(
    wanted: TopicRequest, context: Context, asked: Asked, room: _Room, pace: Pace
) -> list[PartitionResponse]:
    try:
        topic = await _topic(wanted.name, asked)
    except DrayError as error:
        code = code_for(error, Family.DATA)
        return [_refusal(number, code, str(error)) for number in wanted.partition_indexes]
    answers = []
    for number in wanted.partition_indexes:
        try:
            told = await _producers(topic, number, context, asked, room)
            answers.append(PartitionResponse(partition_index=number, active_producers=told))
            steps = 1 + len(told)
        except DrayError as error:
            answers.append(_refusal(number, code_for(error, Family.DATA), str(error)))
            steps = 1
        if pace.is_due(steps):
            await asyncio.sleep(0)
    return answers


async def _topic(name: str, asked: Asked) -> Topic:
    try:
        return await asked.topic(name)
    except UnknownTopic:
        check_name(name)
        raise


async def _producers(topic: Topic, number: int, context: Context, asked: Asked, room: _Room) -> list[ProducerState]:
    stream = await asked.stream(topic, number)
    replica = context.services.domains.of(stream)
    await asked.fresh.of(replica)
    found = replica.machine.streams.find(stream)
    states = bytearray() if found is None else found.producers
    room.take(len(states) // producers.SIZE)
    return [
        ProducerState(
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.used_min * _MINUTE_MS,
            coordinator_epoch=-1,
        )
        for state in producers.all_states(states)
    ]


def _refusal(number: int, code: ErrorCode, message: str | None = None) -> PartitionResponse:
    return PartitionResponse(partition_index=number, error_code=code, error_message=message)


def refuse(request: DescribeProducersRequest, code: ErrorCode) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=topic.name, partitions=[_refusal(number, code) for number in topic.partition_indexes])
            for topic in request.topics
        ]
    )


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
