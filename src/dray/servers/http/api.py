"""The HTTP API under /v1: all its endpoints, put together."""

from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ExceptionHandler

from dray.access.key_service import KeyService
from dray.access.service import AccessService
from dray.clock import Clock
from dray.consume.service import ConsumeService
from dray.errors import DrayError
from dray.fetch.reading import RecordReads
from dray.heaps.service import HeapService
from dray.offload import Offload
from dray.produce.publishing import Publisher
from dray.replica.domains import Domains
from dray.routing.service import Routing
from dray.servers.http.bodies import Bodies
from dray.servers.http.consume import ConsumeApi
from dray.servers.http.endpoint import ApiEndpoint, routes_of
from dray.servers.http.errors import JSON, BadRequest, failure
from dray.servers.http.gate import HttpGuard
from dray.servers.http.heap_messages import MessagesApi
from dray.servers.http.heaps import HeapsHttp
from dray.servers.http.homes import HttpHomes
from dray.servers.http.keys import KeyRoutes
from dray.servers.http.openapi import openapi_of
from dray.servers.http.settings import HttpSettings
from dray.servers.http.topics import TopicsApi
from dray.servers.http.waiting import WaitingRequests
from dray.topics.service import TopicService

PREFIX: Final = "/v1"
OPENAPI: Final = "/openapi.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """What the API is put on top of."""

    topics: TopicService
    publisher: Publisher
    reads: RecordReads
    consume: ConsumeService
    heaps: HeapService
    access: AccessService
    keys: KeyService
    domains: Domains
    routing: Routing
    clock: Clock
    offload: Offload
    durability: str
    """What an answer means: `synced` or `memory`."""


def endpoints_of(services: ApiServices, gate: HttpGuard) -> list[ApiEndpoint]:
    """All that can be asked."""
    waiting = WaitingRequests()
    streams = TopicsApi(
        topics=services.topics, publisher=services.publisher, reads=services.reads, waiting=waiting,
        clock=services.clock, offload=services.offload,
    )  # fmt: skip
    consume = ConsumeApi(
        topics=services.topics, consuming=services.consume, homes=HttpHomes(services.routing), waiting=waiting,
        offload=services.offload,
    )  # fmt: skip
    heaps = HeapsHttp(heaps=services.heaps, gate=gate, clock=services.clock, durability=services.durability)
    messages = MessagesApi(
        heaps=services.heaps, gate=gate, domains=services.domains, waiting=waiting, clock=services.clock
    )
    keys = KeyRoutes(services.access, services.keys)
    parts = (heaps, messages, streams, consume, keys)
    return [one for part in parts for one in part.endpoints()]


def make_api(services: ApiServices, settings: HttpSettings) -> Starlette:
    """The application to be mounted under `PREFIX`."""
    bodies = Bodies(
        services.offload, max_bytes=int(settings.max_body), timeout_s=settings.body_timeout.total_seconds(),
        budget_bytes=int(settings.body_budget),
    )  # fmt: skip
    guard = HttpGuard(services.access)
    endpoints = endpoints_of(services, guard)
    described = openapi_of(endpoints, PREFIX)

    async def describe(request: Request) -> Response:
        return Response(described, media_type=JSON)

    routes: list[Route] = [Route(OPENAPI, describe), *routes_of(endpoints, guard, bodies)]
    handlers: dict[int | type[Exception], ExceptionHandler] = {404: _nowhere, 500: _broken}
    return Starlette(routes=routes, exception_handlers=handlers)


async def _nowhere(request: Request, error: Exception) -> Response:
    return failure(BadRequest("there is no such path", status=404, path=request.url.path[:200]))


async def _broken(request: Request, error: Exception) -> Response:
    return failure(DrayError("the request met a bug of the broker: please report it"))
