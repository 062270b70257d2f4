"""AlterConfigs (33): give topics and groups a whole new set of configs; what is not named goes back to its default.

Left out: as in IncrementalAlterConfigs.
"""

from typing import Final

from dray.servers.kafka.configured import Change, alter_all
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint
from dray.servers.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from dray.topics.altering import ConfigChange


async def handle(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    changes = [
        Change(
            type=one.resource_type,
            name=one.resource_name,
            configs=[(config.name, ConfigChange.SET, config.value) for config in one.configs],
            whole=True,
            validate_only=request.validate_only,
        )
        for one in request.resources
    ]
    answers = await alter_all(changes, context.services)
    return AlterConfigsResponse(
        responses=[_told(one, *answer) for one, answer in zip(request.resources, answers, strict=True)]
    )


def _told(one: AlterConfigsResource, code: ErrorCode, message: str | None = None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code, error_message=message, resource_type=one.resource_type, resource_name=one.resource_name
    )


def refuse(request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[_told(one, code) for one in request.resources])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
