"""ListGroups (16): the groups that clients are sent to this broker for. Clients ask every broker.

Left out: nothing. A state or type that nobody knows fits no group.
"""

from typing import Final

from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import view_of
from dray.servers.kafka.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    check_count(len(request.states_filter) + len(request.types_filter))
    view, own = view_of(context), context.services.routing.broker_id

    def is_told(group: str) -> bool:
        return view.coordinator(group).broker_id == own

    found = await context.services.group_admin.list(is_told, request.states_filter, request.types_filter)
    return ListGroupsResponse(
        groups=[
            ListedGroup(group_id=one.group, protocol_type=one.protocol_type, group_state=one.state, group_type=one.kind)
            for one in found
        ]
    )


def refuse(request: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
