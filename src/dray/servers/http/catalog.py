"""The tables of the cluster as a read-only Iceberg REST catalog, under `/iceberg`.

GET       /iceberg/v1/config                             what this catalog can do
GET       /iceberg/v1/namespaces                         the namespaces, one level of them
GET HEAD  /iceberg/v1/namespaces/NS                      one of them
GET       /iceberg/v1/namespaces/NS/tables               names of tables; by pages if the client asks for pages
GET HEAD  /iceberg/v1/namespaces/NS/tables/TABLE         the metadata of one, as the last commit left it

Whatever would change something is answered 406, and what is not there 404,
both in the words of Iceberg's specification. No credentials are handed out:
who reads a table needs access to the store of its own.

Who asks is let in as by the API: by a key, sent as a bearer's token, where keys
are needed (HG1).

Invariants
    HT3  Nothing can be changed through this catalog.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dray.errors import DrayError, Invalid, Kind, NotFound, is_retryable, nearest
from dray.servers.http.errors import JSON, RETRY_S
from dray.servers.http.gate import HttpGuard

ROOT: Final = "/iceberg"
PAGE_ROWS: Final = 1_000
MOST_PAGE_ROWS: Final = 10_000
_NAMESPACE: Final = "/v1/{prefix}/namespaces/{namespace}"
ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces", f"GET {_NAMESPACE}", f"HEAD {_NAMESPACE}", f"GET {_NAMESPACE}/tables",
    f"GET {_NAMESPACE}/tables/{{table}}", f"HEAD {_NAMESPACE}/tables/{{table}}",
)  # fmt: skip
"""As clients are told; there is no prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTable:
    """A table as its last commit left it."""

    location: str
    """Of its metadata."""
    metadata: memoryview
    """The JSON itself."""
    config: Mapping[str, str]
    """What a reader needs to reach the files, credentials apart."""


class TableCatalog(Protocol):
    """The tables that are shown."""

    async def namespaces(self) -> Sequence[str]: ...

    async def tables(self, namespace: str, after: str, limit: int | None) -> Sequence[str]:
        """Names in order, behind `after`. `NotFound` if there is no such namespace."""
        ...

    async def exists(self, namespace: str, name: str) -> bool: ...

    async def table(self, namespace: str, name: str) -> ServedTable | None: ...


class NoSuchNamespace(NotFound):
    """There is no such namespace."""


class ReadOnlyCatalog(Invalid):
    """The catalog does not do this."""


HttpAnswer: TypeAlias = Callable[[Request], Awaitable[Response]]


def catalog_routes(catalog: TableCatalog, gate: HttpGuard) -> list[Route]:
    """What is served of a catalog."""
    served, at = _Served(catalog), f"{ROOT}/v1/namespaces"
    read = [
        (f"{ROOT}/v1/config", served.config),
        (at, served.namespaces),
        (f"{at}/{{namespace}}", served.namespace),
        (f"{at}/{{namespace}}/tables", served.tables),
        (f"{at}/{{namespace}}/tables/{{table}}", served.table),
    ]
    return [
        *(Route(path, _told(answer, gate), methods=["GET", "HEAD"]) for path, answer in read),
        Route(f"{ROOT}/v1/{{rest:path}}", _told(_refuse, gate), methods=["POST", "PUT", "PATCH", "DELETE"]),
        Route(f"{ROOT}/{{rest:path}}", _told(_missing, gate)),
    ]


