"""From an API key and version to the code that reads, handles and answers it."""

from importlib import import_module
from typing import Final, cast

from prometheus_client import Counter

from dray.servers.kafka import telemetry
from dray.servers.kafka.codec import Message, Reader, Schema, Writer
from dray.servers.kafka.handler import Answering, Endpoint
from dray.servers.kafka.messages.index import MODULES
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.request_header import RequestHeader
from dray.servers.kafka.messages.response_header import CODEC as RESPONSE_HEADER
from dray.servers.kafka.messages.response_header import ResponseHeader
from dray.servers.kafka.support import Api, Matrix

API_VERSIONS: Final = 18


class Route:
    """One version of one API, ready to serve."""

    __slots__ = (
        "_errors",
        "api",
        "duration",
        "endpoint",
        "plain",
        "read",
        "read_header",
        "version",
        "write",
        "write_header",
    )

    def __init__(
        self, api: Api, version: int, schema: Schema[Message, Message], endpoint: Endpoint[Message, Message]
    ) -> None:
        flexible = api.flexible is not None and version >= api.flexible
        self.api: Final = api
        self.version: Final = version
        self.endpoint: Final = endpoint
        self.plain: Final = endpoint.plain if flexible else None
        self.read: Final[Reader[Message]] = schema.request.read[version]
        self.write: Final[Writer[Message]] = schema.response.write[version]
        self.read_header: Final[Reader[RequestHeader]] = REQUEST_HEADER.read[2 if flexible else 1]
        # A client that asks for the versions cannot know yet which header we would use.
        flexible_answer = flexible and api.key != API_VERSIONS
        self.write_header: Final[Writer[ResponseHeader]] = RESPONSE_HEADER.write[1 if flexible_answer else 0]
        self.duration: Final = telemetry.DURATION.labels(api.name)
        self._errors: dict[int, Counter] = {}

    def count(self, error: int) -> None:
        """Count one answer with this top-level error code."""
        counter = self._errors.get(error)
        if counter is None:
            counter = self._errors[error] = telemetry.REQUESTS.labels(self.api.name, str(error))
        counter.inc()


class Routes:
    """The routes of a matrix; modules are imported when the first request for them comes."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._routes: dict[tuple[int, int], Route] = {}

    def find(self, key: int, version: int) -> Route | None:
        """The route, or None if this key or version is not served."""
        route = self._routes.get((key, version))
        if route is not None:
            return route
        api = self._matrix.get(key)
        if api is None or not api.served[0] <= version <= api.served[1]:
            return None
        messages = import_module(f"dray.servers.kafka.messages.{MODULES[key]}")
        schema = cast("Schema[Message, Message]", messages.SCHEMA)
        module = cast(Answering, import_module(api.module))
        route = self._routes[key, version] = Route(api, version, schema, module.ENDPOINT)
        return route
