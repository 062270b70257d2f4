"""One record, to be written or as it was read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
