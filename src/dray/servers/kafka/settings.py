"""Settings of the Kafka port: where it is, and what one process gives to its clients."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, Self, TypeAlias

from pydantic import Field, model_validator

from dray.config import Section, Size

KIB: Final = 1024
MIB: Final = 1024 * KIB
LONGEST_STOP: Final = timedelta(seconds=20)
"""A process that is told to stop is gone within 30 seconds; what is left of them is for the store and the log."""
_SMALLEST_REQUEST: Final = 4 * KIB
_SMALLEST_FRAME: Final = 2 * MIB
_LARGEST_FRAME: Final = (1 << 31) - 1
_Positive: TypeAlias = Annotated[timedelta, Field(gt=timedelta(0))]


class KafkaSettings(Section):
    """The Kafka port."""

    listen: str = "127.0.0.1:9092"
    """HOST:PORT to serve on; port 0 takes a free one."""

    advertise: str | None = None
    """HOST:PORT that clients are told to connect to. Not set: where this broker listens."""

    outside_listen: str | None = None
    """HOST:PORT of a second listener, for clients that reach the brokers by other addresses, from outside of a cluster
    of containers say. Who comes in there is told the outside addresses of all brokers that have one."""

    outside_advertise: str | None = None
    """HOST:PORT that clients of the second listener are told to connect to. Not set: where it listens."""

    max_connections: Annotated[int, Field(ge=1)] = 10_000
    """Connections at a time; one more is closed at once."""

    max_connections_per_address: Annotated[int, Field(ge=1)] | None = None
    """Connections of one client address at a time. Not set: no limit but `max_connections`."""

    frame_bytes: Size = Size("100MiB")
    """The largest request that carries records (Kafka's socket.request.max.bytes)."""

    request_bytes: Size = Size("8MiB")
    """The largest request that carries no records; such a request becomes objects, so it is kept smaller."""

    first_request_bytes: Size = Size("128KiB")
    """The largest request without records before the first valid one of a connection: a stranger gets little."""

    first_frame_bytes: Size = Size("2MiB")
    """The same for a request that carries records: some clients begin with one, and a batch has to fit."""

    connection_inflight_bytes: Size = Size("64MiB")
    """Stop reading from a connection while its unanswered requests hold this much; one request always fits."""

    connection_inflight_requests: Annotated[int, Field(ge=1, le=100_000)] = 4_096
    """Stop reading from a connection while it has this many unanswered requests. Clients send one for each partition
    and wait for all of them as long as the store takes: fewer make acknowledgements late."""

    process_inflight_bytes: Size = Size("512MiB")
    """Stop reading from all connections while requests and receive buffers hold this much."""

    unsent_bytes: Size = Size("256MiB")
    """Answers that are being made or that clients have not taken; above this, fetches get less, or wait in line."""

    idle_timeout: _Positive = timedelta(minutes=10)
    """Close a connection without a request for this long (Kafka's connections.max.idle.ms)."""

    first_request_timeout: _Positive = timedelta(seconds=30)
    """Close a connection whose first valid request is not here after this."""

    frame_timeout: _Positive = timedelta(seconds=30)
    """Close a connection whose request is not complete after this and the time of its bytes at `slowest_rate`."""

    slowest_rate: Size = Size("64KiB")
    """Bytes a second that a large request must keep up; and a reader, while others wait for its memory."""

    write_timeout: _Positive = timedelta(seconds=60)
    """Close a connection whose client has taken no byte of a waiting answer for this long."""

    stop_timeout: _Positive = timedelta(seconds=10)
    """How long a stopping broker waits for the requests it has taken; at most 20s."""

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> Self:
        if not _SMALLEST_FRAME <= self.frame_bytes <= _LARGEST_FRAME:
            raise ValueError("kafka.frame_bytes must be at least 2MiB, so that a batch fits, and below 2GiB")
        if not _SMALLEST_REQUEST <= self.first_request_bytes <= self.request_bytes <= self.frame_bytes:
            raise ValueError(
                "kafka.first_request_bytes must be at least 4KiB, kafka.request_bytes not below it, "
                "and kafka.frame_bytes not below that"
            )
        if not max(self.first_request_bytes, _SMALLEST_FRAME) <= self.first_frame_bytes <= self.frame_bytes:
            raise ValueError(
                "kafka.first_frame_bytes must be at least 2MiB and kafka.first_request_bytes, "
                "and at most kafka.frame_bytes"
            )
        if not 0 < self.connection_inflight_bytes <= self.process_inflight_bytes:
            raise ValueError("kafka.connection_inflight_bytes must be from 1B to kafka.process_inflight_bytes")
        if self.frame_bytes > self.process_inflight_bytes:
            raise ValueError("kafka.process_inflight_bytes must be at least kafka.frame_bytes")
        if self.unsent_bytes < MIB or self.slowest_rate <= 0:
            raise ValueError("kafka.unsent_bytes must be at least 1MiB, and kafka.slowest_rate above 0B")
        return self

    @model_validator(mode="after")
    def _counts_and_times_fit_together(self) -> Self:
        if self.max_connections_per_address is not None and self.max_connections_per_address > self.max_connections:
            raise ValueError("kafka.max_connections_per_address must be at most kafka.max_connections")
        if self.stop_timeout > LONGEST_STOP:
            raise ValueError("kafka.stop_timeout must be at most 20s: a broker that is told to stop is gone within 30s")
        return self

    def limits(self) -> "Limits":
        """The numbers to act by."""
        return Limits(**{name: getattr(self, name) for name in Limits.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one process gives to its Kafka clients; each number is the setting of its name."""

    max_connections: int = 10_000
    max_connections_per_address: int | None = None
    frame_bytes: int = 100 * MIB
    request_bytes: int = 8 * MIB
    first_request_bytes: int = 128 * KIB
    first_frame_bytes: int = 2 * MIB
    connection_inflight_bytes: int = 64 * MIB
    connection_inflight_requests: int = 4_096
    process_inflight_bytes: int = 512 * MIB
    unsent_bytes: int = 256 * MIB
    idle_timeout: timedelta = timedelta(minutes=10)
    first_request_timeout: timedelta = timedelta(seconds=30)
    frame_timeout: timedelta = timedelta(seconds=30)
    slowest_rate: int = 64 * KIB
    write_timeout: timedelta = timedelta(seconds=60)
    stop_timeout: timedelta = timedelta(seconds=10)

    @property
    def stranger(self) -> "Allowance":
        """For a connection that has not sent a valid request yet."""
        return Allowance(
            request_bytes=self.first_request_bytes,
            frame_bytes=self.first_frame_bytes,
            inflight_bytes=self.connection_inflight_bytes,
            inflight_requests=self.connection_inflight_requests,
        )

    @property
    def known(self) -> "Allowance":
        """For a connection that speaks the protocol. Who it is will make a difference here, and nowhere else."""
        return Allowance(
            request_bytes=self.request_bytes,
            frame_bytes=self.frame_bytes,
            inflight_bytes=self.connection_inflight_bytes,
            inflight_requests=self.connection_inflight_requests,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one connection may have; it depends on what is known of its client."""

    request_bytes: int
    """Of a request without records."""
    frame_bytes: int
    """Of a request with records."""
    inflight_bytes: int
    inflight_requests: int
