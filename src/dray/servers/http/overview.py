"""What the page shows, as values: who makes them looks at a broker, who renders them at nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dray.telemetry import Warned


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """A live broker of the cluster."""

    broker_id: int
    address: str
    zone: str
    build: str
    started_ms: int
    is_this: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRow:
    """A place that this broker writes to."""

    what: str
    path: str
    free_bytes: int
    size_bytes: int
    is_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic; `start` and `end` are told where there is one partition."""

    name: str
    partitions: int
    records: int
    size_bytes: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """A partition: the offsets [start, end) that can be read."""

    number: int
    start: int
    end: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage:
    """One page of topics, by name."""

    rows: Sequence[TopicRow]
    found: int
    """How many fit the search."""
    before: int
    """How many of them are on earlier pages."""
    size_bytes: int
    """Of all that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A broker and its cluster at one moment."""

    version: str
    cluster_id: str
    now_ms: int
    states: Mapping[str, str]
    """What readiness depends on, and `ok` or what is wrong with it."""
    brokers: Sequence[BrokerRow]
    disks: Sequence[DiskRow]
    log_bytes: int
    entries: int
    topics: TopicPage
    warnings: Sequence[Warned]


class View(Protocol):
    """A look at the broker that serves the page."""

    async def measure(self) -> None:
        """Bring the metrics that are counted on demand up to date. Raises nothing but a cancellation."""
        ...

    async def overview(self, states: Mapping[str, str], search: str, first: int, count: int) -> Overview: ...

    async def partitions(self, topic: str, first: int, count: int) -> tuple[int, Sequence[PartitionRow]] | None:
        """How many partitions a topic has, and one page of them; None if there is no such topic."""
        ...
