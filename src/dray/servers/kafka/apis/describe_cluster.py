"""DescribeCluster (60): the brokers, as Metadata tells them.

Left out: authorized operations (not requested = -2147483648 is always
answered). There are no controllers to ask about (114), and no broker is ever
fenced: one that is not live is not there.
"""

from typing import Final

from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint
from dray.servers.kafka.leading import view_of
from dray.servers.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


async def handle(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return refuse(request, ErrorCode.MISMATCHED_ENDPOINT_TYPE, "there are brokers here, and no controllers")
    if request.endpoint_type != _BROKERS:
        return refuse(request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "there are only brokers")
    view = view_of(context)
    return DescribeClusterResponse(
        cluster_id=context.services.routing.cluster_id,
        controller_id=view.controller,
        brokers=[
            DescribeClusterBroker(broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in view.nodes.values()
        ],
    )


def refuse(request: DescribeClusterRequest, code: ErrorCode, message: str | None = None) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
