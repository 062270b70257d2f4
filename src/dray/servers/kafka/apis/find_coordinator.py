"""FindCoordinator (10): which broker to ask about a group, of the client's zone. Any would do.

Left out: coordinators of transactions and share groups are refused at once,
with a code that the clients of the version do not retry: 42, whose message
Java and others of versions 4 and above show; below, where librdkafka would ask
again for ever, 53 for transactions (ADR-0062).
"""

import asyncio
from typing import Final

from dray.errors import Unavailable
from dray.pace import Pace
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint, check_count
from dray.servers.kafka.leading import view_of
from dray.servers.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP: Final = 0
_TRANSACTION: Final = 1
_FIRST_WITH_MANY: Final = 4


async def handle(request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    if context.version >= _FIRST_WITH_MANY:
        check_count(len(request.coordinator_keys))
        found, pace = [], Pace()
        for key in request.coordinator_keys:
            found.append(_find(key, request.key_type, context))
            if pace.is_due():
                await asyncio.sleep(0)
        return FindCoordinatorResponse(coordinators=found, error_message=None)
    one = _find(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(key: str, key_type: int, context: Context) -> Coordinator:
    if key_type != _GROUP:
        code = ErrorCode.INVALID_REQUEST
        if key_type == _TRANSACTION and context.version < _FIRST_WITH_MANY:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _refusal(key, code, "only groups have a coordinator: there are no transactions")
    try:
        node = view_of(context).coordinator(key)
    except Unavailable as error:
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
    return Coordinator(key=key, node_id=node.broker_id, host=node.host, port=node.port, error_message=None)


def _refusal(key: str, code: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def refuse(request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=code,
        error_message=None,
        node_id=-1,
        port=-1,
        coordinators=[_refusal(key, code) for key in request.coordinator_keys],
    )


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
