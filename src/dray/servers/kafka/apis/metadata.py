"""Metadata (3): brokers, topics, and whom to ask about each partition.

Left out: authorized operations (not requested = -2147483648 is always
answered), and zones: every client is told of every broker.
"""

import asyncio
from typing import Final, TypeAlias

from dray.errors import DrayError
from dray.machine.names import TopicId
from dray.pace import Pace
from dray.replica.freshness import Freshness
from dray.servers.kafka.codec import ZERO_UUID
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from dray.topics.errors import BadTopicName, TopicExists, UnknownTopic
from dray.topics.service import check_name

Described: TypeAlias = MetadataResponseTopic | bytes
"""A topic in an answer; one that exists is kept encoded."""

_FIRST_WITH_IDS: Final = 12
"""The first version that may ask by topic id."""


async def handle(request: MetadataRequest, context: Context) -> MetadataResponse:
    services = context.services
    topics = await _topics(request, context)
    nodes = services.routing.nodes(context.peer.listener)
    known = {node.broker_id for node in nodes}
    own = services.routing.broker_id
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
        ],
        cluster_id=services.routing.cluster_id,
        controller_id=own if own in known else min(known, default=-1),
        topics=topics,
    )


async def _topics(request: MetadataRequest, context: Context) -> list[Described]:
    services = context.services
    asked, pace = request.topics, Pace()
    if asked is None or (context.version == 0 and not asked):
        await services.domains.catalog.sync()
        everything: list[Described] = []
        for topic in services.topics.visible():
            everything.append(services.described.of(topic, context.version))
            if pace.is_due():
                await asyncio.sleep(0)
        return everything
    check_count(len(asked))
    fresh, described = Freshness(), list[Described]()
    seen: dict[tuple[str | None, bytes], MetadataRequestTopic] = {(one.name, one.topic_id): one for one in asked}
    for one in seen.values():
        described.append(await _one(one, request, context, fresh))
        if pace.is_due():
            await asyncio.sleep(0)
    return described


async def _one(asked: MetadataRequestTopic, request: MetadataRequest, context: Context, fresh: Freshness) -> Described:
    services = context.services
    if asked.topic_id != ZERO_UUID or asked.name is None:
        if context.version < _FIRST_WITH_IDS:
            return _refusal(asked, ErrorCode.INVALID_REQUEST)
        try:
            topic = await services.topics.find_id(TopicId(asked.topic_id), fresh)
        except UnknownTopic:
            return _refusal(asked, ErrorCode.UNKNOWN_TOPIC_ID)
        return services.described.of(topic, context.version)
    try:
        return services.described.of(await services.topics.find(asked.name, fresh), context.version)
    except UnknownTopic:
        pass
    if not (request.allow_auto_topic_creation and services.auto_create):
        return await _unknown(asked.name)
    return await _create(asked.name, context)


async def _unknown(name: str) -> MetadataResponseTopic:
    try:
        check_name(name)
    except BadTopicName:
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


async def _create(name: str, context: Context) -> Described:
    """The topic is there when we answer: the client need not ask again."""
    services = context.services
    try:
        topic = await services.topics.create(services.default_topic(name))
    except TopicExists:
        try:
            topic = await services.topics.find(name)
        except UnknownTopic:  # another broker is making it
            return MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name)
    except BadTopicName:
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    except DrayError:
        return MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name)
    return services.described.of(topic, context.version)


def _refusal(asked: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    name = None if code is ErrorCode.UNKNOWN_TOPIC_ID else (asked.name or "")
    return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)


def refuse(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    """Every topic asked for carries the code; below version 13 there is no other place."""
    return MetadataResponse(topics=[_refusal(asked, code) for asked in request.topics or ()])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
