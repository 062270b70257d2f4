"""DeleteGroups (42): forget groups without members, and their committed offsets.

Left out: nothing.
"""

from typing import Final

from dray.errors import DrayError
from dray.servers.kafka.error_codes import ErrorCode, Family, code_for
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import check_coordinator
from dray.servers.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    check_count(len(request.groups_names))
    results = [await _delete(group, context) for group in dict.fromkeys(request.groups_names)]
    return DeleteGroupsResponse(results=results)


async def _delete(group: str, context: Context) -> DeletableGroupResult:
    try:
        await check_coordinator(group, context)
        await context.services.group_admin.drop(group)
    except DrayError as error:
        return DeletableGroupResult(group_id=group, error_code=code_for(error, Family.GROUP))
    return DeletableGroupResult(group_id=group)


def refuse(request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group, error_code=code) for group in names])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
