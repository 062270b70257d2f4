"""IncrementalAlterConfigs (44): change some configs of topics and groups, all or none of a resource.

Left out: brokers are set up by their files, and client metrics are not
collected: neither is changed.
"""

from typing import Final

from dray.servers.kafka.configured import Change, alter_all
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint
from dray.servers.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(request: IncrementalAlterConfigsRequest, context: Context) -> IncrementalAlterConfigsResponse:
    changes = [
        Change(
            type=one.resource_type,
            name=one.resource_name,
            configs=[(config.name, config.config_operation, config.value) for config in one.configs],
            whole=False,
            validate_only=request.validate_only,
        )
        for one in request.resources
    ]
    answers = await alter_all(changes, context.services)
    return IncrementalAlterConfigsResponse(
        responses=[_told(one, *answer) for one, answer in zip(request.resources, answers, strict=True)]
    )


def _told(one: AlterConfigsResource, code: ErrorCode, message: str | None = None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code, error_message=message, resource_type=one.resource_type, resource_name=one.resource_name
    )


def refuse(request: IncrementalAlterConfigsRequest, code: ErrorCode) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=[_told(one, code) for one in request.resources])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
