"""LeaveGroup (13): members go, or an operator takes static ones out by their instance.

Left out: nothing.
"""

from typing import Final

from dray.errors import DrayError
from dray.groups.classic import Caller
from dray.machine.groups.names import InstanceId, MemberId
from dray.servers.kafka.error_codes import GROUP_CODES, ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_FIRST_WITH_MANY: Final = 3


async def handle(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    group, several = request.group_id, context.version >= _FIRST_WITH_MANY
    check_count(len(request.members))
    await check_coordinator(request.group_id, context)
    members = (
        [
            Caller(
                group=group,
                member=MemberId(one.member_id),
                instance=None if one.group_instance_id is None else InstanceId(one.group_instance_id),
            )
            for one in request.members
        ]
        if several
        else [Caller(group=group, member=MemberId(request.member_id))]
    )
    try:
        codes = await context.services.classic.leave(group, members)
    except DrayError as error:
        return refuse(request, code_for(error, Family.GROUP))
    if not several:
        return LeaveGroupResponse(error_code=GROUP_CODES[codes[0]])
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=GROUP_CODES[code]
            )
            for one, code in zip(request.members, codes, strict=True)
        ]
    )


def refuse(request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
