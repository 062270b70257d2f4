"""DescribeGroups (15): the members of classic groups.

Left out: authorized operations. A group of the newer protocol is not
described here: clients have another request for it.
"""

from typing import Final

from dray.errors import DrayError
from dray.groups.admin import DescribedGroup as Found
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_FIRST_THAT_SAYS_UNKNOWN: Final = 6
_DEAD: Final = "Dead"


async def handle(request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    check_count(len(request.groups))
    return DescribeGroupsResponse(groups=[await _describe(group, context) for group in request.groups])


async def _describe(group: str, context: Context) -> DescribedGroup:
    try:
        await check_coordinator(group, context)
        found = await context.services.group_admin.describe(group)
    except DrayError as error:
        return DescribedGroup(group_id=group, error_code=code_for(error, Family.GROUP))
    if found is not None:
        return _shown(group, found)
    if context.version < _FIRST_THAT_SAYS_UNKNOWN:
        return DescribedGroup(group_id=group, group_state=_DEAD)
    return DescribedGroup(
        group_id=group,
        group_state=_DEAD,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group} not found.",
    )


def _shown(group: str, found: Found) -> DescribedGroup:
    return DescribedGroup(
        group_id=group,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=[
            DescribedGroupMember(
                member_id=one.member,
                group_instance_id=one.instance,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata,
                member_assignment=one.assignment,
            )
            for one in found.members
        ],
    )


def refuse(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id=group, error_code=code) for group in request.groups])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
