"""Which broker hands out the records of a group: one of those that there are, the same for all who ask."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from dray.errors import Unavailable
from dray.routing.service import Routing

LISTENER: Final = "http"


class HttpHomes:
    """Sends requests of a group to the broker that remembers what is out."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    def elsewhere(self, request: Request, group: str) -> Response | None:
        """The answer that sends a request to the group's home; None: it is here."""
        view = self._routing.view(LISTENER)
        own = self._routing.broker_id
        if own not in view.nodes:
            return None
        try:
            home = view.coordinator(group)
        except Unavailable:
            return None
        if home.broker_id == own:
            return None
        host = f"[{home.host}]" if ":" in home.host else home.host
        where = request.url.replace(scheme="http", netloc=f"{host}:{home.port}")
        return Response(status_code=307, headers={"location": str(where)})