class _Served:
    """Answers to what is asked of a catalog."""

    def __init__(self, catalog: TableCatalog) -> None:
        self._catalog = catalog

    async def config(self, request: Request) -> Response:
        await self._catalog.namespaces()  # a catalog that is elsewhere says so at once
        overrides = {"rest-metrics-reporting-enabled": "false"}
        return _json({"defaults": {}, "overrides": overrides, "endpoints": ENDPOINTS})

    async def namespaces(self, request: Request) -> Response:
        found = await self._catalog.namespaces() if not request.query_params.get("parent") else []
        return _json({"namespaces": [[name] for name in found]})

    async def namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        if name not in await self._catalog.namespaces():
            raise NoSuchNamespace("no such namespace", namespace=name)
        return _no_content() if request.method == "HEAD" else _json({"namespace": [name], "properties": {}})

    async def tables(self, request: Request) -> Response:
        name, limit = request.path_params["namespace"], _page_rows(request)
        found = await self._catalog.tables(name, request.query_params.get("pageToken", ""), limit)
        answer: dict[str, object] = {"identifiers": [{"namespace": [name], "name": table} for table in found]}
        if limit is not None:
            answer["next-page-token"] = found[-1] if len(found) == limit else None
        return _json(answer)

    async def table(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        if request.method == "HEAD":
            if not await self._catalog.exists(namespace, name):
                raise _no_table(namespace, name)
            return _no_content()
        found = await self._catalog.table(namespace, name)
        if found is None:
            raise _no_table(namespace, name)
        return _loaded(found, request.headers.get("if-none-match"))


async def _refuse(request: Request) -> Response:
    raise ReadOnlyCatalog("this catalog is read-only: tables change with their topics alone")  # HT3


async def _missing(request: Request) -> Response:
    raise NotFound("this catalog has no such path", path=request.url.path[:200])


def _no_table(namespace: str, name: str) -> NotFound:
    return NotFound("no such table", table=f"{namespace}.{name}"[:600])


def _told(answer: HttpAnswer, gate: HttpGuard) -> HttpAnswer:
    """The same for who may, with errors as the specification has them."""

    async def call(request: Request) -> Response:
        try:
            asker = await gate.admit(_as_meant(request))  # HG1
            table = str(request.path_params.get("table", ""))
            gate.allow(asker, "topic.fetch" if table else "topic.describe", table)
            return await answer(request)
        except DrayError as error:
            return _error(error, request)

    return call


def _as_meant(request: Request) -> Request:
    """PyIceberg sends the word None where it was given no token."""
    headers = [pair for pair in request.scope["headers"] if pair != (b"authorization", b"Bearer None")]
    return Request({**request.scope, "headers": headers}, request.receive)


_NOT_FOUND: Final = ("NotFoundException", 404)
_BY_KIND: Final[Mapping[Kind, tuple[str, int]]] = {
    Kind.NOT_FOUND: _NOT_FOUND, Kind.INVALID: ("BadRequestException", 400),
    Kind.UNAUTHENTICATED: ("NotAuthorizedException", 401), Kind.FORBIDDEN: ("ForbiddenException", 403),
    Kind.UNAVAILABLE: ("ServiceUnavailableException", 503),
}  # fmt: skip
_MEANING: Final[Mapping[type[DrayError], tuple[str, int]]] = {
    NoSuchNamespace: ("NoSuchNamespaceException", 404),
    ReadOnlyCatalog: ("UnsupportedOperationException", 406),
}
"""Errors whose class says more than their kind; one that is not here is told as the nearest of its bases."""


def _error(error: DrayError, request: Request) -> Response:
    meant = nearest(error, _MEANING, _BY_KIND.get(error.kind, ("InternalServerError", 500)))
    type_, status = ("NoSuchTableException", 404) if meant == _NOT_FOUND and "table" in request.path_params else meant
    headers = {"Retry-After": str(RETRY_S)} if is_retryable(error) else {}  # HE2
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    return _json({"error": {"message": str(error), "type": type_, "code": status}}, status, headers)


def _page_rows(request: Request) -> int | None:
    """How many names are told at a time; None: all, since the client knows of no pages."""
    if "pageToken" not in request.query_params and "pageSize" not in request.query_params:
        return None
    given = request.query_params.get("pageSize", str(PAGE_ROWS))
    if not given.isascii() or not given.isdigit() or len(given) > 9 or int(given) == 0:
        raise Invalid("pageSize is a number of names", given=given[:50])
    return min(int(given), MOST_PAGE_ROWS)


def _loaded(found: ServedTable, known: str | None) -> Response:
    """The metadata goes as it lies in the store: nobody parses a megabyte on the loop."""
    tag = f'"{hashlib.blake2b(found.location.encode(), digest_size=16).hexdigest()}"'
    if known == tag:
        return Response(status_code=304, headers={"ETag": tag})
    body = b"".join((
        b'{"metadata-location":', msgspec.json.encode(found.location), b',"metadata":', found.metadata,
        b',"config":', msgspec.json.encode(found.config), b"}",
    ))  # fmt: skip
    return Response(body, media_type="application/json", headers={"ETag": tag})


def _json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type=JSON)


def _no_content() -> Response:
    return Response(status_code=204)
