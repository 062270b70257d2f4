"""Names of the metrics and log events of the HTTP API."""

from typing import Final

from dray import telemetry

REQUESTS: Final = telemetry.counter(
    "dray_http_requests_total", "requests of the HTTP API by path, method and status", ["path", "method", "status"]
)
WAITING: Final = telemetry.gauge("dray_http_waiting", "requests that wait for records or messages, and open streams")

BROKEN: Final = telemetry.event("http.broken", "a request met an error that should not exist: report a bug")
