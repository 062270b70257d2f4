"""An endpoint as a value: what it takes, what it gives, who may use it. Routes and OpenAPI are made from these.

A handler gets a `Call` with the values of path, query and body, all checked,
and returns a value of the type that its endpoint names. It translates and
nothing else.

Invariants
    HX1  Whatever a client sends is answered with a JSON object, or with the
         value that the endpoint names; a method that a path does not have
         gets 405 and the ones that it has.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dray import telemetry as names
from dray.errors import DrayError
from dray.replica.residence import one_request
from dray.servers.http import telemetry
from dray.servers.http.bodies import Bodies
from dray.servers.http.errors import JSON, BadRequest, failure
from dray.servers.http.gate import HttpCaller, HttpGuard

B = TypeVar("B", bound=msgspec.Struct)
Q = TypeVar("Q", bound=msgspec.Struct)


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing."""


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Q, B]):
    """One request, understood."""

    caller: HttpCaller
    path: Mapping[str, str]
    query: Q
    body: B
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A value with a status or headers of its own."""

    value: msgspec.Struct
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Lines(msgspec.Struct, frozen=True):
    """Values, one a line."""

    values: Sequence[msgspec.Struct]


Handler: TypeAlias = Callable[[Call[msgspec.Struct, msgspec.Struct]], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEndpoint:
    """What can be asked under one path with one method."""

    method: str
    path: str
    """With `{name}` where values stand."""
    action: str
    """What it does, by the name that rights and the audit have."""
    handle: Handler
    query: type[msgspec.Struct]
    body: type[msgspec.Struct]
    gives: type[msgspec.Struct] | None
    """None: nothing, with status 204."""
    summary: str
    statuses: Sequence[int] = ()
    """Which it may have besides those that every endpoint has."""
    streams: bool = False
    """It answers with lines of JSON, without an end."""
    named_in: str = ""
    """The field of the body, or of its items, that names what it is about; else that is in the path."""

    @property
    def has_body(self) -> bool:
        return self.body is not NoBody


def endpoint(
    *,
    method: str,
    path: str,
    action: str,
    handle: Callable[[Call[Q, B]], Awaitable[object]],
    query: type[Q],
    body: type[B],
    gives: type[msgspec.Struct] | None,
    summary: str,
    statuses: Sequence[int] = (),
    streams: bool = False,
    named_in: str = "",
) -> ApiEndpoint:
    """An endpoint whose handler takes what it says that it takes."""
    return ApiEndpoint(
        method=method, path=path, action=action, handle=cast("Handler", handle), query=query, body=body, gives=gives,
        summary=summary, statuses=statuses, streams=streams, named_in=named_in,
    )  # fmt: skip


NDJSON: Final = "application/x-ndjson"
REQUEST_HEADER: Final = "x-request-id"
"""What a request is named in the log and in the audit file."""
_REQUEST: Final = "dray.request"
COMMON: Final = (400, 401, 403, 405, 429, 500, 503)
WITH_BODY: Final = (408, 413, 415, 504)


def routes_of(endpoints: Sequence[ApiEndpoint], gate: HttpGuard, bodies: Bodies) -> list[Route]:
    """One route for each path, which knows all its methods (HX1)."""
    by_path: dict[str, dict[str, ApiEndpoint]] = {}
    for one in endpoints:
        by_path.setdefault(one.path, {})[one.method] = one
    # `{topic}:purge` is a path of its own: it comes before `{topic}`, which would match it.
    ordered = sorted(by_path.items(), key=lambda item: (":" not in item[0], item[0]))
    return [Route(path, _Path(methods, gate, bodies)) for path, methods in ordered]


class _Path:
    """Everything that can be asked under one path."""

    def __init__(self, methods: Mapping[str, ApiEndpoint], gate: HttpGuard, bodies: Bodies) -> None:
        self._methods = methods
        self._gate = gate
        self._bodies = bodies
        heads = ["HEAD"] if "GET" in methods else []
        self._allowed = ", ".join(sorted((*methods, *heads, "OPTIONS")))

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        request = Request(scope, receive, send)  # type: ignore[arg-type]
        with one_request():
            response = await self._answer(request)
            await response(request.scope, request.receive, request._send)

    async def _answer(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": self._allowed})
        found = self._methods.get("GET" if request.method == "HEAD" else request.method)
        if found is None:
            refused = failure(BadRequest("this path has no such method", status=405, allowed=self._allowed))
            refused.headers["allow"] = self._allowed
            return refused
        try:
            given = await self._handle(found, request)
        except DrayError as error:
            response = failure(error)
        except Exception as error:  # a bug in one endpoint is told, and stops nobody else
            names.logger().error(telemetry.BROKEN, path=found.path, error=repr(error))
            response = failure(DrayError("the request met a bug of the broker: please report it"))
        else:
            response = await self._response(given)
        if request_id := request.scope.get(_REQUEST):
            response.headers[REQUEST_HEADER] = request_id
        telemetry.REQUESTS.labels(found.path, request.method, str(response.status_code)).inc()
        return response

    async def _handle(self, asked: ApiEndpoint, request: Request) -> object:
        caller = await self._gate.admit(request)  # HG1
        request.scope[_REQUEST] = caller.request
        path = {name: str(value) for name, value in request.path_params.items()}
        if not asked.named_in:
            self._gate.allow(caller, asked.action, path.get("topic") or request.query_params.get("topic", ""))
        query = _query(request, asked.query)
        body: msgspec.Struct = NoBody()
        if asked.has_body:
            body = await self._bodies.read(request, asked.body)
        if asked.named_in:
            for name in names_in(body, asked.named_in):
                self._gate.allow(caller, asked.action, name)
        return await asked.handle(Call(caller=caller, path=path, query=query, body=body, request=request))

    async def _response(self, given: object) -> Response:
        match given:
            case Response():
                return given
            case Reply(value=value, status=status, headers=headers):
                return Response(await self._bodies.encode(value), status, dict(headers), JSON)
            case Lines():
                return Response(await self._bodies.encode(given, _lines), media_type=NDJSON)
            case msgspec.Struct():
                return Response(await self._bodies.encode(given), media_type=JSON)
            case _:
                return Response(status_code=204)


def _lines(given: msgspec.Struct) -> bytes:
    assert isinstance(given, Lines)
    return b"".join(msgspec.json.encode(value) + b"\n" for value in given.values)


def names_in(body: msgspec.Struct, field_name: str) -> list[str]:
    """The names of what a body is about: its own, or those of its items."""
    items = getattr(body, "items", None)
    parts = items if isinstance(items, list) and not hasattr(body, field_name) else [body]
    return sorted({str(getattr(part, field_name)) for part in parts})


def _query(request: Request, kind: type[Q]) -> Q:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise BadRequest("a parameter is given twice", name=name[:100])
        given[name] = value
    try:
        return msgspec.convert(given, type=kind, strict=False)
    except msgspec.ValidationError as bad:
        raise BadRequest(f"the query does not fit: {str(bad)[:500]}") from bad
