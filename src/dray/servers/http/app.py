"""Health and metrics over HTTP.

/livez, /healthz   200 while the loop lives, also with every dependency down
/readyz            200 if metadata and store can be reached, else 503 and which of them cannot
/metrics           Prometheus
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dray import telemetry
from dray.errors import DrayError

Probe: TypeAlias = Callable[[], Awaitable[None]]
"""Returns if the part can be used, raises a DrayError if not."""

READY: Final = "ok"


def make_app(probes: Mapping[str, Probe]) -> Starlette:
    """The application; `probes` are what readiness depends on, by name."""

    async def live(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        states = {name: await _state(probe) for name, probe in probes.items()}
        usable = all(state == READY for state in states.values())
        return JSONResponse({"ready": usable, **states}, status_code=200 if usable else 503)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(telemetry.REGISTRY), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/livez", live),
            Route("/healthz", live),
            Route("/readyz", ready),
            Route("/metrics", metrics),
        ]
    )


async def _state(probe: Probe) -> str:
    try:
        await probe()
    except DrayError as error:
        return str(error)
    return READY
