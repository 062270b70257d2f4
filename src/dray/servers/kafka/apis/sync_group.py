"""SyncGroup (14): what a member has to do in its generation. The answer comes when the leader has said it.

Left out: nothing.
"""

from typing import Final

from dray.errors import DrayError
from dray.groups.classic import Caller, Sync
from dray.machine.groups.names import InstanceId, MemberId
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_FIRST_WITH_TYPE: Final = 5


async def handle(request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
    untyped = request.protocol_type is None or request.protocol_name is None
    if context.version >= _FIRST_WITH_TYPE and untyped:
        return refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    await check_coordinator(request.group_id, context)
    call = Sync(
        caller=Caller(
            group=request.group_id,
            member=MemberId(request.member_id),
            instance=None if request.group_instance_id is None else InstanceId(request.group_instance_id),
        ),
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((MemberId(one.member_id), bytes(one.assignment)) for one in request.assignments),
    )
    try:
        assignment, protocol_type, protocol = await context.services.classic.sync(call)
    except DrayError as error:
        return refuse(request, code_for(error, Family.GROUP))
    return SyncGroupResponse(protocol_type=protocol_type, protocol_name=protocol, assignment=assignment)


def refuse(request: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
