"""OpenAPI 3.1, made from the endpoints and the types of what they take and give.

Invariants
    HX3  What is told about an endpoint is made from what it is: its path and
         query are its types, and so are the bodies; nothing is written twice.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

import dray
from dray.servers.http.endpoint import COMMON, WITH_BODY, ApiEndpoint
from dray.servers.http.errors import ErrorBody

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_MEANINGS: Final[Mapping[int, str]] = {
    200: "done",
    204: "done; there is nothing to tell",
    307: "another broker remembers what is out: ask there",
    400: "the request cannot be understood",
    401: "a key is needed",
    403: "the key may not do this",
    404: "there is no such thing",
    405: "the path has no such method",
    408: "the body did not come in time",
    409: "something is in another state than expected",
    410: "the log start has passed the offset",
    413: "the body is too large",
    415: "the body is not JSON",
    416: "nothing was written there yet",
    428: "this cannot be undone: ask again, confirmed",
    429: "a limit is reached: try again later",
    500: "a bug, or damaged data",
    501: "this is not served, or the active rules do not have it yet",
    503: "nothing happened: try again",
    504: "it may have happened: ask again with the same identity",
}
_PATH_SCHEMAS: Final[Mapping[str, object]] = {
    "topic": {"type": "string", "minLength": 1, "maxLength": 249, "pattern": r"^[A-Za-z0-9._-]+$"},
    "key": {"type": "string", "minLength": 8, "maxLength": 8, "pattern": r"^[0-9A-Za-z]+$"},
    "partition": {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1},
}


class ErrorAnswer(msgspec.Struct, kw_only=True):
    """What went wrong, and what a program needs to go on."""

    error: ErrorBody
    version: str | None = None
    log_start: str | None = None
    confirmation: str | None = None


def openapi_of(endpoints: Sequence[ApiEndpoint], prefix: str) -> bytes:
    """The whole description, as JSON."""
    types: list[type] = [ErrorAnswer]
    for one in endpoints:
        types += [kind for kind in (one.query, one.body, one.gives) if kind is not None]
    shapes, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    shape_of = dict(zip(types, shapes, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for one in endpoints:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, shape_of, schemas)
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "Dray",
            "version": dray.__version__,
            "description": "Streams and heaps over HTTP. Numbers of 64 bits are strings, and taken as both.",
        },
        "servers": [{"url": prefix}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }
    return msgspec.json.encode(described)


def _operation(one: ApiEndpoint, shape_of: Mapping[type, object], schemas: Mapping[str, object]) -> dict[str, object]:
    operation: dict[str, object] = {
        "operationId": f"{one.method.lower()}_{re.sub('[^a-z]+', '_', one.path).strip('_')}",
        "summary": one.summary,
        "tags": [one.path.split("/")[1].partition(":")[0]],
        "parameters": [*_path_parameters(one), *_query_parameters(one, shape_of, schemas)],
        "responses": _responses(one, shape_of),
    }
    if one.has_body:
        content = {"application/json": {"schema": shape_of[one.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameters(one: ApiEndpoint) -> list[object]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}
        for name in _PARAMETER.findall(one.path)
    ]


def _query_parameters(one: ApiEndpoint, shape_of: Mapping[type, object], schemas: Mapping[str, object]) -> list[object]:
    """A query is a flat type: each of its fields is a parameter (HX3)."""
    shape = shape_of[one.query]
    assert isinstance(shape, dict)
    whole = schemas[shape["$ref"].rpartition("/")[2]]
    assert isinstance(whole, dict)
    return [
        {"name": name, "in": "query", "required": name in whole.get("required", ()), "schema": schema}
        for name, schema in whole["properties"].items()
    ]


def _responses(one: ApiEndpoint, shape_of: Mapping[type, object]) -> dict[str, object]:
    failed = {"application/json": {"schema": shape_of[ErrorAnswer]}}
    statuses = {*COMMON, *one.statuses, *(WITH_BODY if one.has_body else ())} - {307}
    responses: dict[str, object] = {
        str(status): {"description": _MEANINGS[status], "content": failed} for status in sorted(statuses)
    }
    if 307 in one.statuses:
        responses["307"] = {"description": _MEANINGS[307], "headers": {"location": {"schema": {"type": "string"}}}}
    if one.gives is None:
        responses["204"] = {"description": _MEANINGS[204]}
        return responses
    shape = {"schema": shape_of[one.gives]}
    content = {"application/x-ndjson": shape} if one.streams else {"application/json": shape}
    responses["200"] = {"description": _MEANINGS[200], "content": content}
    return responses
