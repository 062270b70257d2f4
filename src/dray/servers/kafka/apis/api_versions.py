"""ApiVersions (18): what this server speaks.

Left out: features. None of ours is optional, so none is listed; finalizing
`transaction.version` would make Java clients use transactions we do not have.
A version above ours never gets here: the connection answers it.
"""

import re
from typing import Final

from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.handler import Context, Endpoint
from dray.servers.kafka.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from dray.servers.kafka.support import Api, Matrix

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_NAMES_CLIENT: Final = 3
"""The first version in which a client says what it is."""


async def handle(request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    name, version = request.client_software_name, request.client_software_version
    if context.version >= _NAMES_CLIENT:
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return refuse(request, ErrorCode.INVALID_REQUEST)
        context.peer.software_name, context.peer.software_version = name, version
    return ApiVersionsResponse(api_keys=advertised(context.matrix))


def refuse(request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code)


def advertised(matrix: Matrix) -> list[ApiVersion]:
    """All rows, by key."""
    return [entry(api) for api in matrix.apis]


def entry(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.advertised[0], max_version=api.advertised[1])


ENDPOINT: Final = Endpoint(handle=handle, refuse=refuse)
