"""ConsumerGroupDescribe (69): a consumer group and its members, as they are.

Left out: authorized operations, since everybody may do everything.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from dray.errors import DrayError
from dray.machine.groups.codes import GroupCode
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.masks import Masks, held, partitions_of
from dray.machine.groups.members import ConsumerMember
from dray.machine.names import TopicId
from dray.pace import Pace
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CONSUMER: Final = 1
"""The type of a member that speaks this protocol."""


async def handle(request: ConsumerGroupDescribeRequest, context: Context) -> ConsumerGroupDescribeResponse:
    check_count(len(request.group_ids))
    asked, pace = Asked(context.services), Pace()
    groups = []
    for name in request.group_ids:
        described = await _describe(name, context, asked)
        groups.append(described)
        if pace.is_due(1 + len(described.members)):
            await asyncio.sleep(0)
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(name: str, context: Context, asked: Asked) -> DescribedGroup:
    services = context.services
    if not name:
        return _refusal(name, ErrorCode.INVALID_GROUP_ID, None)
    try:
        await check_coordinator(name, context)
        found = await services.consumers.describe(name, asked.fresh)
    except DrayError as error:
        return _refusal(name, code_for(error, Family.GROUP), None)
    if found is GroupCode.UNKNOWN_GROUP:
        return _refusal(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
    if not isinstance(found, ConsumerGroup):
        return _refusal(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
    names = {view.id: name for name, view in found.topics.views.items()}
    return DescribedGroup(
        error_message=None,
        group_id=name,
        group_state=found.state.value,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=services.consumers.assignor_of(found),
        members=[_member(member, names, asked) for _, member in sorted(found.members.items())],
    )


def _member(member: ConsumerMember, names: Mapping[TopicId, str], asked: Asked) -> Member:
    holds = {
        topic: held((*member.assigned.get(topic, ()), *member.revoking.get(topic, ())))
        for topic in member.assigned | member.revoking
    }
    return Member(
        member_id=member.id,
        instance_id=member.instance,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.names,
        subscribed_topic_regex=member.regex,
        assignment=_assignment(holds, names, asked),
        target_assignment=_assignment(member.target, names, asked),
        member_type=_CONSUMER,
    )


def _assignment(masks: Masks, names: Mapping[TopicId, str], asked: Asked) -> Assignment:
    """Topics that are gone have no name, and are left out."""
    rows = []
    for topic, mask in sorted(masks.items()):
        known = names.get(topic) or asked.name_of(topic)
        if known is not None:
            rows.append(TopicPartitions(topic_id=topic, topic_name=known, partitions=partitions_of(mask)))
    return Assignment(topic_partitions=rows)


def _refusal(name: str, code: ErrorCode, message: str | None) -> DescribedGroup:
    return DescribedGroup(error_code=code, error_message=message, group_id=name)


def refuse(request: ConsumerGroupDescribeRequest, code: ErrorCode) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[_refusal(name, code, None) for name in request.group_ids])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
