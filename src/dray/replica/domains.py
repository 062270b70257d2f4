"""The domains of a cluster, as one process serves them."""

from collections.abc import Iterator, Mapping
from typing import Final

from dray.machine.names import StreamId, domain_of
from dray.replica.replica import Replica

CATALOG_DOMAIN: Final = 0


class Domains:
    """One replica per domain; the catalog's is domain 0."""

    def __init__(self, replicas: Mapping[int, Replica]) -> None:
        self._replicas = dict(sorted(replicas.items()))

    @property
    def catalog(self) -> Replica:
        """Topics, configs and brokers."""
        return self._replicas[CATALOG_DOMAIN]

    def of(self, stream: StreamId) -> Replica:
        """The replica of a stream's domain."""
        return self._replicas[domain_of(stream)]

    def __getitem__(self, domain: int) -> Replica:
        return self._replicas[domain]

    def __iter__(self) -> Iterator[tuple[int, Replica]]:
        return iter(self._replicas.items())
