"""Names of what the Kafka server reports."""

from typing import Final

from dray.telemetry import SECONDS, counter, event, gauge, histogram

REQUESTS: Final = counter(
    "dray_kafka_requests_total", "Requests answered, by API and top-level error code.", ("api", "error")
)
PARTITION_ERRORS: Final = counter(
    "dray_kafka_partition_errors_total",
    "Partitions answered with an error within a request, by API and error code.",
    ("api", "error"),
)
DURATION: Final = histogram(
    "dray_kafka_request_duration_seconds", "From a request's last byte to the end of its handler.", SECONDS, ("api",)
)
CONNECTIONS: Final = gauge("dray_kafka_connections", "Open connections.", ("listener",))
ENDED: Final = counter(
    "dray_kafka_connections_ended_total", "Connections closed by the server, by reason.", ("reason",)
)
RECEIVED: Final = counter("dray_kafka_received_bytes_total", "Bytes read from clients.")
SENT: Final = counter("dray_kafka_sent_bytes_total", "Bytes of answers.")
HELD: Final = gauge("dray_kafka_held_bytes", "Bytes of requests and receive buffers held by connections.")
UNSENT: Final = gauge("dray_kafka_unsent_bytes", "Bytes of answers that clients have not taken.")
LINE: Final = gauge("dray_kafka_fetches_in_line", "Fetches that wait for the memory of other answers.")
WAITING: Final = gauge(
    "dray_kafka_connections_waiting", "Connections not read from because the process holds too much."
)
PAUSED: Final = gauge("dray_kafka_producers_paused", "Connections not read from because too much waits to be stored.")

LISTENING: Final = event("kafka.listening", "a listener accepts connections")
STOPPED: Final = event("kafka.stopped", "the server has stopped; `cut` connections did not finish in time")
CONNECTION_ENDED: Final = event("kafka.connection_ended", "the server closed a connection, and why")
MORE_ENDED: Final = event(
    "kafka.more_connections_ended", "the server closed `count` more connections in this second, for the same reason"
)
REQUEST_UNSUPPORTED: Final = event(
    "kafka.request_unsupported", "a client sent an API key or version it was not offered"
)
HANDLER_FAILED: Final = event(
    "kafka.handler_failed", "a handler raised something unexpected; the client got an error code"
)


def count_partition_error(api: str, error: int) -> None:
    """Count one partition of a produce or fetch that got an error; a request as a whole has none then."""
    PARTITION_ERRORS.labels(api, str(int(error))).inc()
