"""JoinGroup (11): be in the next generation of a classic group. The answer comes when it has begun.

Left out: nothing.
"""

from typing import Final

from dray.errors import DrayError
from dray.groups.classic import Caller, Join
from dray.groups.errors import GroupSaysNo
from dray.machine.groups.codes import GroupCode, PendingJoin
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.groups.roster import CONSUMER
from dray.servers.kafka.codec import Malformed, decode
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.consumer_protocol_subscription import CODEC as SUBSCRIPTION
from dray.servers.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

_FIRST_THAT_KNOWS_ITS_ID: Final = 4
_FIRST_THAT_SKIPS: Final = 9
_FIRST_WITH_TYPE: Final = 7
_NEWEST_SUBSCRIPTION: Final = 3
_OF_NO_MEMBER: Final = (GroupCode.FULL, GroupCode.OTHER_KIND)
"""Refusals that name no member."""


async def handle(request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
    check_count(len(request.protocols))
    await check_coordinator(request.group_id, context)
    call = Join(
        caller=Caller(
            group=request.group_id,
            member=MemberId(request.member_id),
            instance=None if request.group_instance_id is None else InstanceId(request.group_instance_id),
        ),
        client_id=context.client_id or "",
        client_host=f"/{context.peer.address}",
        session_ms=request.session_timeout_ms,
        # Version 0 has no rebalance timeout: the session's is both.
        rebalance_ms=request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, bytes(one.metadata)) for one in request.protocols),
        topics=_topics(request),
        must_know=context.version >= _FIRST_THAT_KNOWS_ITS_ID,
        tells_leader=context.version >= _FIRST_THAT_SKIPS,
    )
    try:
        joined = await context.services.classic.join(call)
    except DrayError as error:
        told = "" if isinstance(error, GroupSaysNo) and error.code in _OF_NO_MEMBER else None
        return _refusal(request, code_for(error, Family.GROUP), context.version, told)
    if isinstance(joined, PendingJoin):
        return _refusal(request, ErrorCode.MEMBER_ID_REQUIRED, context.version, joined.member)
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member,
        members=[
            JoinGroupResponseMember(member_id=one.member, group_instance_id=one.instance, metadata=one.metadata)
            for one in joined.members
        ],
    )


def _topics(request: JoinGroupRequest) -> tuple[str, ...] | None:
    """What the caller reads, if its metadata tells; the same stands in every protocol."""
    if request.protocol_type != CONSUMER or not request.protocols:
        return None
    metadata = memoryview(request.protocols[0].metadata)
    if len(metadata) < 2:
        return None
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if version < 0:
        return None
    try:
        told, _, _ = decode(SUBSCRIPTION.read[min(version, _NEWEST_SUBSCRIPTION)], metadata, 2)
    except Malformed:
        return None
    return tuple(dict.fromkeys(told.topics))


def _refusal(
    request: JoinGroupRequest, code: ErrorCode, version: int, member: str | None = None
) -> JoinGroupResponse:  # fmt: skip
    return JoinGroupResponse(
        error_code=code,
        generation_id=-1,
        protocol_name=None if version >= _FIRST_WITH_TYPE else "",
        member_id=request.member_id if member is None else member,
    )


def refuse(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, generation_id=-1, member_id=request.member_id)


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
