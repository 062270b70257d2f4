"""InitProducerId (22): an id for an idempotent producer, unique over the cluster's life.

Left out: transactions. A transactional id is refused at once with a code that
no client retries (E-1 of the checklist: 42).
"""

from typing import Final

from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint
from dray.servers.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return refuse(request, ErrorCode.INVALID_REQUEST)
    # An id that the client already has is not bumped: Kafka too gives a new one to whoever is not transactional.
    return InitProducerIdResponse(producer_id=await context.services.produce.new_producer(), producer_epoch=0)


def refuse(request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
