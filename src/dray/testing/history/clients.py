"""Kafka clients as the workload needs them: a port, and what their errors prove."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dray.testing.history.events import Partition, ProducerOpened
from dray.testing.history.outcomes import Outcome


class ClientFailed(Exception):
    """A client gave up; `outcome` is what that proves (`fail` or `info`)."""

    def __init__(self, outcome: Outcome, cause: str) -> None:
        super().__init__(cause)
        self.outcome = outcome
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one poll handed out: offset and bytes by partition, and the high watermarks that came along."""

    records: Mapping[Partition, list[tuple[int, bytes]]] = field(default_factory=dict)
    ends: Mapping[Partition, int] = field(default_factory=dict)


class Producer(Protocol):
    """One producer instance. Calls come from one task, so program order is the order of the calls."""

    async def send(self, tp: Partition, payload: bytes) -> asyncio.Future[int | None]:
        """Hand over one value; the future has its offset, or raises `ClientFailed`."""
        ...

    async def close(self, timeout_s: float) -> None: ...


class Consumer(Protocol):
    """One consumer instance, by assignment. Every method may raise `ClientFailed`."""

    async def assign(self, positions: Mapping[Partition, int]) -> None: ...

    async def poll(self, timeout_s: float) -> Fetched: ...

    async def latest(self, tp: Partition) -> int: ...

    async def earliest(self, tp: Partition) -> int: ...

    async def commit(self, tp: Partition, offset: int) -> None: ...

    async def committed(self, tp: Partition) -> int:
        """-1 where nothing was committed."""
        ...

    async def close(self) -> None: ...


class Kit(Protocol):
    """Makes the clients of one library for one cluster."""

    name: str

    async def producer(self, promises: ProducerOpened) -> Producer: ...

    async def consumer(self, group: str) -> Consumer: ...

    async def create_topic(self, topic: str, partitions: int) -> str:
        """Returns the topic id, or nothing where the library does not tell it."""
        ...
