"""Metadata (3): brokers, topics, and whom to ask about each partition.

A client that names its zone is told of the brokers there, if there are any.
Left out: authorized operations (not requested = -2147483648 is always
answered).
"""

import asyncio
from typing import Final, TypeAlias

from dray.errors import DrayError
from dray.pace import Pace
from dray.routing.view import RoutingView
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.codec import ZERO_UUID
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import view_of
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
    view = view_of(context)  # one for the whole answer: RG6
    topics = await _topics(request, context, view)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in view.nodes.values()
        ],
        cluster_id=context.services.routing.cluster_id,
        controller_id=view.controller,
        topics=topics,
    )


async def _topics(request: MetadataRequest, context: Context, view: RoutingView) -> list[Described]:
    described = context.services.described
    asked, pace = Asked(context.services), Pace()
    answers: list[Described] = []
    if request.topics is None or (context.version == 0 and not request.topics):
        for topic in await asked.everything():
            answers.append(described.of(topic, context.version, view))
            if pace.is_due():
                await asyncio.sleep(0)
        return answers
    check_count(len(request.topics))
    for one in {(one.name, one.topic_id): one for one in request.topics}.values():
        answers.append(await _one(one, request, context, asked, view))
        if pace.is_due():
            await asyncio.sleep(0)
    return answers


async def _one(
    wanted: MetadataRequestTopic, request: MetadataRequest, context: Context, asked: Asked, view: RoutingView
) -> Described:
    services = context.services
    if wanted.topic_id != ZERO_UUID or wanted.name is None:
        if context.version < _FIRST_WITH_IDS:
            return _refusal(wanted, ErrorCode.INVALID_REQUEST)
        try:
            topic = await asked.topic_of_id(wanted.topic_id)
        except UnknownTopic as error:
            return _refusal(wanted, code_for(error, Family.ADMIN))
        return services.described.of(topic, context.version, view)
    try:
        return services.described.of(await asked.topic(wanted.name), context.version, view)
    except UnknownTopic as error:
        if request.allow_auto_topic_creation and services.auto_create:
            return await _create(wanted.name, context, asked, view)
        return _unknown(wanted.name, error)


def _unknown(name: str, error: DrayError) -> MetadataResponseTopic:
    """No topic of this name; or none can have it, which clients want to know."""
    try:
        check_name(name)
    except BadTopicName as bad:
        error = bad
    return MetadataResponseTopic(error_code=code_for(error, Family.ADMIN), name=name)


async def _create(name: str, context: Context, asked: Asked, view: RoutingView) -> Described:
    """The topic is there when we answer: the client need not ask again."""
    services = context.services
    try:
        wanted = services.default_topic(name)
        asked.new(wanted)
        try:
            topic = await services.topics.create(wanted)
        except TopicExists:
            topic = await Asked(services).topic(name)
    except BadTopicName as error:
        return MetadataResponseTopic(error_code=code_for(error, Family.ADMIN), name=name)
    except DrayError:  # such as: another broker is making it
        return MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name)
    return services.described.of(topic, context.version, view)


def _refusal(asked: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    name = None if code is ErrorCode.UNKNOWN_TOPIC_ID else (asked.name or "")
    return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)


def refuse(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    """Every topic asked for carries the code; below version 13 there is no other place."""
    return MetadataResponse(topics=[_refusal(asked, code) for asked in request.topics or ()])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
