"""Limits of the Kafka server: numbers an operator may change."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one process gives to its Kafka clients."""

    max_connections: int = 10_000
    """Connections of all listeners together; one more is closed at once."""

    max_connections_per_address: int | None = None
    """Connections of one client address; None sets no limit."""

    frame_bytes: int = 100 * MIB
    """The largest request that carries records (Kafka's socket.request.max.bytes)."""

    request_bytes: int = 8 * MIB
    """The largest request that carries no records; such a request becomes objects, so it is kept smaller."""

    first_request_bytes: int = 128 * KIB
    """The largest request without records before the first valid one: a stranger gets little."""

    connection_inflight_bytes: int = 64 * MIB
    """Stop reading from a connection while its unanswered requests hold this much; one request always fits."""

    connection_inflight_requests: int = 128
    """Stop reading from a connection while it has this many unanswered requests."""

    process_inflight_bytes: int = 512 * MIB
    """Stop reading from all connections while requests and receive buffers hold this much."""

    unsent_bytes: int = 256 * MIB
    """Answers that clients have not taken; above this, the connections with the most are closed."""

    idle_timeout: timedelta = timedelta(minutes=10)
    """Close a connection without a request for this long (Kafka's connections.max.idle.ms)."""

    frame_timeout: timedelta = timedelta(seconds=30)
    """Close a connection whose request is not complete after this and the time of its bytes at `slowest_rate`."""

    slowest_rate: int = 64 * KIB
    """Bytes a second that a large request must keep up."""

    write_timeout: timedelta = timedelta(seconds=60)
    """Close a connection whose client has taken no byte of a waiting answer for this long."""

    stop_timeout: timedelta = timedelta(seconds=10)
    """How long a stopping server waits for the requests it has taken."""
