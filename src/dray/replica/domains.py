"""The domains of a cluster, as one process serves them.

Usually all are loaded, for as long as the process lives (`Domains`). A process
with a budget has some of them at a time (`SomeDomains`, `dray.replica.residence`):
whoever goes through all of them sees those that are loaded, and a request that
asks for one by its number keeps it (DL2).
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from dray.machine.names import StreamId, domain_of
from dray.replica.replica import Replica
from dray.replica.residence import Guest, Residence, Works, one_request

CATALOG_DOMAIN: Final = 0
_NOTHING: Final = nullcontext()


class Domains:
    """One replica per domain; the catalog's is domain 0."""

    is_whole = True
    """Whether every domain is loaded, always."""

    def __init__(self, replicas: Mapping[int, Replica]) -> None:
        self._replicas = dict(sorted(replicas.items()))

    @property
    def catalog(self) -> Replica:
        """Topics, configs and brokers. It is always loaded."""
        return self._replicas[CATALOG_DOMAIN]

    @property
    def all(self) -> Mapping[int, Replica]:
        """Every domain, loaded or not."""
        return self._replicas

    def of(self, stream: StreamId) -> Replica:
        """The replica of a stream's domain."""
        return self._replicas[domain_of(stream)]

    def __getitem__(self, domain: int) -> Replica:
        return self._replicas[domain]

    def __iter__(self) -> Iterator[tuple[int, Replica]]:
        """Those that are loaded."""
        return iter(self._replicas.items())

    def has(self, stream: StreamId) -> bool:
        """Whether the domain of a stream is loaded: a request that asks keeps it."""
        return True

    def generation(self, stream: StreamId) -> int:
        """How often the log of a stream's domain was begun anew."""
        return self._replicas[domain_of(stream)].machine.head.generation

    def request(self) -> AbstractContextManager[None]:
        """Around the work for a request: what it asks for stays loaded until its end."""
        return _NOTHING

    async def ready(self, domain: int) -> None:
        """Return when a domain is loaded; `NotLoaded` if it is not in time."""

    def welcome(self, guest: Guest) -> None:
        """Ask a service before a domain goes."""

    def tend(self, tasks: asyncio.TaskGroup, works: Works) -> None:
        """Let tasks of the group work for each domain while it is loaded."""
        for domain in self._replicas:
            for work in works(domain):
                tasks.create_task(work)


class SomeDomains(Domains):
    """Domains that come and go."""

    is_whole = False

    def __init__(self, residence: Residence) -> None:
        super().__init__(residence.replicas)
        self._slots = residence.slots
        self._residence = residence

    def of(self, stream: StreamId) -> Replica:
        return self[domain_of(stream)]

    def __getitem__(self, domain: int) -> Replica:
        slot = self._slots[domain]
        self._residence.touch(slot)
        return slot.replica

    def __iter__(self) -> Iterator[tuple[int, Replica]]:
        return iter([(domain, slot.replica) for domain, slot in self._slots.items() if slot.is_loaded])

    def has(self, stream: StreamId) -> bool:
        slot = self._slots[domain_of(stream)]
        self._residence.touch(slot)
        return slot.is_loaded

    def generation(self, stream: StreamId) -> int:
        return self._slots[domain_of(stream)].generation

    def request(self) -> AbstractContextManager[None]:
        return one_request()

    async def ready(self, domain: int) -> None:
        await self._residence.ready(domain)

    def welcome(self, guest: Guest) -> None:
        self._residence.welcome(guest)

    def tend(self, tasks: asyncio.TaskGroup, works: Works) -> None:
        self._residence.tend(tasks, works)
