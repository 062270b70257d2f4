"""A page, health and metrics over HTTP.

/                  what there is, for people
/topics/NAME       a topic, partition by partition
/livez, /healthz   200 while the loop lives, also with every dependency down
/readyz            200 if metadata, store and disk can be used, else 503 and which of them cannot; 503 from the
                   moment on in which a broker is told to stop
/metrics           Prometheus
/v1/...            the API (`dray.servers.http.api`)
/iceberg           the tables of the cluster, see `catalog`
/v1/plans          plans for drivers elsewhere, see `plans`
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from dray import telemetry
from dray.errors import DrayError
from dray.servers.http import page
from dray.servers.http.overview import View

Probe: TypeAlias = Callable[[], Awaitable[None]]
"""Returns if the part can be used, raises a DrayError if not."""
Measure: TypeAlias = Callable[[], Awaitable[None]]
"""Brings the metrics up to date that are not counted as things happen."""

READY: Final = page.READY
MOST_ROWS: Final = 10_000_000


def make_app(probes: Mapping[str, Probe], view: View, others: Sequence[BaseRoute] = ()) -> Starlette:
    """The application; `probes` are what readiness depends on, by name, `others` what is served besides."""

    async def overview(request: Request) -> Response:
        search = request.query_params.get("q", "")[:249]
        seen = await view.overview(await _states(probes), search, _first(request), page.PAGE_ROWS)
        return HTMLResponse(page.overview_page(seen, search), headers=page.HEADERS)

    async def topic(request: Request) -> Response:
        name, first = request.path_params["name"], _first(request)
        found = await view.partitions(name, first, page.PAGE_ROWS)
        if found is None:
            return HTMLResponse(page.missing_page(f"There is no topic {name!r}."), 404, headers=page.HEADERS)
        return HTMLResponse(page.topic_page(name, found[0], first, found[1]), headers=page.HEADERS)

    pages = [Route("/", overview), Route("/topics/{name}", topic)]
    return Starlette(routes=[*pages, *_health(probes, view.measure), *others])


def make_health_app(probes: Mapping[str, Probe], measure: Measure) -> Starlette:
    """Health and metrics alone, for a process that has nothing to show."""
    return Starlette(routes=_health(probes, measure))


def _health(probes: Mapping[str, Probe], measure: Measure) -> list[Route]:
    async def live(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        found = await _states(probes)
        usable = all(state == READY for state in found.values())
        return JSONResponse({"ready": usable, **found}, status_code=200 if usable else 503)

    async def metrics(request: Request) -> Response:
        await measure()
        return Response(generate_latest(telemetry.REGISTRY), media_type=CONTENT_TYPE_LATEST)

    return [
        Route("/livez", live),
        Route("/healthz", live),
        Route("/readyz", ready),
        Route("/metrics", metrics),
    ]


def _first(request: Request) -> int:
    """From which row on; nonsense means the first."""
    given = request.query_params.get("from", "0")
    return min(int(given), MOST_ROWS) if given.isascii() and given.isdigit() and len(given) < 19 else 0


async def _states(probes: Mapping[str, Probe]) -> dict[str, str]:
    return {name: await _state(probe) for name, probe in probes.items()}


async def _state(probe: Probe) -> str:
    try:
        await probe()
    except DrayError as error:
        return str(error)
    return READY
