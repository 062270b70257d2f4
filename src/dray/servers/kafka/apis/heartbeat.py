"""Heartbeat (12): a member of a classic group is there, and is told whether to join again.

Left out: nothing.
"""

from typing import Final

from dray.errors import DrayError
from dray.groups.classic import Caller
from dray.machine.groups.names import InstanceId, MemberId
from dray.servers.kafka.error_codes import GROUP_CODES, ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    await check_coordinator(request.group_id, context)
    caller = Caller(
        group=request.group_id,
        member=MemberId(request.member_id),
        instance=None if request.group_instance_id is None else InstanceId(request.group_instance_id),
    )
    try:
        code = await context.services.classic.beat(caller, request.generation_id)
    except DrayError as error:
        return refuse(request, code_for(error, Family.GROUP))
    return HeartbeatResponse(error_code=GROUP_CODES[code])


def refuse(request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
